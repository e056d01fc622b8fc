"""Fleets of replicated buckets: clocks, losses, returns, garbage, and the bound."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.harness.case import case_of
from testbed.requests.case import Case
from testbed.requests.fleet import MS
from testbed.requests.run import Run, carry_out
from testbed.requests.series import RequestSeries
from testbed.requests.workload import DATA_SETS, Request, recorded, requests

S = 1000 * MS
SMALL = Case("substantial", ("ledger-slack",), capacity=40, rate=4, per_s=10, nodes=5)


def traffic(case: Case, seed: int = 1) -> list[Request]:
    return requests(case, seed)


def run(case: Case, bucket: str, data: list[Request] | None = None) -> Run:
    found = Run(case, bucket, 1)
    found.carry_out(traffic(case) if data is None else data)
    return found


def changed(**values: Any) -> Case:
    return replace(SMALL, **values)


@pytest.mark.parametrize("bucket", ["ledger", "ledger-slack"])
def test_a_clock_an_hour_off_changes_no_decision(bucket: str) -> None:
    right, ahead, behind = (
        run(changed(skewed_s=skewed_s, delay_ms=20, jitter_ms=40), bucket)
        for skewed_s in (0, 3600, -600)
    )
    assert right.decisions == ahead.decisions == behind.decisions
    assert right.fleet.bytes_sent == ahead.fleet.bytes_sent


def test_a_clock_that_runs_too_fast_moves_a_level_by_what_it_gains() -> None:
    """One clock gains 5 % from the first request on: 3 s a minute, of 0.4 tokens a second."""
    right, fast = (run(changed(drift_ppm=ppm, delay_ms=20), "ledger-slack") for ppm in (0, 50_000))
    assert abs(fast.admitted - right.admitted) <= 1 + 0.4 * 3
    assert fast.fleet.local_ns(0) - fast.fleet.local_ns(1) > 2.5 * S
    assert float(fast.excess) <= 1 + 0.4 * 3


@pytest.mark.parametrize("bucket", ["counter", "ledger", "ledger-slack"])
@pytest.mark.parametrize(
    "change",
    [
        {}, {"nodes": 3}, {"interval_ms": 1000}, {"delay_ms": 500, "jitter_ms": 500},
        {"loss": 0.4, "duplicate": 0.3, "jitter_ms": 900}, {"cut": (1000, 31_000)},
        {"restart_ms": 12_000}, {"restart_ms": 12_000, "copies": False, "loss": 0.3},
    ],
    ids=lambda change: " ".join(change) or "none",
)  # fmt: skip
def test_the_excess_is_at_most_what_was_not_known(bucket: str, change: dict[str, Any]) -> None:
    """The bound of docs/replicated-buckets.md, whatever the paths do."""
    found = run(changed(**change), bucket)
    assert found.knowledge is not None
    assert found.excess > 0 or bucket == "ledger-slack"
    assert found.excess <= found.knowledge.unknown


def test_unknown_tokens_are_as_old_as_the_news() -> None:
    """Two limiters that never hear of each other: one's tokens, and the time since the first."""
    case = changed(nodes=2, cut=(1, 100_000))
    data = [Request(1000 + 10 * number, 0, number % 2) for number in range(20)]
    found = run(case, "ledger-slack", data)
    assert found.knowledge is not None
    assert (found.knowledge.unknown, found.knowledge.age_ms) == (10, 190)


def test_returning_limiters_learn_all_or_stay_behind() -> None:
    case = changed(rate=1, per_s=1000, restart_ms=12_000)
    told, unnoticed = (
        run(replace(case, copies=copies), "ledger-slack") for copies in (True, False)
    )
    assert told.caught_up_ms is not None
    assert unnoticed.caught_up_ms is None or unnoticed.caught_up_ms > told.caught_up_ms
    assert told.excess < unnoticed.excess


