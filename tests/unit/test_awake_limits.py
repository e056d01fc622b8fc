"""Limits whose ticks only measure take turns, and all others are ticked when they are due."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from drld.awake_limits import IN_TURN
from drld.policy import Mode

from ..engine_fakes import Bench
from ..factories import TICK_NS, limit_spec, limiter_spec

MANY = 3 * IN_TURN


def in_use(
    allocator: str = "static", peers: Sequence[str] = (), mode: Mode = Mode.ENFORCE
) -> Bench:
    """Many limits, each with a packet in each interval until the third one."""
    limits = [
        limit_spec(allocator, id=number, name=f"limit{number}", mode=mode)
        for number in range(1, MANY + 1)
    ]
    bench = Bench(limiter_spec(*limits, peers=peers))
    for number in range(1, 4):
        all_get_a_packet(bench)
        bench.run(number, number)
    return bench


def all_get_a_packet(bench: Bench) -> None:
    for limit_id in range(1, MANY + 1):
        bench.packet(limit_id)


@pytest.mark.parametrize("peers", [(), ("b",)])
def test_a_look_ticks_so_many_limits_and_each_has_its_turn(peers: Sequence[str]) -> None:
    bench = in_use(peers=peers)
    turns = []
    for number in range(4, 7):
        all_get_a_packet(bench)
        turns.append(bench.run(number, number))
    assert [len(names) for names in turns] == [IN_TURN] * 3
    assert len({name for names in turns for name in names}) == MANY


def test_a_turn_measures_the_time_since_the_last_one() -> None:
    bench = in_use()
    for number in range(4, 10):
        all_get_a_packet(bench)
        ticks = bench.engine.tick(number * TICK_NS)
    for _, tick in ticks:
        assert (tick.measurement.interval_ns, tick.measurement.arrived_items) == (3 * TICK_NS, 3)


def test_limits_without_traffic_leave_the_queue() -> None:
    bench = in_use()
    bench.run(4, 100)
    assert bench.run(101, 110) == []
    bench.packet(7)
    assert bench.run(111, 111) == ["limit7"]


def test_a_limit_whose_totals_a_peer_asks_for_does_not_wait_for_its_turn() -> None:
    bench = in_use(peers=["b"])
    for number in range(4, 9):
        all_get_a_packet(bench)
        bench.engine.counted(9, number * TICK_NS)
        assert "limit9" in bench.run(number, number)


def test_a_limit_that_is_watched_does_not_wait_for_its_turn() -> None:
    bench = in_use()
    for number in range(4, 9):
        all_get_a_packet(bench)
        names = [name for name, _ in bench.engine.tick(number * TICK_NS, ["limit9"])]
        assert "limit9" in names
        assert len(names) <= IN_TURN + 1


@pytest.mark.parametrize(("allocator", "mode"), [("gtb", Mode.ENFORCE), ("static", Mode.SHADOW)])
def test_all_are_ticked_at_each_look_where_records_or_suggestions_depend_on_it(
    allocator: str, mode: Mode
) -> None:
    bench = in_use(allocator, mode=mode)
    for number in range(4, 7):
        all_get_a_packet(bench)
        assert len(bench.run(number, number)) == MANY
