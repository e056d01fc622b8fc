"""`drlctl replay`: limits of a daemon, of a file and of two options, for one capture."""

from __future__ import annotations

import builtins
import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.drlctl import drlctl, invoke, lines, refused
from tests.unit.cli.test_explain import NO_CAPTURE

SIZE = 1000


def packet(flow: int) -> bytes:
    head = struct.pack("!BBHHHBBH", 0x45, 0, SIZE, 0, 0, 64, 17, 0)
    return head + bytes([10, 0, 0, 1, 10, 9, 2, 1]) + struct.pack("!HH", 1000 + flow, 53) + bytes(4)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """20 packets at once, 10 of them a second later, and an ARP."""
    content = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 101)
    for number in range(31):
        data = packet(number % 3 == 0) if number < 30 else b"\0"
        content += struct.pack("<IIII", 7 + (number >= 20), 0, len(data), SIZE) + data
    path = tmp_path / "trace.pcap"
    path.write_bytes(content)
    return path


FILE = """
[limiter]
name = "lim1"
listen = "10.0.0.1:7946"

[[limit]]
id = 1
name = "dns"
rate = "20kbit"
burst = "5kB"
match = { out = "eth1", protocol = "udp" }

[[limit]]
id = 2
name = "web"
rate = "10mbit"
mode = "shadow"
match = { out = "eth1", protocol = "tcp" }
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "drld.toml"
    path.write_text(FILE)
    return path


def test_the_limits_may_be_those_of_a_file(trace: Path, file: Path) -> None:
    result = invoke("replay", trace, "out", "eth1", "--config", file)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == lines("""
        31 packets in 1.00 s, 1 of them not IP
        LIMIT  MODE            RATE    BURST  PACKETS  ARRIVED  FORWARDED  DROPPED  MARKED    WORST SECOND
        dns    enforce  20.0 kbit/s  5.00 kB       30  30.0 kB    7.00 kB  23.0 kB     0 B  15.0 kB at 0 s
        web    shadow   10.0 Mbit/s   312 kB        0      0 B        0 B      0 B     0 B               -

        FLOWS OF dns                     ARRIVED  FORWARDED  SHARE
        udp 10.0.0.1:1000 > 10.9.2.1:53  20.0 kB    4.00 kB  57.1%
        udp 10.0.0.1:1001 > 10.9.2.1:53  10.0 kB    3.00 kB  42.9%
    """)  # noqa: E501 -- as wide as it is


def test_two_options_are_a_limit(trace: Path) -> None:
    answer = json.loads(
        invoke("replay", trace, "--rate", "20kbit", "--burst", "5kB", "--json").stdout
    )
    assert answer["trace"] == {
        "packets": 31,
        "not_ip": 1,
        "back_in_time": 0,
        "s": 1.0,
        "damage": None,
    }
    (it,) = answer["limits"]
    assert (it["limit"], it["forwarded_packets"], it["dropped_packets"]) == ("all", 7, 23)
    assert it["worst_second"] == {
        "at_s": 0,
        "arrived_bytes": 20_000,
        "forwarded_bytes": 5000,
        "dropped_bytes": 15_000,
    }
    assert it["spans"] == [[20_000, 5000, 15_000], [10_000, 2000, 8000]]
    fair = invoke("replay", trace, "--rate", "20kbit", "--burst", "5kB", "--allocator", "fair")
    assert fair.exit_code == 0


async def test_the_limits_may_be_those_of_the_daemon(control: Path, trace: Path) -> None:
    result = await drlctl(control, "replay", trace, "out", "eth1", "--json")
    (it,) = json.loads(result.stdout)["limits"]
    assert (it["limit"], it["arrived_packets"]) == ("customer-a", 30)


def test_a_bad_rate_names_the_key(trace: Path) -> None:
    said = refused(invoke("replay", trace, "--rate", "1"))
    assert said.startswith("drlctl: options: limit[0].rate: must be ")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--burst", "5kB"], "--burst is for the limit of --rate: give both"),
        (["out", "eth1", "--rate", "1mbit"], "--rate is one limit for all"),
    ],
)
def test_wrong_usage_is_explained(trace: Path, options: list[str], said: str) -> None:
    result = invoke("replay", trace, *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_unreadable_captures_are_refused(trace: Path, file: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.pcap"
    bad.write_bytes(b"none")
    assert refused(invoke("replay", bad, "--rate", "1mbit")) == (f"drlctl: {bad}: {NO_CAPTURE}\n")
    # A pipe can be read once, and each plane looks at the file.
    pipe = tmp_path / "pipe.pcap"
    os.mkfifo(pipe)
    with pipe.open("rb+", buffering=0):
        said = refused(invoke("replay", pipe, "--rate", "1mbit"))
    assert said == f"drlctl: {pipe}: File or stream is not seekable.\n"
    assert "packet: must have each of" in refused(
        invoke("replay", trace, "over", "eth1", "--config", file)
    )
    assert "size: must be left out" in refused(
        invoke("replay", trace, "size", "1", "--config", file)
    )


def test_a_damaged_capture_is_replayed_up_to_there(trace: Path) -> None:
    whole = trace.read_bytes()
    for content, said in (
        (whole[:-1], "30 packets in 1.00 s, 0 of them not IP\n"),
        (whole + b"\xff" * 16, "31 packets in 1.00 s, 1 of them not IP\n"),
    ):
        trace.write_bytes(content)
        result = invoke("replay", trace, "--rate", "1mbit")
        assert result.exit_code == 1
        assert result.stdout.startswith(said)
        assert result.stderr.startswith(f"drlctl: {trace}: the capture ")
        report = json.loads(invoke("replay", trace, "--rate", "1mbit", "--json").stdout)
        assert f"{trace}: {report['trace']['damage']}" in result.stderr


def test_packets_that_go_back_in_time_are_counted(trace: Path) -> None:
    records = trace.read_bytes()[24:]
    trace.write_bytes(trace.read_bytes() + records)
    said = invoke("replay", trace, "--rate", "1mbit").stdout
    assert said.splitlines()[1].startswith("20 of them go back in time: ")


def test_the_plot_is_an_image(trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image

    plot = tmp_path / "trace.png"
    invoke("replay", trace, "--rate", "20kbit", "--plot", plot)
    with Image.open(plot) as drawn:
        drawn.verify()
    missing = tmp_path / "none" / "a.png"
    said = refused(invoke("replay", trace, "--rate", "20kbit", "--plot", missing))
    assert "No such file or directory" in said
    importing = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "matplotlib":
            raise ImportError(name)
        return importing(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    said = refused(invoke("replay", trace, "--rate", "20kbit", "--plot", plot))
    assert said == "drlctl: --plot needs matplotlib: install python3-matplotlib\n"
