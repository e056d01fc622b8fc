"""The time in which a run's flows get their fair shares after each event. Pure.

For each event (a flow joins or leaves, a group's bottleneck or the limit changes, a daemon dies or
comes back) and each flow with a larger fair share after it (testbed/fair.py), `t80_s` is the start
of the first 200 ms step, counted from the event, from which the average of 1 s is at least 0.8 of
the fair share. It counts from a joining flow's SYN, and until the next event.

Flows are measured in goodput, so headers are subtracted from a fair share. The total, in contrast,
is the kernel's count at the IP layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from testbed.datagrams import UdpSource
from testbed.events import Event
from testbed.experiment import Experiment, Flow
from testbed.experiment_tables import NS_PER_S, STEP_NS
from testbed.fair import Change, Situation, changes, udp_sources
from testbed.result import GOODPUT_SHARE, FlowGoodput

STEP_S = STEP_NS / NS_PER_S
WINDOW_S = 1.0
FAIR_ENOUGH = 0.8
GRACE_S = 1.0
"""Time after an event in which the total may exceed the limit; it is reported separately."""

_LEAST_S = 2 * WINDOW_S
"""An event is not judged if another event, or the end, follows within this time."""
_GROWN = 1.01
_IN_FORCE = 1e-3
"""Relative difference within which a limit in force counts as the expected one."""

Series = Mapping[str, Sequence[tuple[float, float | None]]]


@dataclass(frozen=True, slots=True)
class Growth:
    """A flow with a grown fair share, and the time until it had it. Goodput, bits/s."""

    id: str
    limiter: str
    before_bps: float
    fair_bps: float
    t80_s: float | None
    """Time until 80 % of the fair share, s; None: not reached before the next event."""
    lasting_s: float | None
    """The start of the first step from which *every* average of 1 s is at least 0.8."""


def responses(
    experiment: Experiment,
    flows: Sequence[tuple[Flow, FlowGoodput]],
    events: Sequence[Event],
    forwarded: Callable[[float], float],
    limits_in_force: Series,
) -> list[dict[str, Any]]:
    """The record of every event of the measured time (docs/testbed.md).

    `forwarded` returns the bytes that all limiters together had forwarded at a time. With web
    traffic no event is judged, as its demand is unknown.

    Raises:
        MeasurementError: the samples do not reach the end of the run.
    """
    if experiment.web:
        return []
    duration_s = experiment.duration_ns / NS_PER_S
    sources: list[tuple[Flow | UdpSource, float]] = [
        *((flow, goodput.syn_s) for flow, goodput in flows),
        *udp_sources(experiment.udp, experiment.duration_ns),
    ]
    plans = {flow.id: flow for flow, _ in sources}
    first, *later = changes(sources, events, duration_s)
    situation = Situation.at_start(experiment)
    for change in first:
        situation.apply(change, plans)
    found = []
    begins_s = [together[0].at_s for together in later]
    for together, until_s in zip(later, [*begins_s[1:], duration_s], strict=False):
        before, before_bps = situation.fair_bps(), situation.in_force_bps
        for change in together:
            situation.apply(change, plans)
        at_s = together[0].at_s
        if at_s < experiment.table.warmup / NS_PER_S or until_s - at_s < _LEAST_S:
            continue
        after = situation.fair_bps()
        found.append(
            {
                "at_s": at_s,
                "until_s": until_s,
                "kind": "+".join(sorted({change.kind for change in together})),
                "what": [change.what for change in together],
                "limit_bps": situation.limit_bps,
                "first_1s_bps": _highest(
                    forwarded, at_s, min(at_s + GRACE_S - STEP_S + WINDOW_S, until_s)
                ),
                "highest_1s_bps": _highest(forwarded, at_s + GRACE_S, until_s),
                "in_force_s": None
                if situation.in_force_bps == before_bps
                else _in_force(limits_in_force, situation, at_s, until_s),
                "flows": [
                    asdict(_growth(goodput, before.get(flow.id, 0.0), after[flow.id],
                                   _begin_s(flow, together), until_s))
                    for flow, goodput in flows
                    if after.get(flow.id, 0.0) > _GROWN * before.get(flow.id, 0.0)
                ],
            }
        )  # fmt: skip
    return found


def _begin_s(flow: Flow, together: Sequence[Change]) -> float:
    """The time from which a flow could grow: its own SYN, else the first event."""
    own = [change.at_s for change in together if (change.kind, change.what) == ("join", flow.id)]
    return (own or [together[0].at_s])[0]


def _growth(
    flow: FlowGoodput, before_bps: float, fair_bps: float, since_s: float, until_s: float
) -> Growth:
    fair = fair_bps * GOODPUT_SHARE
    width = round(WINDOW_S / STEP_S)
    last = int(min(until_s, flow.end_s) / STEP_S + 1e-9) - width
    enough = {
        step: sum(flow.steps[step : step + width]) * 8 / WINDOW_S >= FAIR_ENOUGH * fair
        for step in range(int(since_s / STEP_S + 1e-9), last + 1)
    }
    reached = next((step for step, is_enough in enough.items() if is_enough), None)
    lasting: int | None = None
    for step in reversed(enough):
        if not enough[step]:
            break
        lasting = step
    t80_s, lasting_s = (
        None if step is None else max(step * STEP_S - since_s, 0.0) for step in (reached, lasting)
    )
    return Growth(flow.id, flow.limiter, before_bps * GOODPUT_SHARE, fair, t80_s, lasting_s)


def _highest(forwarded: Callable[[float], float], since_s: float, until_s: float) -> float | None:
    """The highest average of 1 s, in steps of 200 ms; None if the time is too short."""
    count = math.floor((until_s - WINDOW_S - since_s) / STEP_S + 1e-9) + 1
    starts = [since_s + index * STEP_S for index in range(count)]
    return max(
        ((forwarded(start + WINDOW_S) - forwarded(start)) * 8 / WINDOW_S for start in starts),
        default=None,
    )


def _in_force(limits: Series, situation: Situation, at_s: float, until_s: float) -> float | None:
    """Seconds until every living limiter had the new limit in force; None if one never did."""
    expected = situation.in_force_bps
    moments = []
    for limiter, ticks in limits.items():
        if limiter in situation.dead:
            continue
        moment = next(
            (
                when_s
                for when_s, limit in ticks
                if at_s <= when_s < until_s
                and limit is not None
                and abs(limit - expected) <= _IN_FORCE * expected
            ),
            None,
        )
        if moment is None:
            return None
        moments.append(moment - at_s)
    return max(moments, default=None)
