"""`drlctl explain`: of a daemon's limits and of a file's, for a packet and for a capture."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from random import Random

import pytest

from drld import config
from drld.capture.plane import packets
from drld.daemon.limit_report import explainer
from drld.engine import Engine
from drld.model import FlowKey
from drld.planes.explanation import Explanation
from tests.control_fake import FakeDaemon, client
from tests.engine_fakes import FakeDatapath, FakeTransport
from tests.fuzz.targets.capture import pcap
from tests.unit.cli.drlctl import drlctl, invoke, lines, output, refused

FILE = """
[limiter]
name = "lim1"
listen = "10.0.0.1:7946"

[[limit]]
id = 1
name = "site"
rate = "10mbit"
burst = "2000B"
allocator = "ctb"
match = { out = "eth1" }

[[limit]]
id = 2
name = "web"
rate = "1mbit"
mode = "shadow"
match = { in = "eth0", destination = "10.9.2.0/24", protocol = "tcp", destination_port = 80 }

[[limit]]
id = 3
name = "after"
rate = "1mbit"
match = { out = "eth1", destination = "10.9.0.0/16" }
"""
PACKET = "tcp 10.0.0.1:1234 > 10.9.2.3:80 in eth0 out eth1 size 900"
FLOW = FlowKey(6, bytes([10, 0, 0, 1]), bytes([10, 9, 2, 3]), 1234, 80)
NO_CAPTURE = (
    "must be a capture (pcap or pcapng), or a log of requests (JSON lines or an access log)"
)
SENT_AT_ONCE = 2
HEADERS = bytes.fromhex("450001900000000040060000 0a0000010a090203 04d20050")


@pytest.fixture(autouse=True)
def engine(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> FakeDatapath:
    datapath = FakeDatapath()
    running = Engine(config.parse(FILE, "f"), [packets(datapath)], FakeTransport(), Random(1))
    running.start(0)
    monkeypatch.setattr(daemon, "explainer", partial(explainer, running, lambda: 0))
    return datapath


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "drld.toml"
    path.write_text(FILE)
    return path


async def test_limits_are_listed_in_the_order_in_which_the_packet_meets_them(
    control: Path, engine: FakeDatapath
) -> None:
    for _ in range(SENT_AT_ONCE):
        engine.policers[1].police(FLOW, 900, 0, Random(1))
    assert await output(control, "explain", PACKET) == lines("""
        tcp 10.0.0.1:1234 > 10.9.2.3:80 in eth0 out eth1 size 900
        LIMIT  MODE     VERDICT      WHY                                                    BUCKET    DEPTH  FAIR RATE
        web    shadow   forwarded    the bucket holds 31.2 kB, and the packet needs 900 B  31.2 kB  31.2 kB          -
        site   enforce  dropped      the bucket holds 200 B, and the packet needs 900 B      200 B  2.00 kB          -
        after  enforce  not checked  not checked: site drops the packet before                   -        -          -
        now: dropped by site
    """)  # noqa: E501 -- as wide as it is
    assert engine.policers[1].bucket.tokens == 200


async def test_the_first_criterion_that_fails(control: Path) -> None:
    said = await output(control, "explain", *PACKET.replace("10.9.2.3:80", "10.8.2.3:81").split())
    assert "web    shadow   -          destination: 10.8.2.3 is not in 10.9.2.0/24 " in said
    assert said.endswith("now: forwarded\n")
    said = await output(control, "explain", "udp 10.0.0.1:1 > 10.9.2.3:80 in eth0")
    assert "web    shadow   -        protocol: udp is not tcp " in said
    assert "site   enforce  -        out eth1: the packet crosses in eth0 " in said


async def test_json_has_the_packet_the_verdict_and_each_limit(control: Path) -> None:
    answer = json.loads(await output(control, "explain", PACKET, "--json"))
    assert (answer["item"], answer["verdict"], answer["by"]) == (PACKET, "forward", None)
    assert [row["limit"] for row in answer["limits"]] == ["web", "site", "after"]
    assert answer["limits"][0]["fill_rate_bps"] == 1_000_000
    assert answer["limits"][1]["tokens_bytes"] == 2000


async def test_a_limit_in_shadow_mode_says_what_it_would_do(
    control: Path, engine: FakeDatapath
) -> None:
    engine.policers[2].police(FLOW, 31_250, 0, Random(1))
    said = await output(control, "explain", PACKET)
    assert "shadow mode; it would be dropped: the bucket holds 0 B, and the packet needs" in said


async def test_a_packet_in_hexadecimal_may_be_longer_than_the_name_of_a_file(control: Path) -> None:
    said = await output(control, "explain", (HEADERS + bytes(376)).hex(), "out", "eth1")
    assert "now: forwarded" in said


async def test_a_bad_packet_or_file_is_named(
    control: Path, daemon: FakeDaemon, tmp_path: Path
) -> None:
    result = await drlctl(control, "explain", "tcp", "10.0.0.1")
    said = refused(result)
    assert said.startswith('drlctl: packet: must be one such as "tcp 10.0.0.1:1234 > 10.9.2.3:80')
    assert "a request must be" not in said
    assert "a message must be" not in said
    (tmp_path / "file").write_bytes(b"no capture")
    result = await drlctl(control, "explain", tmp_path / "file")
    assert refused(result) == f"drlctl: {tmp_path}/file: {NO_CAPTURE}\n"
    said = refused(invoke("explain", tmp_path / "none.pcap", "out", "eth1"))
    assert said == f"drlctl: {tmp_path}/none.pcap: No such file or directory\n"
    (tmp_path / "bad.toml").write_text("")
    said = refused(invoke("explain", PACKET, "--config", tmp_path / "none.toml"))
    assert said == f"drlctl: {tmp_path}/none.toml: No such file or directory\n"


def trace(path: Path) -> Path:
    other = HEADERS[:16] + bytes([10, 8, 0, 1]) + HEADERS[20:]
    short, arp = HEADERS[:22], b""
    path.write_bytes(pcap("<", 0xA1B2C3D4, 101, [HEADERS, HEADERS, other, short, arp]))
    return path


def test_a_capture_is_summed_by_verdict_and_limits(file: Path, tmp_path: Path) -> None:
    """The limits are those of a file, without a daemon."""
    args = ("explain", trace(tmp_path / "trace.pcap"), "out", "eth1", "--config", file)
    assert invoke(*args).stdout == lines("""
        VERDICT    LIMIT        COUNT
        forwarded  site, after      3
        forwarded  site             1
        forwarded  -                1
        1: It counts as malformed: the packet ends inside its headers.
        1: No limit sees it.
    """)
    answers = [json.loads(line) for line in invoke(*args, "--json").stdout.splitlines()]
    assert [answer["t"] for answer in answers] == [0, 1.000001, 2.000002, 3.000003, 4.000004]
    assert answers[0]["item"] == "tcp 10.0.0.1:1234 > 10.9.2.3:80 out eth1 size 24"
    assert [[row["limit"] for row in answer["limits"]] for answer in answers] == [
        ["site", "after"],
        ["site", "after"],
        ["site"],
        ["site", "after"],
        [],
    ]


def test_a_capture_that_was_cut_off_is_explained_up_to_there(file: Path, tmp_path: Path) -> None:
    path = trace(tmp_path / "trace.pcap")
    path.write_bytes(path.read_bytes()[:-17])
    args = ("explain", path, "out", "eth1", "--config", file)
    for options, shown in (((), "forwarded  site, after      2\n"), (("--json",), '"t": 2.0')):
        result = invoke(*args, *options)
        assert (result.exit_code, result.stderr) == (
            1,
            f"drlctl: {path}: the capture ends inside a packet\n",
        )
        assert shown in result.stdout


async def test_a_capture_asks_the_daemon_once_for_packets_alike(
    control: Path, daemon: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    made = daemon.explainer

    def noted(*, misses: bool) -> Callable[[str], Iterable[Explanation]]:
        answer = made(misses=misses)

        def explain(item: str) -> Iterable[Explanation]:
            asked.append(item)
            return answer(item)

        return explain

    monkeypatch.setattr(daemon, "explainer", noted)
    await output(control, "explain", trace(tmp_path / "trace.pcap"), "out", "eth1", "mark", "1")
    assert len(asked) == 3
    assert all(item.endswith("out eth1 mark 1") for item in asked)


async def test_several_items_are_explained_at_once(control: Path) -> None:
    """Each item has the limits that it falls under; a bad item spoils no other."""
    items = [PACKET, "tcp", "igmp 1.1.1.1 > 2.2.2.2"]
    async with client(control) as api:
        found = (await api.post("/v1/explain", json={"items": items})).json()
        assert (await api.post("/v1/explain", json={"items": []})).json() == []
        others: list[object] = [{}, [], {"items": [1]}, {"items": "tcp"}]
        for body in others:
            refusal = await api.post("/v1/explain", json=body)
            assert refusal.status_code == 422
            assert refusal.json() == {"error": 'the body must be {"items": ["..."]}'}
    assert [row["limit"] for row in found[0]] == ["web", "site", "after"]
    assert found[1]["error"].startswith("packet: must be one such as ")
    assert [row["limit"] for row in found[2]] == ["site"]


async def test_a_large_capture_is_explained_by_several_questions(
    control: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers that are kept and the bytes that are read at once are bounded, too."""
    for name, value in (("_AT_ONCE", 7), ("_KEPT", 20), ("_BODY_BYTES", 300)):
        monkeypatch.setattr(sys.modules["drld.cli.explain"], name, value)
    frames = [HEADERS[:20] + number.to_bytes(2, "big") + HEADERS[22:] for number in range(50)]
    path = tmp_path / "trace.pcap"
    path.write_bytes(pcap("<", 0xA1B2C3D4, 101, [*frames, b"", *frames]))
    said = await output(control, "explain", path, "out", "eth1", "--json")
    answers = [json.loads(line) for line in said.splitlines()]
    assert [it["item"] and it["item"].split()[1].split(":")[1] for it in answers] == [
        *map(str, range(50)), None, *map(str, range(50)),
    ]  # fmt: skip


def test_a_pattern_matches_the_interface_that_a_packet_crosses(tmp_path: Path, file: Path) -> None:
    file.write_text(FILE.replace('match = { out = "eth1" }', 'match = { out = "eth*" }'))
    said = invoke("explain", PACKET, "--config", file).stdout
    assert "site   enforce  forwarded  the bucket holds 2.00 kB" in said
    said = invoke("explain", PACKET.replace("eth1", "wg0"), "--config", file).stdout
    assert "site   enforce  -          out eth*: the packet crosses in eth0, out wg0" in said
    # Without a word where it crosses, a packet meets a limit once, at its pattern or at a name.
    content = trace(tmp_path / "trace.pcap")
    answer = json.loads(invoke("replay", content, "--config", file, "--json").stdout)
    arrived = {it["limit"]: it["arrived_packets"] for it in answer["limits"]}
    assert arrived == {"site": 4, "web": 2, "after": 3}
