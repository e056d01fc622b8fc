"""The measures of a run of any traffic. Pure.

A flow's rate is that of the IP layer, bits/s, so that TCP and UDP are comparable. It is the mean
over the measured time in which the flow lived. A flow deserves its max-min fair share
(`testbed.fair`), which does not depend on any allocator.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial

from testbed import MTU
from testbed.datagrams import UdpSource
from testbed.experiment import Experiment, Flow
from testbed.experiment_tables import NS_PER_S
from testbed.fair import deserved, udp_sources
from testbed.fields import spread_out
from testbed.harness.results import Run, t80_times
from testbed.result import GOODPUT_SHARE, jain

_BURSTS = 3
"""The bound on bytes above the limit: this number of bursts, and a packet for each limiter."""
_IN_USE = 0.8
_WINDOW_S = 1.0


class Seen:
    """A run, and the rates that its flows deserve."""

    def __init__(self, run: Run, experiment: Experiment) -> None:
        self.run = run
        self.experiment = experiment
        self.limit_bps = experiment.table.limit.rate * 8.0

    @cached_property
    def rates(self) -> dict[str, float]:
        """The rate of every TCP flow and UDP source, by its id."""
        found = {
            flow["id"]: flow["goodput_bps"] / GOODPUT_SHARE
            for flow in self.run["flows"]
            if flow["end_s"] > self.run["warmup_s"]
        }
        return found | {one["id"]: one["forwarded_bps"] for one in self.run.get("udp", ())}

    @cached_property
    def deserved(self) -> dict[str, float]:
        """The max-min fair shares, by the same ids."""
        flows: list[tuple[Flow | UdpSource, float]] = [
            (
                Flow(
                    flow["id"],
                    flow["id"].split(".")[0],
                    flow["limiter"],
                    round(flow["start_s"] * NS_PER_S),
                    round(flow["end_s"] * NS_PER_S),
                ),
                flow["syn_s"],
            )
            for flow in self.run["flows"]
        ]
        flows += udp_sources(self.experiment.udp, self.experiment.duration_ns)
        return deserved(
            self.experiment, flows, self.experiment.events, self.run["warmup_s"],
            self.run["seconds"],
        )  # fmt: skip

    @cached_property
    def groups(self) -> dict[str, list[str]]:
        """The ids of the flows of each entry of the experiment, by the entry's name."""
        table = self.experiment.table
        entries = [
            *((one.name or f"f{number}", one.limiter) for number, one in enumerate(table.flows, 1)),
            *((one.name or f"u{number}", one.limiter) for number, one in enumerate(table.udp, 1)),
        ]
        entry = {name: base for base, where in entries for name, _ in spread_out(base, where)}
        found: dict[str, list[str]] = {}
        for flow in self.rates:
            group = flow.split(".")[0]
            found.setdefault(entry.get(group, group), []).append(flow)
        return found

    @cached_property
    def tcp(self) -> list[str]:
        """The ids of the TCP flows."""
        return [flow["id"] for flow in self.run["flows"] if flow["id"] in self.rates]

    def ids(self, group: str | None) -> list[str]:
        """The ids of an entry's flows, or of all TCP flows."""
        return self.tcp if group is None else self.groups[group]

    @cached_property
    def totals(self) -> list[float]:
        """The forwarding rate of all limiters in each step of the whole run, bits/s."""
        rows = zip(*self.run["series"].values(), strict=True)
        return [sum(row[1] for row in limiters) for limiters in rows]

    def sliding(self, window_s: float, begin_s: float, end_s: float) -> list[tuple[float, float]]:
        """(start, rate) of all windows between two times, a step apart."""
        step_s = self.run["series_step_s"]
        width = round(window_s / step_s)
        first, last = math.ceil(begin_s / step_s - 1e-9), round(end_s / step_s)
        sums = [0.0, *itertools.accumulate(self.totals)]
        last = min(last, len(self.totals))
        return [
            (start * step_s, (sums[start + width] - sums[start]) / width)
            for start in range(first, last - width + 1)
        ]


OfRates = Callable[[Seen, Mapping[str, float]], float]


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure of a run."""

    name: str
    """Its name, with which statements begin."""
    of: Callable[[Seen], float]
    ideal: Callable[[Seen], float] | None = None
    """Its value if every flow had its max-min share; None if that is meaningless."""
    unit: str = ""


def _of_rates(name: str, of: OfRates) -> Measure:
    """A measure of the flows' rates alone."""
    return Measure(name, lambda seen: of(seen, seen.rates), lambda seen: of(seen, seen.deserved))


def _shares(seen: Seen, rates: Mapping[str, float], group: str | None) -> list[float]:
    return [rates[flow] / seen.deserved[flow] for flow in seen.ids(group)]


