"""Experiments: what a file may say, and what is made of it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from drld.errors import ConfigError
from testbed.experiment_file import EXPERIMENTS, build, find, load
from tests.testbed_factories import document, experiment


def problems_of(changed: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        build(changed, "small.toml")
    return raised.value.problems


@pytest.mark.parametrize("path", sorted(EXPERIMENTS.glob("*.toml")), ids=lambda path: path.stem)
def test_experiments_that_come_with_the_testbed_load(path: Path) -> None:
    assert load(path).table.name == path.stem


def test_the_baseline_is_that_of_the_paper() -> None:
    baseline = load(find("baseline"))
    assert baseline.table.limit.rate * 8 == 10_000_000
    assert baseline.table.limit.burst == 75_000
    assert baseline.table.limit.ewma == 0.1
    assert baseline.table.gossip.interval == 50_000_000
    assert baseline.table.gossip.rtt == 40_000_000
    assert [(group.limiter, group.table.count, group.table.rtt) for group in baseline.groups] == [
        ("l1", 3, 40_000_000),
        ("l2", 7, 40_000_000),
    ]
    assert baseline.table.seconds == 60
    assert baseline.table.repeat == 10


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"seconds": 0}, "seconds: must be above 0 (got 0)"),
        ({"secnds": 3}, 'secnds: unknown key; did you mean "seconds"?'),
        ({"seconds": 4.1}, "seconds: must be a multiple of 0.2 (got 4.1)"),
        ({"warmup": "4s"}, "warmup: leaves nothing of the 4 seconds to measure"),
        ({"warmup": "1.1s"}, "warmup: must be a multiple of 200ms"),
        ({"warmup": 2}, 'warmup: must be a duration such as "50ms"'),
        ({"allocators": ["wfq"]}, "allocators[0]: must be one of ctb, static, gtb"),
        ({"allocators": []}, "allocators: "),
        ({"limit": {"rate": "10", "burst": "75kB"}}, "limit.rate: must be a rate such as"),
        ({"gossip": {"loss": 1.0}}, "gossip.loss: must be below 1 (got 1.0)"),
        (
            {"limit": {"rate": "1mbit", "burst": "75kB", "shares": {"l1": 1.0}}},
            "limit.shares: needs a share for each of l1, l2",
        ),
        (
            {"limit": {"rate": "1mbit", "burst": "75kB", "weights": {"l3": 2.0}}},
            "limit.weights: must be one of l1, l2 (got 'l3')",
        ),
        (
            {"limit": {"rate": "1mbit", "burst": "75kB", "parameters": {"fps": {"depht": 1}}}},
            "limit.parameters.fps.depht: unknown key",
        ),
        ({"limiters": ["l1"]}, "flows[1].limiter: must be one of l1 (got 'l2')"),
        (
            {"limit": {"rate": "1mbit", "burst": "9kB", "on_failure": "x"}},
            "limit.on_failure: must be 'share', 'open' or 'closed' (got 'x')",
        ),
    ],
)
def test_a_mistake_is_named_with_its_key(changes: dict[str, Any], problem: str) -> None:
    assert [line for line in problems_of(document(**changes)) if f"small.toml: {problem}" in line]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"count": 0}, "flows[0].count: must be at least 1 (got 0)"),
        ({"limiter": "L1"}, "flows[0].limiter: must be a name of up to 11 characters"),
        ({"limiter": "a-name-too-long"}, "flows[0].limiter: must be a name of up to 11 characters"),
        ({"name": "out"}, "flows[0].name: must be a name that is not taken (got 'out')"),
        ({"name": "f2"}, "flows[1].name: must be a name that is not taken (got 'f2')"),
        ({"start": "2s", "end": "1s"}, "flows[0].end: not after the start"),
        ({"period": "1s"}, "flows[0].period: needs an `end`"),
        ({"start": "1s", "end": "3s", "period": "1s"}, "flows[0].period: needs an `end`"),
        ({"queue": "15kB"}, "flows[0].queue: means nothing without a `rate`"),
        ({"loss": -0.1}, "flows[0].loss: must be at least 0 (got -0.1)"),
        ({"egress": True}, 'flows[0].egress: needs `rtt = "0s"`, and neither'),
        ({"egress": True, "rtt": "0s", "gso": True}, "flows[0].egress: needs"),
    ],
)
def test_a_mistake_in_a_group_is_named_with_its_key(changes: dict[str, Any], problem: str) -> None:
    changed = document()
    changed["flows"][0] = {**changed["flows"][0], **changes}
    assert [line for line in problems_of(changed) if f"small.toml: {problem}" in line]


def test_all_mistakes_are_reported_at_once() -> None:
    assert len(problems_of(document(seconds=-1, warmup="x", seed=-1))) == 3


def test_overrides_and_settings_replace_keys_and_stay_in_the_definition(tmp_path: Path) -> None:
    file = tmp_path / "e.toml"
    file.write_text((EXPERIMENTS / "baseline.toml").read_text())
    loaded = load(
        file, {"seconds": 20.0}, ["gossip.interval=500ms", "limit.parameters.fps.headroom=0.3"]
    )
    assert loaded.table.seconds == 20
    assert loaded.table.gossip.interval == 500_000_000
    assert loaded.definition["gossip"]["interval"] == "500ms"
    assert loaded.definition["limit"]["parameters"] == {"fps": {"headroom": 0.3}}


@pytest.mark.parametrize("setting", ["gossip.interval", "=1", "gossip..x=1", "name.x=1"])
def test_a_malformed_setting_is_refused(setting: str) -> None:
    with pytest.raises(ConfigError, match=r"."):
        load(find("baseline"), {}, [setting])


def test_a_file_that_cannot_be_read_is_one_problem(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "none.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("name = ")
    with pytest.raises(ConfigError, match="not TOML"):
        load(broken)


def test_flows_start_over_the_time_that_their_group_takes() -> None:
    flows = [{"limiter": "l1", "count": 200, "rtt": "1ms", "start": "1s", "spread": "2s"}]
    wide = experiment(flows=flows)
    starts = [flow.start_ns for flow in wide.flows(wide.groups[0], random.Random(1))]
    assert min(starts) >= 1_000_000_000
    assert 2_500_000_000 < max(starts) < 3_000_000_000


def test_a_group_that_starts_over_no_time_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"flows\[0\].spread"):
        experiment(flows=[{"limiter": "l1", "count": 1, "rtt": "1ms", "spread": "0s"}])


def test_flows_start_within_the_jitter_and_the_same_for_the_same_seed() -> None:
    small = experiment()
    group = small.groups[1]
    flows = small.flows(group, random.Random(5))
    assert flows == small.flows(group, random.Random(5))
    assert flows != small.flows(group, random.Random(6))
    assert [flow.id for flow in flows] == ["f2.1", "f2.2"]
    assert all(0 <= flow.start_ns < 20_000_000 for flow in flows)
    assert {flow.end_ns for flow in flows} == {small.duration_ns}


def test_flows_come_and_go_every_period_until_the_end() -> None:
    joining = {
        "limiter": "l1", "count": 1, "rtt": "40ms", "start": "1s", "end": "3s", "period": "4s",
    }  # fmt: skip
    small = experiment(seconds=10, flows=[joining])
    flows = small.flows(small.groups[0], random.Random(1))
    assert [flow.id for flow in flows] == ["f1.1-1", "f1.1-2", "f1.1-3"]
    assert [flow.end_ns // 10**9 for flow in flows] == [3, 7, 10]
    assert [flow.start_ns // 10**9 for flow in flows] == [1, 5, 9]


def test_flows_that_would_start_after_the_end_do_not_exist() -> None:
    small = experiment(flows=[{"limiter": "l1", "count": 1, "rtt": "0ms", "start": "4s"}])
    assert small.flows(small.groups[0], random.Random(1)) == []


def test_limiters_are_those_of_the_flows_unless_listed() -> None:
    assert experiment().limiters == ("l1", "l2")
    assert experiment(limiters=["l2", "idle", "l1"]).limiters == ("l2", "idle", "l1")


@pytest.mark.parametrize(
    ("events", "problem"),
    [
        ([{"flows": "f9", "rate": "1mbit"}], "events[0].flows: must be one of f1, f2 (got 'f9')"),
        (
            [{"flows": "f1", "rate": "fast"}],
            'events[0].rate: must be a rate such as "2mbit", or "none" for no limit',
        ),
        ([{"flows": "f1"}], "events[0].rate: goes with `flows`"),
        ([{"limit": "5mbit", "rate": "1mbit"}], "events[0].rate: goes with `flows`"),
        ([{"flows": "f1", "rate": "none", "queue": "9kB"}], "events[0].queue: means nothing"),
        ([{}], "events[0]: exactly one of flows, limit, kill, start, and not 0"),
        ([{"limit": "5mbit", "kill": "l1"}], "events[0]: exactly one of"),
        ([{"limit": "none"}], "events[0].limit: must be a rate such as"),
        ([{"kill": "l9"}], "events[0].kill: must be one of l1, l2"),
        ([{"start": "l1"}], "events[0].start: l1 was not killed at 1 s"),
        ([{"kill": "l1"}, {"kill": "l1"}], "events[0].kill: l1 is dead already at 1 s"),
        ([{"kill": "l1", "period": "1s"}], "events[0].kill: l1 is dead already at 2 s"),
        (
            [{"limit": "5mbit", "period": "0s"}],
            "events[0].period: must be longer than nothing (got '0s')",
        ),
    ],
)
def test_a_mistake_in_an_event_is_named_with_its_key(
    events: list[dict[str, Any]], problem: str
) -> None:
    changed = document(allocators=["fps"], events=[{"at": "1s", **event} for event in events])
    assert [line for line in problems_of(changed) if f"small.toml: {problem}" in line]


def test_a_central_limiter_is_none_of_those_that_can_be_killed() -> None:
    changed = document(events=[{"at": "1s", "kill": "l1"}])
    (problem,) = problems_of(changed)
    assert "small.toml: allocators: ctb has no limiter of those that `events` kill" in problem


def test_events_come_in_the_order_of_time_and_again_every_period() -> None:
    small = experiment(
        allocators=["fps"],
        events=[
            {"at": "2s", "period": "1.5s", "start": "l2"},
            {"at": "1s", "period": "1.5s", "kill": "l2"},
            {"at": "2.2s", "flows": "f1", "rate": "none"},
        ],
    )
    found = [(event.at_ns / 1e9, event.do.kill or event.do.start) for event in small.events]
    assert found == [(1.0, "l2"), (2.0, "l2"), (2.2, None), (2.5, "l2"), (3.5, "l2")]


def test_no_bottleneck_changes_where_there_is_no_path() -> None:
    flows = [
        {"limiter": "l1", "count": 1, "rtt": "0s", "egress": True},
        {"limiter": "l2", "count": 1, "rtt": "0s"},
    ]
    with pytest.raises(ConfigError, match=r"events\[0\]\.flows: must be one of f2 \(got 'f1'\)"):
        build(document(flows=flows, events=[{"at": "1s", "flows": "f1", "rate": "1mbit"}]), "x")
