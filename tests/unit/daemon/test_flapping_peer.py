"""A peer that flaps a thousand times, over UDP, and the log of a real daemon beside it."""

from __future__ import annotations

import json
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from drld import config
from drld.cli.client import Daemon, Refused
from drld.engine import Engine
from drld.gossip.transport import Transport
from drld.model import NS_PER_S
from drld.spec import LimiterSpec

ROOT = Path(__file__).resolve().parents[3]
LIVES = 500
"""Each begins and ends: the daemon sees a thousand changes."""
DEADLINE_S = 60.0


class Watched(NamedTuple):
    """A daemon, and the configuration of its peer."""

    process: subprocess.Popen[bytes]
    control: Daemon
    log: Path
    peer: LimiterSpec

    def verdict(self) -> str:
        (peer,) = self.control.get("/v1/peers")
        return str(peer["verdict"])


def configuration(directory: Path, own: str, other: str, ports: dict[str, int]) -> str:
    return f"""limit = []
[limiter]
name = "{own}"
listen = "127.0.0.1:{ports[own]}"
control = "{directory}/{own}.sock"
[gossip]
interval = "10ms"
[[peer]]
name = "{other}"
address = "127.0.0.1:{ports[other]}"
"""


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    ports = {}
    with socket.socket(type=socket.SOCK_DGRAM) as one, socket.socket(type=socket.SOCK_DGRAM) as two:
        for name, each in (("steady", one), ("flap", two)):
            each.bind(("127.0.0.1", 0))
            ports[name] = each.getsockname()[1]
    file, log = tmp_path / "steady.toml", tmp_path / "log"
    file.write_text(configuration(tmp_path, "steady", "flap", ports))
    peer = config.parse(configuration(tmp_path, "flap", "steady", ports), "flap.toml")
    command = [sys.executable, "-m", "drld", "--config", str(file), "--log-format", "json"]
    with log.open("wb") as stream, subprocess.Popen(command, stderr=stream, cwd=ROOT) as process:
        found = Watched(process, Daemon(str(tmp_path / "steady.sock")), log, peer)
        try:
            wait_until_it_answers(found)
            yield found
        finally:
            process.kill()


def wait_until_it_answers(watched: Watched) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            assert watched.verdict() == "unknown"
            return
        except Refused:
            assert time.monotonic() < deadline
            assert watched.process.poll() is None


def live(watched: Watched, number: int) -> None:
    """One life of the peer: it begins, has a session, is seen alive, and says farewell."""
    peer, deadline = watched.peer, time.monotonic() + DEADLINE_S
    transport = Transport(peer.listen, peer.name, {it.name: it.address for it in peer.peers})
    engine = Engine(peer, [], transport, Random(number))
    try:
        engine.start(time.monotonic_ns())
        while not transport.met or watched.verdict() != "alive":
            assert time.monotonic() < deadline
            until_due_s = (engine.next_due_ns() - time.monotonic_ns()) / NS_PER_S
            select.select([transport._socket], [], [], max(until_due_s, 0.0))
            engine.tick(time.monotonic_ns(), ())
    finally:
        engine.stop()
    while watched.verdict() != "left":
        assert time.monotonic() < deadline


def test_a_peer_that_flaps_a_thousand_times_makes_few_lines_that_state_the_total(
    watched: Watched,
) -> None:
    for number in range(LIVES):
        live(watched, number)
    watched.process.send_signal(signal.SIGTERM)
    assert watched.process.wait() == 0
    lines = [json.loads(line) for line in watched.log.read_text().splitlines()]
    of_peer = [line for line in lines if line["event"] == "peer.state"]
    times = [datetime.fromisoformat(line["time"].replace("Z", "+00:00")) for line in of_peer]
    for begin in times:
        assert sum(begin <= at < begin + timedelta(minutes=1) for at in times) <= 20
    left_out = [re.search(r"left out before it: (\d+)", line["message"]) for line in of_peer]
    # The first life of a peer is no news. On a host that stands still it may also be found dead.
    assert len(of_peer) + sum(int(it[1]) for it in left_out if it) >= 2 * LIVES - 1
    assert of_peer[-1]["message"].startswith("peer flap has left")
