"""Web requests of the simulator: what a request takes, and that every byte of it comes."""

from __future__ import annotations

from random import Random
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.experiment import Experiment
from testbed.sim.download import Download
from testbed.sim.host import Host
from testbed.sim.run import simulate
from testbed.tcp.clock import Clock
from testbed.tcp.link import Link
from testbed.tcp.stream import SEGMENT_BYTES, Path

from ..examples import examples
from ..testbed_factories import experiment, web

MS = 1_000_000


class Gate:
    """A limiter that refuses the packets with these numbers."""

    def __init__(self, refuses: frozenset[int] = frozenset()) -> None:
        self.lengths: list[int] = []
        self._refuses = refuses

    def passes(self, _flow: object, length: int) -> bool:
        self.lengths.append(length)
        return len(self.lengths) - 1 not in self._refuses


class Fetch:
    """A request for an object, over a path of 40 ms."""

    def __init__(self, size: int, refuses: frozenset[int] = frozenset()) -> None:
        self.clock = Clock()
        self.gate = Gate(refuses)
        there, back = (Link(self.clock, 20 * MS, Random(seed)) for seed in (1, 2))
        path = Path(there, back, cast(Host, self.gate), phase_ns=0)
        self.counts: list[int] = []
        self.download = Download(
            self.clock, 1, path, size, lambda _, count: self.counts.append(count)
        )

    def took_ms(self, until_ms: int = 10_000_000) -> float | None:
        self.clock.run(until_ms * MS)
        end_ns = self.download.end_ns
        return None if end_ns is None else end_ns / MS


@pytest.mark.parametrize(
    ("size", "round_trips"),
    [
        (1, 2),  # the handshake, and the first window: a head and nine full packets
        (9 * SEGMENT_BYTES, 2),
        (9 * SEGMENT_BYTES + 1, 3),
        (29 * SEGMENT_BYTES, 3),
        (30 * SEGMENT_BYTES, 4),
    ],
)
def test_an_object_takes_the_time_of_its_round_trips(size: int, round_trips: int) -> None:
    fetch = Fetch(size)
    took = fetch.took_ms()
    assert took is not None
    assert 40 * round_trips <= took <= 40 * round_trips + 3
    assert fetch.download.received == sum(fetch.counts) == size
    full, rest = divmod(size, SEGMENT_BYTES)
    packets = [60, 212, *[1500] * full, *([52 + rest] if rest else []), 52]
    assert fetch.gate.lengths == packets


def test_a_refused_syn_ack_is_repeated_after_a_second() -> None:
    took = Fetch(1000, frozenset({0})).took_ms()
    assert took == pytest.approx(1000 + 80, abs=45)


@settings(max_examples=examples(80), deadline=None)
@given(st.integers(1, 60_000), st.frozensets(st.integers(0, 60), max_size=25))
def test_every_byte_arrives_whatever_packets_are_refused(
    size: int, refused: frozenset[int]
) -> None:
    fetch = Fetch(size, refused)
    assert fetch.took_ms() is not None
    assert fetch.download.received == sum(fetch.counts) == size


def test_a_broken_download_ends_soon() -> None:
    fetch = Fetch(10_000_000)
    fetch.clock.run(300 * MS)
    fetch.download.abort()
    fetch.clock.run(500 * MS)
    sent, received = len(fetch.gate.lengths), fetch.download.received
    assert fetch.took_ms() is None
    assert len(fetch.gate.lengths) == sent
    assert fetch.download.received == received > 0


def with_web(**changes: Any) -> Experiment:
    return experiment(web=[web(**changes)], **{"seconds": 6})


def test_an_open_loop_asks_at_the_planned_times() -> None:
    made = with_web(requests=50)
    planned = made.web[0].arrivals(made.duration_ns, 1001)
    record = simulate(made, "fps")
    rows = record["web"]["requests"]
    assert [row[1] for row in rows] == [round(one.start_ns / 1e9, 4) for one in planned]
    assert [row[2] for row in rows] == [one.size for one in planned]
    finished = [row for row in rows if row[4] is not None]
    assert len(finished) > 0.95 * len(rows)
    assert all(row[3] == row[2] for row in finished)
    assert all(row[4] - row[1] >= 0.04 for row in finished)
    assert record["web"]["goodput_bps"] > 1e6


def test_clients_of_a_closed_loop_ask_one_after_another() -> None:
    made = with_web(requests=None, concurrent=3, end="4s")
    record = simulate(made, "ctb")
    rows = record["web"]["requests"]
    assert all(row[1] <= 4 for row in rows)
    for when in (1.0, 2.0, 3.5):
        under_way = [row for row in rows if row[1] <= when < (row[4] or 4.0)]
        assert len(under_way) == 3
    assert sum(row[4] is None for row in rows) <= 3


def test_a_web_experiment_has_the_same_requests_for_every_allocator() -> None:
    made = with_web(requests=20)
    asked = [
        [row[:3] for row in simulate(made, allocator)["web"]["requests"]]
        for allocator in ("ctb", "fps")
    ]
    assert asked[0] == asked[1]