def test_a_queue_with_elements_that_die_before_their_round_limits_nothing() -> None:
    """Data set E: an element lives 10 ms, and a round comes each 300 ms."""
    case = changed(data="high-rate", capacity=100, rate=100, per_s=1, nodes=30)
    data = [request for request in traffic(case) if request.at_ms < 1000]
    for bucket in ("queue", "queue-prompt"):
        assert run(case, bucket, data).rejected == []
    assert len(data) > 4 * run(case, "counter", data).central_admitted


def test_with_a_safe_margin_the_queue_refuses_users_just_above_the_rate() -> None:
    """Data set D, a round each 900 ms: section 5.4 proposes the margin."""
    case = changed(data="just-above", capacity=5, rate=1, per_s=1, nodes=15, interval_ms=900)
    plain, safe = (run(case, bucket) for bucket in ("queue", "queue-safe"))
    assert plain.excess > 2 > safe.excess
    assert len(plain.rejected) < len(safe.rejected) <= len(safe.central_rejected) == 8


def test_news_are_as_old_as_losses_and_repetitions_make_them() -> None:
    """Six losses in a row are one of 15,000 at a loss of 0.2; a repetition takes T and N rounds."""
    case = changed(loss=0.2, repeat_ms=600, delay_ms=20)
    found = run(case, "ledger-slack")
    assert found.knowledge is not None
    rounds_ms = case.nodes * case.interval_ms
    # What does not matter waits for N rounds and one before it is told at all.
    most_ms = rounds_ms + case.interval_ms + 20 + 5 * (600 + rounds_ms)
    assert 20 <= found.knowledge.age_ms <= most_ms


def test_a_wrong_clock_changes_the_queues_decisions() -> None:
    right, wrong = (run(changed(skewed_s=skewed_s), "queue") for skewed_s in (0, 3600))
    assert right.decisions != wrong.decisions


def test_with_instant_paths_slack_admits_nothing_too_much() -> None:
    for seed in range(3):
        found = Run(SMALL, "ledger-slack", seed)
        found.carry_out(traffic(SMALL, seed))
        assert found.excess == 0
        assert len(found.rejected) == len(found.central_rejected)


def test_with_delay_the_excess_is_the_tokens_under_way() -> None:
    """One token each at most, or what is admitted within a delay (docs/replicated-buckets.md)."""
    case = changed(delay_ms=50)
    data = traffic(case)
    most = max(sum(0 <= other.at_ms - one.at_ms <= case.delay_ms for other in data) for one in data)
    found = run(case, "ledger-slack", data)
    assert found.excess <= case.nodes * max(1, most)


def test_all_requests_of_one_millisecond_count() -> None:
    """Six at each of five limiters, and a minute later thirty at each; c = 40."""
    case = changed(rate=1, per_s=1000)
    data = [
        Request(at_ms, 0, node)
        for at_ms, count in ((0, 6), (60_000, 30)) for node in range(5) for _ in range(count)
    ]  # fmt: skip
    admitted = {
        bucket: run(case, bucket, data).admitted for bucket in ("queue", "ledger", "ledger-slack")
    }
    # The queue takes the first thirty for six, the ledger knows them all, and slack also tells the
    # others within the second millisecond.
    assert admitted == {"queue": 30 + 5 * 30, "ledger": 30 + 5 * 10, "ledger-slack": 40}


@pytest.mark.parametrize("bucket", ["ledger", "ledger-slack", "counter"])
def test_all_agree_in_spite_of_lost_repeated_and_reordered_messages(bucket: str) -> None:
    case = changed(delay_ms=20, jitter_ms=900, loss=0.4, duplicate=0.2, repeat_ms=600)
    found = run(case, bucket)
    now_ns = found.fleet.clock.now_ns
    entries = [sorted(one.everything().items()) for one in found.fleet.buckets(0)]
    assert len(entries) == case.nodes
    assert found.fleet.settled
    assert all(one == entries[0] for one in entries)
    assert max(b.level(now_ns) for b in found.fleet.buckets(0)) <= case.capacity + float(
        found.excess
    )


