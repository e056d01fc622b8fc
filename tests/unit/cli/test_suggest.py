"""`drlctl limit suggest`, and `replay --suggest`: what people see, and what a daemon remembers."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path
from random import Random

import httpx
import pytest

from drld.capture.plane import packets
from drld.capture.spec import match_of
from drld.control.schema.limits import SuggestionReport
from drld.daemon.limit_report import suggestion
from drld.engine import Engine
from drld.model import NS_PER_S
from drld.police.policer import police
from drld.policy import Keyed, Mode
from drld.spec import LimiterSpec, LimitSpec
from tests.control_fake import FakeDaemon, client
from tests.engine_fakes import FakeDatapath, FakeTransport
from tests.factories import TICK_NS, flow, limit_spec, limiter_spec, with_policy
from tests.unit.cli.drlctl import drlctl, invoke, lines, output, refused

FOUND = SuggestionReport(
    limit="customer-a",
    unit="bytes",
    rate_bps=10_960_000,
    burst_bytes=75_300,
    part=0.99,
    seconds=3600,
    seen_s=7500.0,
    interval_s=0.05,
)


async def test_the_suggestion_is_shown(control: Path, daemon: FakeDaemon) -> None:
    daemon.suggestion = FOUND
    assert await output(control, "limit", "suggest", "customer-a") == lines("""
        rate   11.0 Mbit/s: 0.99 of the 3600 seconds with traffic in 2h 05m had no more (in steps of 9 %)
        burst  75.3 kB: with this rate and burst nothing would have been dropped (counted every 50.0 ms)
        set    drlctl limit set customer-a --rate 10.96mbit --burst 75.3kB
    """)  # noqa: E501 -- as wide as it is
    assert json.loads(
        await output(control, "limit", "suggest", "customer-a", "--part", "0.9", "--json")
    ) == {**FOUND, "part": 0.9}


async def test_another_unit_has_no_command(control: Path, daemon: FakeDaemon) -> None:
    daemon.suggestion = SuggestionReport(**{**FOUND, "unit": "calls"})
    said = await output(control, "limit", "suggest", "customer-a")
    assert "75.3 k calls: with this rate" in said
    assert "set " not in said


async def test_too_little_traffic_gives_no_suggestion(control: Path, daemon: FakeDaemon) -> None:
    said = refused(await drlctl(control, "limit", "suggest", "customer-a", "--part", "0.999"))
    assert said == (
        "drlctl: the daemon refuses: too little was seen of limit customer-a in mode shadow: a "
        "suggestion for 0.999 of the seconds needs at least 1000 seconds with traffic, and this "
        "limiter has seen 7; to begin: drlctl limit shadow customer-a\n"
    )
    for report in daemon.reports:
        report["mode"] = "shadow"
    said = refused(await drlctl(control, "limit", "suggest", "customer-a"))
    assert said.endswith("limiter has seen 7; ask again later\n")
    said = refused(await drlctl(control, "limit", "suggest", "none"))
    assert "no limit is named" in said


async def test_a_bucket_for_each_key_gives_no_suggestion(control: Path, daemon: FakeDaemon) -> None:
    daemon.suggestion = None
    said = refused(await drlctl(control, "limit", "suggest", "customer-a"))
    assert said.endswith("a bucket for each key: what single keys need is not known\n")


@pytest.mark.parametrize("part", ["0.4", "1", "nan", "x"])
async def test_parts_out_of_bounds_are_refused(control: Path, part: str) -> None:
    async with client(control) as asking:
        answer: httpx.Response = await asking.get(f"/v1/limits/b/suggestion?part={part}")
    assert answer.status_code == 422
    assert answer.json() == {"error": "part: must be a number from 0.5 to 0.9999"}


class Traffic:
    """An engine alone, and its limits under traffic."""

    def __init__(self, *limits: LimitSpec) -> None:
        self.datapath = FakeDatapath()
        self.spec: LimiterSpec = limiter_spec(*limits, peers=())
        self.engine = Engine(self.spec, [packets(self.datapath)], FakeTransport(), Random(1))
        self.engine.start(0)
        self.now_ns = 0

    def seconds(self, count: int, size: int) -> None:
        """A packet of this size at the middle of each tick."""
        for _ in range(count * NS_PER_S // TICK_NS):
            if size:
                at_ns = self.now_ns + TICK_NS // 2
                police([self.datapath.policers[1]], flow(1), size, at_ns, Random(1))
            self.now_ns += TICK_NS
            self.engine.tick(self.now_ns)


def test_a_daemon_remembers_what_arrived_in_shadow_mode() -> None:
    spec = with_policy(limit_spec("static"), rate=10_000, burst=1500, mode=Mode.SHADOW)
    traffic = Traffic(spec)
    managed = traffic.engine.limits[1]
    traffic.seconds(5, 0)
    assert managed.profile is None
    traffic.seconds(60, 1000)
    traffic.seconds(20, 0)
    traffic.seconds(60, 1000)
    found = suggestion(managed, 0.99)
    assert found is not None
    assert not isinstance(found, int)
    assert (found["seconds"], round(found["seen_s"])) == (120, 140)
    assert 160_000 <= found["rate_bps"] <= 160_000 * 1.1
    assert found["burst_bytes"] == 2000

    # A changed rate keeps the profile; another target begins a new one.
    traffic.engine.reconfigure(
        replace(traffic.spec, limits=(with_policy(spec, rate=20_000),)), traffic.now_ns
    )
    assert suggestion(traffic.engine.limits[1], 0.99) == found
    other = replace(spec, match=replace(match_of(spec), protocol=17))
    traffic.engine.reconfigure(replace(traffic.spec, limits=(other,)), traffic.now_ns)
    assert suggestion(traffic.engine.limits[1], 0.99) == 0
    traffic.seconds(99, 1000)
    assert suggestion(traffic.engine.limits[1], 0.99) == 99

    # Senders that a limit slows down do not show what they need.
    traffic.seconds(2, 1000)
    assert not isinstance(suggestion(traffic.engine.limits[1], 0.99), int)
    traffic.engine.reconfigure(
        replace(traffic.spec, limits=(with_policy(other, mode=Mode.ENFORCE),)), traffic.now_ns
    )
    traffic.seconds(101, 1000)
    assert traffic.engine.limits[1].profile is None


def test_the_sum_of_all_keys_is_not_suggested_for_each() -> None:
    spec = with_policy(
        limit_spec("static"), rate=10_000, burst=1500, mode=Mode.SHADOW, keyed=Keyed("ledger", 9)
    )
    traffic = Traffic(spec)
    traffic.seconds(120, 1000)
    assert suggestion(traffic.engine.limits[1], 0.99) is None


def test_replay_suggests_nothing_for_each_key(tmp_path: Path) -> None:
    (tmp_path / "f.toml").write_text(
        """
