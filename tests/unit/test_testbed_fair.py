"""The fair shares of flows, and the times of events."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.datagrams import UdpSource
from testbed.experiment import Experiment, Flow
from testbed.fair import Change, Situation, changes, deserved, udp_sources, water_level
from tests.examples import examples
from tests.testbed_factories import experiment


def situation(small: Experiment, *running: str) -> Situation:
    """The flows of these groups run."""
    rng = random.Random(1)
    found = Situation.at_start(small)
    for group in small.groups:
        for flow in small.flows(group, rng):
            if flow.group in running:
                found.running[flow.id] = flow
    return found


def test_water_fills_up_to_the_level_of_those_that_want_more() -> None:
    infinite = float("inf")
    assert water_level(10, [infinite, infinite], [1, 1]) == 5
    assert water_level(10, [infinite, 2, infinite], [1, 1, 1]) == 4
    assert water_level(10, [1, 3.5, infinite], [1, 1, 1]) == 5.5
    assert water_level(10, [6, 5, 3], [1, 1, 1]) == 3.5
    assert water_level(10, [1, 2], [1, 1]) == infinite
    assert water_level(10, [], []) == infinite
    assert water_level(10, [infinite, infinite], [4, 1]) == 2
    assert water_level(10, [5, 2.5, infinite], [4, 1, 1]) == 2.5


def test_flows_share_the_limit_evenly_over_all_limiters() -> None:
    assert situation(experiment(), "f1", "f2").fair_bps() == pytest.approx(
        {"f1.1": 10e6 / 3, "f2.1": 10e6 / 3, "f2.2": 10e6 / 3}
    )


def test_flows_share_the_limit_by_the_weights_of_their_limiters() -> None:
    limit = {"rate": "10mbit", "burst": "75kB", "weights": {"l2": 2.0}}
    assert situation(experiment(limit=limit), "f1", "f2").fair_bps() == pytest.approx(
        {"f1.1": 2e6, "f2.1": 4e6, "f2.2": 4e6}
    )


def test_other_flows_share_the_rate_that_a_bottleneck_leaves() -> None:
    flows = [
        {"limiter": "l1", "count": 1, "rtt": "40ms"},
        {"limiter": "l2", "count": 4, "rtt": "40ms", "rate": "2mbit"},
    ]
    fair = situation(experiment(flows=flows), "f1", "f2").fair_bps()
    assert fair["f1.1"] == pytest.approx(8e6)
    assert fair["f2.4"] == pytest.approx(0.5e6)


@pytest.mark.parametrize(("shares", "left"), [({}, 5e6), ({"l1": 0.2, "l2": 0.8}, 2e6)])
def test_a_dead_limiter_takes_its_share_with_it(shares: dict[str, float], left: float) -> None:
    limit = {"rate": "10mbit", "burst": "75kB", "shares": shares}
    found = situation(experiment(limit=limit), "f1", "f2")
    found.apply(Change(2.0, "death", "l2"), {})
    assert found.in_force_bps == pytest.approx(left)
    assert found.fair_bps() == pytest.approx({"f1.1": left})
    found.apply(Change(3.0, "return", "l2"), {})
    assert len(found.fair_bps()) == 3


def all_changes(**changed: Any) -> list[list[tuple[str, str]]]:
    small = experiment(allocators=["fps"], **changed)
    rng = random.Random(1)
    flows = [flow for group in small.groups for flow in small.flows(group, rng)]
    found = changes([(flow, flow.start_ns / 1e9) for flow in flows], small.events, 4.0)
    return [[(change.kind, change.what) for change in together] for together in found]


def test_the_first_changes_are_those_of_the_beginning() -> None:
    first, *others = all_changes()
    assert sorted(first) == [("join", "f1.1"), ("join", "f2.1"), ("join", "f2.2")]
    assert others == []


def test_simultaneous_changes_are_one_event() -> None:
    flows = [
        {"limiter": "l1", "count": 1, "rtt": "40ms"},
        {"limiter": "l2", "count": 2, "rtt": "20ms", "start": "1.5s", "end": "2.5s"},
    ]
    first, joined, left = all_changes(flows=flows)
    assert first == [("join", "f1.1")]
    assert sorted(joined) == [("join", "f2.1"), ("join", "f2.2")]
    assert left == [("leave", "f2.1"), ("leave", "f2.2")]


def test_every_kind_of_event_has_a_name() -> None:
    events = [
        {"at": "1.2s", "flows": "f1", "rate": "2mbit"},
        {"at": "1.4s", "flows": "f1", "rate": "none"},
        {"at": "1.6s", "limit": "5mbit"},
        {"at": "1.8s", "kill": "l1"},
        {"at": "2s", "start": "l1"},
    ]
    _, *others = all_changes(events=events)
    assert others == [
        [("bottleneck", "f1")],
        [("release", "f1")],
        [("limit", "5000000")],
        [("death", "l1")],
        [("return", "l1")],
    ]


def test_a_situation_follows_the_changes() -> None:
    small = experiment(
        events=[
            {"at": "1.2s", "flows": "f2", "rate": "2mbit"},
            {"at": "1.4s", "limit": "6mbit"},
            {"at": "1.6s", "flows": "f2", "rate": "none"},
        ]
    )
    rng = random.Random(1)
    flows = {flow.id: flow for group in small.groups for flow in small.flows(group, rng)}
    first, *others = changes(
        [(flow, flow.start_ns / 1e9) for flow in flows.values()], small.events, 4.0
    )
    found = Situation.at_start(small)
    for change in first:
        found.apply(change, flows)
    of_the_first = []
    for (change,) in others:
        found.apply(change, flows)
        of_the_first.append(found.fair_bps()["f1.1"])
    assert of_the_first == pytest.approx([8e6, 4e6, 2e6])
    found.apply(Change(2.0, "leave", "f1.1"), flows)
    assert found.fair_bps() == pytest.approx({"f2.1": 3e6, "f2.2": 3e6})


def of_all(small: Experiment, begin_s: float = 0.0, end_s: float = 4.0) -> dict[str, float]:
    """The fair share of each flow of an experiment; flows start as planned."""
    rng = random.Random(1)
    sources: list[tuple[Flow | UdpSource, float]] = [
        (flow, group.table.start / 1e9)
        for group in small.groups
        for flow in small.flows(group, rng)
    ]
    sources += udp_sources(small.udp, small.duration_ns)
    return deserved(small, sources, small.events, begin_s, end_s)


@pytest.mark.parametrize(
    ("rate", "udp_bps", "tcp_bps"),
    [("1mbit", 1e6, 3e6), ("2.5mbit", 2.5e6, 2.5e6), ("20mbit", 2.5e6, 2.5e6)],
)
def test_a_udp_source_gets_its_rate_or_what_all_others_get(
    rate: str, udp_bps: float, tcp_bps: float
) -> None:
    found = of_all(experiment(udp=[{"limiter": "l2", "rate": rate}]))
    assert found == pytest.approx(
        {"u1.1": udp_bps, "f1.1": tcp_bps, "f2.1": tcp_bps, "f2.2": tcp_bps}
    )


def test_sources_of_a_group_have_a_rate_each_and_count_when_they_are_on() -> None:
    udp = {"limiter": "l2", "rate": "2mbit", "count": 2, "on": "1s", "off": "1s"}
    found = of_all(experiment(udp=[udp]))
    assert [found["u1.1"], found["u1.2"], found["f1.1"]] == pytest.approx([1e6, 1e6, 8e6 / 3])


def test_the_fair_share_is_the_mean_over_a_flows_life() -> None:
    flows = [
        {"limiter": "l1", "count": 1, "rtt": "40ms"},
        {"limiter": "l2", "count": 1, "rtt": "40ms", "start": "2s", "end": "3s"},
    ]
    whole = experiment(flows=flows)
    assert of_all(whole) == pytest.approx({"f1.1": 8.75e6, "f2.1": 5e6})
    assert of_all(whole, 2.5, 3.5) == pytest.approx({"f1.1": 7.5e6, "f2.1": 5e6})
    # A flow that does not live in that time deserves nothing, and is left out.
    assert of_all(whole, 3.0, 4.0) == pytest.approx({"f1.1": 10e6})


def test_a_udp_source_that_comes_and_goes_is_there_in_between() -> None:
    udp = {"limiter": "l2", "rate": "4mbit", "start": "2s", "end": "3s"}
    found = of_all(experiment(flows=FEW, udp=[udp]))
    assert found == pytest.approx({"f1.1": 9e6, "u1.1": 4e6})


FEW = [{"limiter": "l1", "count": 1, "rtt": "40ms"}]


@settings(max_examples=examples(100), deadline=None)
@given(
    st.floats(1.0, 1e9),
    st.lists(
        st.tuples(
            st.one_of(st.floats(0.0, 1e9), st.just(float("inf"))), st.sampled_from([1.0, 0.5, 3.0])
        ),
        min_size=1,
        max_size=40,
    ),
)
def test_the_level_is_that_of_max_min_fairness(
    capacity: float, wants: list[tuple[float, float]]
) -> None:
    """All is given away, or all wants are met; a flow below the level wants no more."""
    ceilings = [ceiling for ceiling, _ in wants]
    level = water_level(capacity, ceilings, [weight for _, weight in wants])
    given_away = sum(min(ceiling, weight * level) for ceiling, weight in wants)
    if level == float("inf"):
        assert sum(ceilings) <= capacity * (1 + 1e-9)
    else:
        assert given_away == pytest.approx(capacity, rel=1e-6)