def test_without_acknowledgements_a_lost_message_is_lost() -> None:
    found = run(changed(loss=0.4), "ledger-slack")
    assert len({len(one.everything()) for one in found.fleet.buckets(0)}) > 1


def test_a_limiter_that_returns_learns_everything_from_its_peers() -> None:
    case = changed(rate=1, per_s=1000)
    found = Run(case, "ledger-slack", 1)
    found.carry_out([Request(number, 0, number % 5) for number in range(60)])
    fleet = found.fleet
    assert found.admitted == 40
    fleet.down.add(0)
    fleet.restart(0)
    assert fleet.take(0, 0), "it knows nothing yet"
    fleet.clock.run(fleet.clock.now_ns + 2 * S)
    assert not fleet.take(0, 0)
    assert fleet.replicas[0].buckets[0].level(fleet.local_ns(0)) > 40


def test_a_cut_fleet_admits_one_capacity_for_each_side_at_most_and_then_agrees() -> None:
    case = changed(nodes=6, cut=(1000, 31_000), repeat_ms=600)
    found = run(case, "ledger-slack")
    assert 0 < found.excess <= case.capacity + case.rate_s * 60
    levels = [one.everything() for one in found.fleet.buckets(0)]
    assert all(one == levels[0] for one in levels)


def test_drained_keys_leave_and_nothing_is_lost() -> None:
    case = changed(capacity=5, rate=1, per_s=1, interval_ms=300)
    data = [Request(number * 20, number, number % 5) for number in range(100)]
    found = run(case, "ledger-slack", data)
    fleet = found.fleet
    assert fleet.settled
    assert all(len(replica.buckets) == 100 for replica in fleet.replicas)
    fleet.clock.run(fleet.clock.now_ns + 10 * S)
    for number, replica in enumerate(fleet.replicas):
        replica.collect(fleet.local_ns(number))
        assert not replica.buckets


COUNTS = {
    "ten-users": 68.3 * 300, "extreme": 21.5 * 300, "substantial": 3.2 * 300,
    "barely": 1.1 * 300, "not-limited": 35, "just-above": 112, "high-rate": 60_000,
    "slow-then-burst": 600, "many-keys": 600, "steady": 600, "one-millisecond": 600,
}  # fmt: skip
"""Requests of all data sets but `many-users`, which has 200,000; `high-rate` lasts as long as its
case, here 60 s."""


@pytest.mark.parametrize("name", COUNTS)
def test_data_sets_are_those_of_the_text(name: str) -> None:
    assert set(DATA_SETS) == {*COUNTS, "many-users"}
    capacity, rate_s = {
        "just-above": (5, 1.0), "high-rate": (100, 100.0), "slow-then-burst": (100, 100.0),
    }.get(name, (300, 0.3))  # fmt: skip
    case = Case(name, ("counter",), capacity=capacity, rate=round(10 * rate_s), seconds=60, load=10)
    data = requests(case, 1)
    assert [one.at_ms for one in data] == sorted(one.at_ms for one in data)
    assert len(data) == round(COUNTS[name])
    assert 15 < len({one.node for one in data}) <= case.nodes


def test_a_recorded_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "requests.json"
    rows = [{"user_id": "b" * 32, "time": 1700}, {"user_id": "a" * 32, "time": 1500}]
    file.write_text(json.dumps(rows), encoding="utf-8")
    assert [(one.at_ms, one.user) for one in recorded(file, 1, 30)] == [(0, 0), (200, 1)]


def test_a_run_is_reproducible_from_its_definition() -> None:
    series = RequestSeries("one", changed(repeat=1))
    definition = json.loads(json.dumps(series.header(False, {})["definition"]))
    assert case_of(Case, definition) == series.load(False)
    first, second = (carry_out(definition, "ledger-slack", 1) for _ in range(2))
    del first["resident"], second["resident"]
    assert first == second
    assert first["rejected"] == first["central"]
    assert first["excess"] == 0