limit = [{ id = 1, name = "user", rate = "9/s", match = { namespace = "api", per = "user" } }]
[limiter]
name = "a"
listen = "127.0.0.1:7946"
[requests]
listen = "127.0.0.1:8099"
"""
    )
    line = '{"t": %d, "namespace": "api", "descriptor": {"user": "u%d"}}\n'
    (tmp_path / "log.jsonl").write_text("".join(line % (t, u) for t in range(150) for u in (1, 2)))
    result = invoke(
        *("replay", tmp_path / "log.jsonl", "--config", tmp_path / "f.toml", "--suggest")
    )
    assert result.stdout.endswith(
        "user: no suggestion: it has a bucket for each key, and what single keys need is not "
        "known\n"
    )


def test_replay_suggests(tmp_path: Path) -> None:
    head = struct.pack("!BBHHHBBH", 0x45, 0, 1000, 0, 0, 64, 47, 0) + bytes(8)
    for seconds in (99, 130):
        content = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 40, 101)
        for number in range(seconds * 10):
            content += struct.pack("<IIII", number // 10, number % 10 * 100_000, 20, 1000) + head
        (tmp_path / "trace.pcap").write_bytes(content)
        said = invoke("replay", tmp_path / "trace.pcap", "--rate", "10kbit", "--suggest").stdout
        if seconds < 100:
            assert (
                "\nall: too few seconds with traffic for a suggestion: 100 needed, 98 seen\n"
                in said
            )
        else:
            assert said.endswith("\nset    drlctl limit set all --rate 80kbit --burst 1.5kB\n")
