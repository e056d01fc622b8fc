"""The statistics of a run, from section 4.1 of the paper. Pure.

Rates are bits/s here, as in every result. Counters are cumulative IP-layer bytes, sampled nearly on
a grid. They are interpolated onto the grid, so that windows have their exact length.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed import MTU
from testbed.errors import MeasurementError

WINDOWS_S = (1.0, 0.05)
OVERSHOOT = 1.10
"""A window is within the limit if it is at most 10 % above it."""

GOODPUT_SHARE = (MTU - 52) / MTU
"""Goodput of a full packet, without 20 bytes of IP header, 20 of TCP, 12 of TCP's timestamps."""

_LEAST_EFFICIENCY = 0.8
_SLACK = 1.02


@dataclass(frozen=True, slots=True)
class FlowGoodput:
    """The sink's counts of one flow."""

    id: str
    limiter: str
    start_s: float
    """The planned start."""
    end_s: float
    syn_s: float
    """Time at which the first SYN was sent."""
    steps: tuple[int, ...]
    """Application bytes in each step of the run."""


def jain(rates: Sequence[float]) -> float:
    """Jain's fairness index: 1 if all rates are equal, 1/n if one flow has everything.

    Raises:
        MeasurementError: all rates are 0.
    """
    squares = sum(rate * rate for rate in rates)
    if not squares:
        raise MeasurementError("no flow got a byte through in the measured time")
    return sum(rates) ** 2 / (len(rates) * squares)


def at(times_s: Sequence[float], values: Sequence[int], when_s: float) -> float:
    """A cumulative counter at a time, interpolated.

    Raises:
        MeasurementError: the samples do not reach there.
    """
    after = bisect.bisect_left(times_s, when_s)
    if after < len(times_s) and times_s[after] == when_s:
        return values[after]
    if not 0 < after < len(times_s):
        raise MeasurementError(f"no sample on both sides of {when_s:g} s")
    before = after - 1
    part = (when_s - times_s[before]) / (times_s[after] - times_s[before])
    return values[before] + part * (values[after] - values[before])


def rates_bps(
    times_s: Sequence[float], values: Sequence[int], begin_s: float, end_s: float, window_s: float
) -> list[float]:
    """Rates in consecutive whole windows."""
    count = int((end_s - begin_s) / window_s + 1e-9)
    edges = [at(times_s, values, begin_s + index * window_s) for index in range(count + 1)]
    return [(right - left) * 8 / window_s for left, right in itertools.pairwise(edges)]


def within_limit(rates: Sequence[float], limit_bps: float) -> float | None:
    """Share of the windows that are at or below 1.10 of the limit; None without windows."""
    if not rates:
        return None
    return sum(rate <= OVERSHOOT * limit_bps for rate in rates) / len(rates)


def shares(amounts: Mapping[str, float]) -> dict[str, float]:
    """Each value's part of the sum.

    Raises:
        MeasurementError: the sum is zero.
    """
    total = sum(amounts.values())
    if not total:
        raise MeasurementError("nothing was forwarded in the measured time")
    return {name: amount / total for name, amount in amounts.items()}


def goodput_bps(flow: FlowGoodput, begin_s: float, end_s: float, step_s: float) -> float:
    """A flow's goodput over that part of the measured time in which it ran."""
    first = int(max(begin_s, flow.start_s) / step_s + 1e-9)
    last = int(-(-min(end_s, flow.end_s) // step_s))
    if last <= first:
        return 0.0
    return sum(flow.steps[first:last]) * 8 / ((last - first) * step_s)


def check_goodput(goodput_bytes: float, forwarded_bytes: float, overhead_bytes: float) -> None:
    """Check that the sink received all bytes that the limiters forwarded, less headers.

    `overhead_bytes`: most bytes forwarded besides full packets of goodput.

    Raises:
        MeasurementError: the two counts do not belong to the same packets.
    """
    least = _LEAST_EFFICIENCY * GOODPUT_SHARE * (forwarded_bytes - overhead_bytes)
    most = _SLACK * GOODPUT_SHARE * forwarded_bytes + 64 * MTU
    if not least <= goodput_bytes <= most:
        raise MeasurementError(
            f"{goodput_bytes:.0f} bytes of goodput do not fit "
            f"{forwarded_bytes:.0f} bytes that the limiters forwarded"
        )
