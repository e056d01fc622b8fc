"""Flows that come and go over many limiters."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from drld.errors import ConfigError
from testbed.churn import ChurnTable, lives
from testbed.run_bounds import refuse
from tests.testbed_factories import experiment

S = 1_000_000_000


def churn(**changes: Any) -> dict[str, Any]:
    return {
        "limiters": 40, "most": 5, "every": "100ms", "life": "2s", "rtt": "40ms", **changes,
    }  # fmt: skip


def test_one_flow_starts_at_a_time_at_limiters_at_random() -> None:
    when = lives(ChurnTable.model_validate(churn()), seed=1)
    assert sorted(life for all_lives in when.values() for life in all_lives) == [
        (number * S // 10, number * S // 10 + 2 * S)
        for number in range(sum(map(len, when.values())))
    ]
    counts = [len(when.get(f"l{number}", [])) for number in range(1, 41)]
    assert set(counts) == set(range(6))
    assert when != lives(ChurnTable.model_validate(churn()), seed=2)


def test_as_many_flows_live_as_in_the_paper() -> None:
    """490 limiters have 1,249 flows there, and so many here but for chance: sqrt(490 x 35/12)."""
    when = lives(ChurnTable.model_validate(churn(limiters=490)), seed=1)
    assert sum(map(len, when.values())) == pytest.approx(490 * 2.5, abs=3 * 38)


def test_each_limiter_has_a_group_of_flows_that_live_their_time() -> None:
    made = experiment(flows=[], churn=churn(), seconds=10)
    assert made.limiters == tuple(f"l{number}" for number in range(1, 41))
    rng = Random(1)
    flows = [flow for group in made.groups for flow in made.flows(group, rng)]
    assert {flow.limiter for flow in flows} <= set(made.limiters)
    for flow in flows:
        assert flow.end_ns == min(flow.start_ns // (S // 10) * (S // 10) + 2 * S, 10 * S)
    again = experiment(flows=[], churn=churn(), seconds=10)
    assert [group.lives_ns for group in again.groups] == [group.lives_ns for group in made.groups]


def test_a_filled_run_begins_with_as_many_flows_as_it_goes_on_with() -> None:
    """A run like one that began a life ago: as many flows live at any time."""
    later, filled = (
        sorted(life for some in lives(ChurnTable.model_validate(table), seed=1).values()
               for life in some)
        for table in (churn(), churn(fill="500ms"))
    )  # fmt: skip
    assert sorted(end for _, end in filled) == [end - 2 * S for _, end in later if end > 2 * S]
    assert [start for start, _ in filled if start >= S] == [
        start - 2 * S for start, _ in later if start >= 3 * S
    ]
    for time in range(S // 2, filled[-1][0], S // 10):
        assert sum(start <= time < end for start, end in filled) == pytest.approx(20, abs=1)


def test_other_flows_may_run_beside() -> None:
    made = experiment(churn=churn())
    assert made.limiters == tuple(f"l{number}" for number in range(1, 41))
    assert [group.name for group in made.groups[:2]] == ["f1", "f2"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"limiters": 20_000, "most": 6}, "churn.most: times the limiters may be 100000 flows"),
        ({"every": "0s"}, "churn.every: must not be zero"),
        ({"life": "0s"}, "churn.life: must not be zero"),
        ({"most": 0}, "churn.most: must be at least 1 (got 0)"),
        ({"fill": "2s"}, "churn.fill: must be shorter than a `life`"),
    ],
)
def test_mistakes_are_named(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        experiment(churn=churn(**changes))
    assert any(problem in line for line in raised.value.problems), raised.value.problems


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"churn": churn(limiters=251)}, "limiters: more than 250"),
        ({"gossip": {"jitter": "5ms"}}, "gossip.jitter: only the simulator has it"),
        ({"gossip": {"duplicate": 0.1}}, "gossip.duplicate: only the simulator has it"),
        ({"allocators": ["ctb", "bc-pqp"]}, "allocators: only the simulator has bc-pqp"),
    ],
)
def test_the_testbed_refuses_features_of_the_simulator_alone(
    changes: dict[str, Any], problem: str
) -> None:
    refuse(experiment())
    with pytest.raises(ConfigError) as raised:
        refuse(experiment(**changes))
    assert [line for line in raised.value.problems if problem in line]
