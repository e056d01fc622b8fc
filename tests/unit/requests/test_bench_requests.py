"""The contestants of `scripts/bench requests` refuse what is to be refused, and no more."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import ModuleType

import pytest

from drld.client.protocol.check_codec import (
    ADMITTED,
    answer_frame,
    answer_record,
    check_frames,
    record_of,
)
from drld.client.protocol.frame import MAX_CHECKS
from drld.client.protocol.model import Question
from drld.model import Enforcement
from drld.requests.spec import RequestMatch
from testbed.bench import report
from testbed.bench.registry import BENCHMARKS
from testbed.bench.requests import hammer, memory, open_loop, ticks
from testbed.bench.requests.contest import Entry, Scene, entries
from testbed.bench.requests.load import EMPTIED, Load, uniform, zipf
from testbed.bench.requests.rows import batches, full_load, half_load, lease, leased, singly

from ...fleets.requests import request_limit
from ..client.limiter import limiter
from .made import limited

KEYS = 300
CHEAP = [entry for entry in entries() if not entry.case.startswith("drld, ")]
"""A daemon takes a second to start, and other tests ask its front."""


@pytest.mark.parametrize("load", [uniform(5000), zipf(5000)], ids=lambda load: load.name)
def test_a_load_has_a_twentieth_to_be_refused_and_its_own_distribution(load: Load) -> None:
    asked = load.draw(Random(1), 4000)
    assert sum(it.emptied for it in asked) / 4000 == pytest.approx(0.05, abs=0.01)
    assert {it.cost for it in asked} == {1, 2, 3, 4, 5}
    assert all(0 <= it.key < 5000 for it in asked)
    keys = Counter(it.key for it in asked if not it.emptied)
    most = keys.most_common(1)[0]
    assert (most[1] < 10) if load.weights is None else (most[0] == EMPTIED and most[1] > 300)


def test_each_row_has_a_place_of_its_own() -> None:
    places = [(entry.group, entry.place) for entry in entries()]
    assert len({*places}) == len(places)
    groups = {group for group, _ in places}
    assert {(group, 0) for group in groups} <= {*places}, "each has one to compare with"


@pytest.mark.parametrize("entry", CHEAP, ids=lambda entry: entry.case)
def test_a_contestant_refuses_what_is_to_be_refused(tmp_path: Path, entry: Entry) -> None:
    asked = uniform(KEYS).draw(Random(2), 200)
    with entry.make(Scene(KEYS, tmp_path, 0)) as decide:
        result = decide(asked)
    assert result.refused == sum(it.emptied for it in asked) > 0
    assert result.seconds > 0


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize(
    "row", [batches, singly, lease, leased, half_load, full_load], ids=lambda row: row.ENTRY.case
)
def test_the_client_library_refuses_what_is_to_be_refused(
    tmp_path: Path, row: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The front is in this process; in the benchmark it is a daemon's."""
    emptied = RequestMatch("bench", {"emptied": "yes"})
    limits = (
        (request_limit(match=RequestMatch("bench")), Enforcement(depth=10**12)),
        (request_limit(id=2, name="emptied", match=emptied), Enforcement(depth=0)),
    )

    @contextmanager
    def in_process(scene: Scene, _: str) -> Iterator[str]:
        with limiter(scene.state / "socket", limited(*limits)) as (unix, _):
            yield unix

    monkeypatch.setattr(row, "limiter", in_process)
    monkeypatch.setattr(leased, "PROCESSES", 2)
    monkeypatch.setattr(leased, "REPEATED", 1)
    asked = uniform(KEYS).draw(Random(2), 200)
    with row.contestant(Scene(KEYS, tmp_path, 0)) as decide:
        result = decide(asked)
    expected = 0 if row in (lease, leased) else sum(it.emptied for it in asked)
    assert result.refused == expected
    assert result.seconds > 0
    assert len(result.latencies) == {singly: 200, half_load: 150, full_load: 200}.get(row, 0)
    assert len(result.control) == (150 if row is half_load else 0)
    assert (result.per_s is not None) == (row is half_load)


def test_a_question_is_asked_at_its_time_while_an_earlier_one_waits() -> None:
    """The server answers only when it has both, which a client that waits never sends."""
    ask = check_frames([(record_of(0, Question("bench"), b""), b"")])
    yes = answer_frame([(answer_record(0, ADMITTED, b"", granted=1), b"")])
    pairs = [socket.socketpair() for _ in range(2)]

    def serve() -> None:
        for _, server in pairs:
            server.recv(len(ask), socket.MSG_WAITALL)
        for _, server in pairs:
            server.sendall(yes)

    thread = threading.Thread(target=serve)
    thread.start()
    opened = [open_loop.Connection(client) for client, _ in pairs]
    result = open_loop.ask(opened, [ask, ask], [0.0, 0.02])
    thread.join()
    assert (result.refused, len(result.latencies)) == (0, 2)
    # The first waited for the second's time, and its latency has that.
    assert result.latencies[0] >= 0.02
    for client, server in pairs:
        client.close()
        server.close()


def test_arrivals_come_at_their_rate() -> None:
    times = open_loop.arrivals(Random(1), 10_000, 500.0)
    assert times == sorted(times)
    assert times[-1] == pytest.approx(20.0, rel=0.05)


def test_clients_that_keep_a_daemon_busy_count_answered_questions(tmp_path: Path) -> None:
    endless = request_limit(match=RequestMatch("bench")), Enforcement(depth=10**12)
    with limiter(tmp_path / "socket", limited(endless)) as (unix, tcp):
        assert hammer.batches(unix)(0.0) == hammer.CONNECTIONS * MAX_CHECKS
        assert hammer.calls(int(tcp.rpartition(":")[2]))(0.0) == hammer.CALLS


def test_a_tick_that_is_late_or_left_out_is_not_kept() -> None:
    idle = ticks.Window(run=20.0, late=0.0, core=0.1, decided=0.0)
    busy = ticks.Window(run=19.0, late=1.0, core=0.9, decided=100.0)
    found = {row.metric: row for row in ticks.rows_of("batches", [busy], [idle])}
    assert found[ticks.KEPT[0]].values[0] == pytest.approx(0.9)
    assert found[ticks.KEPT[0]].at_least == 0.99


def test_memory_is_weighed_of_all_keys_and_of_cells_of_all_limiters() -> None:
    found = memory.work(3000)
    assert found["rows"] == 3000
    assert found["cells"] > 0


def test_each_benchmark_has_its_section_of_a_page() -> None:
    host = {"model": "CPU", "processors": 2, "kernel": "6.1", "python": "3.11", "load": 0.5}
    benchmark = {"title": "of keys", "seconds": 1.0, "rows": [], "headline": "", "notes": []}
    result = {
        "taken": "2020-01-01", "quick": True, "host": host,
        "benchmarks": {"requests-memory": benchmark},
    }  # fmt: skip
    found = report.sections(report.REQUESTS, result)
    assert [*found] == ["requests-memory"]
    assert "of keys" in found["requests-memory"]


def test_a_page_drops_the_section_of_no_benchmark() -> None:
    pages = {name: it.page for name, it in BENCHMARKS.items() if it.page is not report.PAGE}
    assert {page.name for page in pages.values()} == {"requests", "hop"}
    for name, page in pages.items():
        assert f"<!-- {name} -->" in page.updated("", {name: "measured"})