def _share(which: str, of: Callable[[list[float]], float], group: str | None = None) -> Measure:
    """A value over all TCP flows, or over a group."""
    flows = "each TCP flow" if group is None else f"each of '{group}'"
    return _of_rates(
        f"{flows} over its max-min share, the {which}",
        lambda seen, rates: of(_shares(seen, rates, group)),
    )


least_share = partial(_share, "least", min)
most_share = partial(_share, "most", max)
mean_share = partial(_share, "mean", statistics.fmean)


def _mean(rates: Mapping[str, float], flows: Iterable[str]) -> float:
    return statistics.fmean(rates[flow] for flow in flows)


def apart(one: str, other: str) -> Measure:
    """The factor between the mean rates of two groups of identical flows."""

    def of(seen: Seen, rates: Mapping[str, float]) -> float:
        means = [_mean(rates, seen.groups[group]) for group in (one, other)]
        return max(means) / min(means) if min(means) else math.inf

    return _of_rates(f"'{one}' and '{other}', factor between their mean rates", of)


def part(group: str) -> Measure:
    """A group's part of the limit."""
    return _of_rates(
        f"'{group}' over the limit",
        lambda seen, rates: sum(rates[flow] for flow in seen.groups[group]) / seen.limit_bps,
    )


def share_of(limiter: str) -> Measure:
    """A limiter's part of the forwarded bytes; behind a central one, of the goodput."""
    return Measure(f"share of {limiter}", lambda seen: float(seen.run["share"][limiter]))


def _split_error(seen: Seen) -> float:
    due: dict[str, float] = {}
    for flow in seen.run["flows"]:
        limiter = flow["limiter"]
        due[limiter] = due.get(limiter, 0.0) + seen.deserved[flow["id"]]
    total = sum(due.values())
    return max(abs(float(seen.run["share"][name]) - rate / total) for name, rate in due.items())


JAIN = _of_rates("Jain's index", lambda seen, rates: jain([rates[flow] for flow in seen.tcp]))
AGGREGATE = Measure(
    "aggregate over the limit",
    lambda seen: float(seen.run["aggregate_bps"]) / seen.limit_bps,
    lambda seen: sum(seen.deserved.values()) / seen.limit_bps,
)
SPLIT_ERROR = Measure("limiters' shares, largest distance from the fair ones", _split_error)
WINDOWS = Measure(
    "part of the 1 s windows within 1.10 of the limit",
    lambda seen: float(seen.run["windows_within_limit"]),
)


def _resent(seen: Seen) -> float:
    """Retransmitted segments over the forwarded full packets of the whole run."""
    step_s = seen.run["series_step_s"]
    forwarded: float = sum(seen.totals) * step_s / 8 / MTU
    return sum(int(flow["retransmits"]) for flow in seen.run["flows"]) / forwarded


RESENT = Measure("retransmitted segments over forwarded full packets", _resent)


def excess_bytes(seen: Seen) -> float:
    """The most bytes above the limit in any interval of whole steps."""
    step_s = seen.run["series_step_s"]
    largest = running = 0.0
    for rate in seen.totals:
        running = max(running + (rate - seen.limit_bps) * step_s / 8, 0.0)
        largest = max(largest, running)
    return largest


def _excess(seen: Seen) -> float:
    """These bytes over their bound."""
    burst, limiters = seen.experiment.table.limit.burst, len(seen.experiment.limiters)
    return excess_bytes(seen) / (_BURSTS * burst + MTU * limiters)


BYTES = Measure("bytes above L t in any interval, over 3 bursts + N packets", _excess)


def _highest(seen: Seen, window_s: float) -> float:
    windows = seen.sliding(window_s, 0.0, seen.run["seconds"])
    return max(rate for _, rate in windows) / seen.limit_bps


WORST_SECOND = Measure("worst second over the limit", lambda seen: _highest(seen, 1.0))
WORST_FIFTH = Measure("worst 0.2 s over the limit", lambda seen: _highest(seen, 0.2))


def in_use_after(start_s: float) -> Measure:
    """The delay, s, until a second begins in which 0.8 of the limit is in use."""

    def of(seen: Seen) -> float:
        windows = seen.sliding(_WINDOW_S, start_s, seen.run["seconds"])
        enough = (at_s for at_s, rate in windows if rate >= _IN_USE * seen.limit_bps)
        return next(enough, math.inf) - start_s

    return Measure(f"{_IN_USE:g} of the limit in use after", of, unit="s")


def _t80(seen: Seen) -> float:
    times = t80_times(seen.run["events"])
    return statistics.median(times) if times else math.nan


T80 = Measure("t80 after an event, median", _t80, unit="s")


def _highest_after_events(seen: Seen) -> float:
    found = [
        event[key] / event["limit_bps"]
        for event in seen.run["events"]
        for key in ("first_1s_bps", "highest_1s_bps")
        if event[key] is not None
    ]
    return max(found, default=math.nan)


AFTER_EVENTS = Measure(
    "worst second after an event, including the first, over the limit", _highest_after_events
)
