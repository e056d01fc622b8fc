"""A limit on calls as people see it, beside one on packets: calls, neither bits nor bytes."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from drld import config, planes
from drld.capture.plane import packets
from drld.daemon.limit_report import limit_reports, ranks, trace_record
from drld.engine import Engine
from drld.model import FlowKey
from drld.planes.plane import Plane
from tests.control_fake import FakeDaemon
from tests.engine_fakes import FakeDatapath, FakeTransport
from tests.factories import TICK_NS
from tests.unit.cli.drlctl import lines, output
from tests.unit.config import calls
from tests.unit.config.calls.spec import ITEM, Calls

FILE = """
[limiter]
name = "lim1"
listen = "10.0.0.1:7946"

[[limit]]
id = 1
name = "web"
rate = "10mbit"
match = { out = "eth1" }

[[limit]]
id = 2
name = "logins"
rate = "50/s"
excess = "wait"
allocator = "ctb"
match = { service = "login" }
"""


@pytest.fixture(autouse=True)
def busy(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon of both planes, after a tick in which 20 calls came in place of the 12.5 allowed."""
    monkeypatch.setattr(planes, "PLANES", ("drld.capture", calls.__name__))
    policed = FakeDatapath()
    both = [packets(FakeDatapath()), Plane(Calls, policed)]
    engine = Engine(config.parse(FILE, "f"), both, FakeTransport(), Random(1))
    engine.start(0)
    for _ in range(20):
        policed.policers[2].police(FlowKey(0, b"", b"", 0, 0), ITEM, 0, Random(1))
    ticks = dict(engine.tick(TICK_NS))
    daemon.reports = list(limit_reports(engine, TICK_NS))
    monkeypatch.setattr(
        "tests.control_fake.record", lambda name, _: trace_record(name, ticks[name], 0)
    )
    daemon.ticks_for_readers = 1


async def test_each_limit_is_listed_in_its_own_unit(control: Path) -> None:
    assert await output(control, "limits") == lines("""
        NAME    ALLOCATOR  MODE     ID         RATE              BURST     IN FORCE       DEMAND  LOCAL LIMIT  DROP P  FLOWS  FORWARDED  DROPPED
        web     fair       enforce   1  10.0 Mbit/s      312 kB (auto)  10.0 Mbit/s      0 bit/s  10.0 Mbit/s   0.000      0        0 B      0 B
        logins  ctb        enforce   2   50 calls/s  12.5 calls (auto)   50 calls/s  400 calls/s   50 calls/s   0.000      1   12 calls  8 calls
    """)  # noqa: E501 -- as wide as it is


async def test_a_limit_on_calls_is_shown_in_calls(control: Path) -> None:
    assert await output(control, "limit", "show", "logins") == lines("""
        limit        logins (id 2), ctb, enforce, on failure default, excess wait
        rate         50 calls/s, burst 12.5 calls (auto), every 50.0 ms
        match        service login
        flow         caller
        in force     50 calls/s
        demand       400 calls/s, 1 flows sampled
        fleet        rate 400 calls/s here, 0 calls/s elsewhere (no limiter), age -
        local limit  50 calls/s
        enforcement  drop probability 0, fill 50 calls/s, depth 12.5 calls
        arrived      20 calls
        forwarded    12 calls
        dropped      8 calls
    """)


async def test_a_trace_is_in_calls(control: Path) -> None:
    _, line = (await output(control, "trace", "logins", "--count", 1)).splitlines()
    assert line.split("  ")[1:4] == ["400 calls/s", "240 calls/s", "160 calls/s"]


async def test_json_names_the_unit_beside_the_figures(control: Path) -> None:
    report = json.loads(await output(control, "limit", "show", "logins", "--json"))
    assert (report["unit"], report["items"], report["excess"]) == ("calls", "calls", "wait")
    assert (report["rate_bps"], report["arrived_bytes"], report["dropped_bytes"]) == (50, 20, 8)


async def test_metrics_of_each_limit_are_in_its_own_unit(control: Path) -> None:
    printed = (await output(control, "metrics")).splitlines()
    of_logins = [line for line in printed if 'limit="logins"' in line]
    assert 'drld_limit_rate_calls_per_second{limit="logins"} 50' in of_logins
    assert 'drld_limit_arrived_calls_total{limit="logins"} 20' in of_logins
    assert not [line for line in of_logins if "bytes" in line or "packets" in line]
    assert 'drld_limit_rate_bytes_per_second{limit="web"} 1250000' in printed
    heads = [line for line in printed if line.startswith("# TYPE")]
    assert len(heads) == len(set(heads))
    samples = json.loads(await output(control, "metrics", "--json"))
    assert len(samples) == len([line for line in printed if not line.startswith("#")])
    name, labels = "drld_limit_rate_bytes_per_second", {"limit": "web"}
    assert {"name": name, "labels": labels, "value": 1_250_000.0} in samples


async def test_limits_are_sorted_by_what_people_read() -> None:
    engine = Engine(
        config.parse(FILE, "f"), [packets(FakeDatapath()), Plane(Calls, FakeDatapath())],
        FakeTransport(), Random(1),
    )  # fmt: skip
    engine.start(0)
    assert [it.value for it in ranks(engine, "rate")] == [-10_000_000, -50]
    assert [it.value for it in ranks(engine, "name")] == ["web", "logins"]
    assert {it.value for it in ranks(engine, "demand")} == {0.0}
