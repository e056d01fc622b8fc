"""How soon flows get what they deserve."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from testbed.events import Event
from testbed.response import responses
from tests.testbed_factories import STEP_S, experiment, flow_goodput

SECONDS = 8
STEPS = round(SECONDS / STEP_S)
JOINING = [
    {"limiter": "l1", "count": 1, "rtt": "40ms"},
    {"limiter": "l2", "count": 1, "rtt": "40ms", "start": "2s"},
]


def step_of(share_bps: float) -> int:
    """Goodput bytes in a step of a flow that has so much at the IP layer."""
    return round(share_bps * 1448 / 1500 / 8 * STEP_S)


FAIR = step_of(5e6)


def responded(
    steps: dict[str, list[int]],
    in_force: dict[str, list[tuple[float, float | None]]] | None = None,
    events_at_s: list[float] | None = None,
    rate_bps: float = 10e6,
    **changes: Any,
) -> list[dict[str, Any]]:
    """The events of a run in which flows received these bytes, and everything else was even."""
    small = experiment(**{"seconds": SECONDS, "allocators": ["fps"], **changes})
    rng = random.Random(1)
    flows = [flow for group in small.groups for flow in small.flows(group, rng)]
    goodputs = [
        flow_goodput(
            steps[flow.id],
            id=flow.id,
            limiter=flow.limiter,
            start_s=flow.start_ns / 1e9,
            end_s=flow.end_ns / 1e9,
            syn_s=round(flow.start_ns / 1e9, 1) + 0.01,
        )
        for flow in flows
    ]
    times = events_at_s or [event.at_ns / 1e9 for event in small.events]
    events = [
        Event(round(at_s * 1e9), event.do) for at_s, event in zip(times, small.events, strict=True)
    ]
    pairs = list(zip(flows, goodputs, strict=True))
    return responses(small, pairs, events, lambda when_s: when_s * rate_bps / 8, in_force or {})


def joined(steps: list[int]) -> dict[str, Any]:
    """The response of a flow that joins at 2.01 s and receives `steps` from 2 s on."""
    steps = [0] * 10 + steps
    ((event),) = responded({"f1.1": [FAIR] * STEPS, "f2.1": steps}, flows=JOINING)
    (flow,) = event["flows"]
    return dict(flow)


def test_time_counts_from_the_syn_to_the_window_that_is_fair_enough() -> None:
    flow = joined([FAIR // 10] * 5 + [FAIR] * 25)
    assert flow["fair_bps"] == pytest.approx(5e6 * 1448 / 1500)
    # A second from 2.8 s on has a tenth for one step of five: 0.82.
    assert flow["t80_s"] == pytest.approx(0.79)
    assert flow["lasting_s"] == pytest.approx(0.79)


def test_a_share_that_is_lost_again_was_reached_but_did_not_last() -> None:
    flow = joined([FAIR] * 10 + [FAIR // 3] * 5 + [FAIR] * 15)
    assert flow["t80_s"] == 0
    # From 4.8 s on a second has one poor step of five; two would be too many.
    assert flow["lasting_s"] == pytest.approx(2.79)


def test_a_flow_that_never_gets_its_share_has_no_time() -> None:
    flow = joined([FAIR // 2] * 30)
    assert (flow["t80_s"], flow["lasting_s"]) == (None, None)


def test_only_the_time_before_the_next_event_counts() -> None:
    leaving = [JOINING[0], {**JOINING[1], "end": "5s"}]
    steps = {"f1.1": [FAIR] * STEPS, "f2.1": [0] * 10 + [FAIR // 2] * 13 + [FAIR] * 17}
    join, leave = responded(steps, flows=leaving)
    assert (join["kind"], join["until_s"]) == ("join", 5.0)
    assert join["flows"][0]["t80_s"] is None
    # The other deserves twice as much from then on, and does not get it.
    assert (leave["kind"], leave["what"], leave["until_s"]) == ("leave", ["f2.1"], 8.0)
    (flow,) = leave["flows"]
    assert (flow["id"], flow["t80_s"]) == ("f1.1", None)
    assert flow["before_bps"] == pytest.approx(flow["fair_bps"] / 2)


def test_events_of_the_warm_up_and_at_the_very_end_are_not_judged() -> None:
    steps = {"f1.1": [FAIR] * STEPS, "f2.1": [FAIR] * STEPS}
    assert responded(steps, flows=JOINING, warmup="3s") == []
    late = [JOINING[0], {**JOINING[1], "start": "6.2s"}]
    assert responded(steps, flows=late) == []


def test_a_growing_limit_concerns_every_flow_and_a_shrinking_one_none() -> None:
    events = [{"at": "2s", "limit": "5mbit"}, {"at": "5s", "limit": "10mbit"}]
    steps = {"f1.1": [FAIR] * STEPS, "f2.1": [FAIR] * STEPS}
    in_force: dict[str, list[tuple[float, float | None]]] = {
        "l1": [(1.9, 10e6), (2.2, 5e6), (5.1, 10e6)],
        "l2": [(1.9, 10e6), (2.1, 9e6), (2.4, 5e6), (5.2, 9e6)],
    }
    flows = [JOINING[0], {**JOINING[1], "start": "0s"}]
    cut, raised = responded(steps, in_force, events_at_s=[2.02, 5.0], flows=flows, events=events)
    assert cut["flows"] == []
    assert (cut["at_s"], cut["limit_bps"]) == (2.02, 5e6)
    assert cut["in_force_s"] == pytest.approx(0.38)
    # One of the limiters never had it.
    assert raised["in_force_s"] is None
    assert [flow["id"] for flow in raised["flows"]] == ["f1.1", "f2.1"]


def test_the_survivors_of_a_death_share_what_is_left() -> None:
    events = [{"at": "2s", "kill": "l2"}, {"at": "5s", "start": "l2"}]
    flows = [
        {"limiter": "l1", "count": 1, "rtt": "40ms"},
        {"limiter": "l2", "count": 3, "rtt": "40ms"},
    ]
    steps = {f"f{name}": [FAIR] * STEPS for name in ("1.1", "2.1", "2.2", "2.3")}
    in_force: dict[str, list[tuple[float, float | None]]] = {
        "l1": [(2.5, 10e6), (3.5, 5e6), (6.5, 10e6)],
        "l2": [(1.9, 10e6), (6.0, 10e6)],
    }
    death, back = responded(steps, in_force, flows=flows, events=events)
    assert (death["kind"], death["in_force_s"]) == ("death", pytest.approx(1.5))
    (flow,) = death["flows"]
    assert flow["fair_bps"] == pytest.approx(5e6 * 1448 / 1500)
    assert (back["kind"], back["in_force_s"]) == ("return", pytest.approx(1.5))
    assert [flow["id"] for flow in back["flows"]] == ["f2.1", "f2.2", "f2.3"]


def joined_while(more: Callable[[float], float]) -> dict[str, Any]:
    """A join; `more` is what passes beside 10 Mbit/s, megabits until so long after the event."""
    small = experiment(seconds=SECONDS, allocators=["fps"], flows=JOINING)
    rng = random.Random(1)
    flows = [flow for group in small.groups for flow in small.flows(group, rng)]
    pairs = [(flow, flow_goodput([FAIR] * STEPS, id=flow.id, syn_s=flow.start_ns / 1e9))
             for flow in flows]  # fmt: skip
    since_s = pairs[1][1].syn_s
    (event,) = responses(
        small, pairs, [], lambda when_s: (10 * when_s + more(when_s - since_s)) * 1e6 / 8, {}
    )
    return event


def test_the_first_second_is_told_apart_from_those_that_begin_later() -> None:
    event = joined_while(lambda since_s: 10 * min(since_s, 1.1))
    assert event["first_1s_bps"] == pytest.approx(20e6)
    assert event["highest_1s_bps"] == pytest.approx(11e6)


def test_flows_that_come_later_are_not_of_the_first_second() -> None:
    event = joined_while(lambda since_s: 10 * max(since_s - 1.9, 0.0))
    assert event["first_1s_bps"] == pytest.approx(10e6)
    assert event["highest_1s_bps"] > 15e6


def test_nothing_is_judged_where_there_is_web_traffic() -> None:
    steps = {"f1.1": [FAIR] * STEPS, "f2.1": [FAIR] * STEPS}
    web = {
        "limiter": "l1", "rtt": "40ms", "requests": 1.0,
        "sizes": {"shape": 1.2, "least": "1kB", "most": "9kB"},
    }  # fmt: skip
    assert len(responded(steps, flows=JOINING)) == 1
    assert responded(steps, flows=JOINING, web=[web]) == []
