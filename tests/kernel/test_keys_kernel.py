"""Three daemons that share a key, and what replays, another key and a change of keys do to them."""

from __future__ import annotations

import base64
import contextlib
import os
import random
import select
import socket
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from drld.gossip.fabrics import FABRICS

from .daemon_host import SHARED, DaemonHost
from .topology import SO_RCVBUFFORCE, Topology, wait_for

ADDRESSES = {f"lim{number}": f"127.0.0.{number}" for number in (1, 2, 3)}
PORT = 7946
ETH_P_ALL = 3
PACKET_OUTGOING = 4
UDP_CHECKSUM = slice(26, 28)
REPLAYED, FIRST = 30, 10
"""Datagrams of each limiter to each other one that are sent again, and those before them, of which
the receiver may have refused some because it did not know the session yet. All that a daemon gets
again, twice, are fewer than it refuses between two ticks: it takes more for a flood, and ignores
all updates."""

Fleet = dict[str, DaemonHost]


@pytest.fixture
def fleet(topology: Topology, tmp_path: Path) -> Iterator[Fleet]:
    """Daemons of three limiters, not yet configured."""
    made = {
        name: DaemonHost(topology.names["limiter"], tmp_path, name, "kernel") for name in ADDRESSES
    }
    yield made
    for daemon in made.values():
        daemon.close()


def write_key(path: Path) -> Path:
    path.write_bytes(base64.b64encode(os.urandom(32)))
    path.chmod(0o600)
    return path


def configure(daemon: DaemonHost, *gossip: str) -> None:
    daemon.configure(
        {"customer-a": SHARED},
        listen=f"{ADDRESSES[daemon.name]}:{PORT}",
        peers={
            name: f"{address}:{PORT}" for name, address in ADDRESSES.items() if name != daemon.name
        },
        gossip=gossip,
    )


def entry(key_id: int, file: Path) -> str:
    return f'{{ id = {key_id}, file = "{file}" }}'


def all_connected(daemon: DaemonHost) -> bool:
    status = wait_for(
        lambda: daemon.get("/v1/status"), lambda status: status["peers"]["connected"] == 2
    )
    return bool(status["peers"]["connected"] == 2)


def start(fleet: Fleet) -> None:
    for daemon in fleet.values():
        daemon.start()
    for daemon in fleet.values():
        assert all_connected(daemon), daemon.log


def gossip(daemon: DaemonHost) -> Any:
    return daemon.get("/v1/status")["gossip"]


def gossip_until(daemon: DaemonHost, done: Callable[[Any], bool]) -> Any:
    """The report on gossip, once it is so."""
    report = wait_for(lambda: gossip(daemon), done)
    assert done(report), (report, daemon.log)
    return report


def refused(daemon: DaemonHost, reason: str, at_least: int) -> Any:
    """The report once so much has been refused for this reason."""
    return gossip_until(daemon, lambda report: report["rejected"].get(reason, 0) >= at_least)


def met(daemon: DaemonHost, times: int) -> Any:
    """The report once it has had so many sessions."""
    return gossip_until(daemon, lambda report: report["sessions"] == times)


def heard(daemon: DaemonHost, updates: int) -> Any:
    """The report once so many more updates have come."""
    before = gossip(daemon)["received"]
    return gossip_until(daemon, lambda report: report["received"] > before + updates)


@contextlib.contextmanager
def recording(topology: Topology) -> Iterator[socket.socket]:
    """Sees what crosses the loopback interface."""

    def make() -> socket.socket:
        made = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
        made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 4 << 20)
        made.bind(("lo", ETH_P_ALL))
        return made

    with topology.within("limiter", make) as made:
        yield made


def recorded(link: socket.socket) -> list[bytes]:
    """The gossip that has been seen since the last call."""
    packets = []
    while select.select([link], [], [], 0)[0]:
        packet, origin = link.recvfrom(65536)
        port = int.from_bytes(packet[22:24], "big")
        if origin[2] == PACKET_OUTGOING and (packet[9], port) == (socket.IPPROTO_UDP, PORT):
            packets.append(packet)
    return packets


def replay(topology: Topology, packets: list[bytes]) -> None:
    """Send them again as they were, from where they were sent."""

    def make() -> socket.socket:
        return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)

    with topology.within("limiter", make) as raw:
        for packet in packets:
            sent = bytearray(packet)
            sent[UDP_CHECKSUM] = bytes(2)
            raw.sendto(sent, (socket.inet_ntoa(packet[16:20]), 0))


def ends(packet: bytes) -> tuple[str, str]:
    return socket.inet_ntoa(packet[12:16]), socket.inet_ntoa(packet[16:20])


def is_update(packet: bytes) -> bool:
    return packet[28] & 15 in {fabric.kind for fabric in FABRICS.values()}


def test_recorded_datagrams_of_a_former_life_change_nothing(
    topology: Topology, fleet: Fleet, tmp_path: Path
) -> None:
    key = write_key(tmp_path / "fleet.key")
    for daemon in fleet.values():
        configure(daemon, f"keys = [{entry(1, key)}]")
    restarted = fleet["lim2"]
    with recording(topology) as link:
        start(fleet)
        ways: defaultdict[tuple[str, str], list[bytes]] = defaultdict(list)

        def seen() -> list[int]:
            for packet in recorded(link):
                ways[ends(packet)].append(packet)
            return [len(packets) for packets in ways.values()]

        wait_for(seen, lambda counts: len(counts) == 6 and min(counts) >= FIRST + REPLAYED)
        restarted.kill()
        seen()
        restarted.start()
        for daemon in fleet.values():
            met(daemon, 2 if daemon is restarted else 3)
            assert all_connected(daemon)
        old = [packet for packets in ways.values() for packet in packets[-REPLAYED:]]
        # Those that were sent while it was dead belong to its old sessions as well.
        old += [packet for packet in recorded(link) if is_update(packet)][:10]
    shuffled = old[:]
    random.Random(1).shuffle(shuffled)
    before = {name: daemon.get("/v1/peers") for name, daemon in fleet.items()}
    tags = {name: gossip(daemon)["rejected"].get("tag", 0) for name, daemon in fleet.items()}
    replay(topology, old + shuffled)

    address = ADDRESSES["lim2"]
    foreign = Counter(
        ends(packet)[1] for packet in old if address in ends(packet) and is_update(packet)
    )
    # Between the two that went on it was the present session: all of it had come before.
    present = Counter(
        ends(packet)[1] for packet in old if address not in ends(packet) and is_update(packet)
    )
    for name, daemon in fleet.items():
        expected = tags[name] + 2 * foreign[ADDRESSES[name]]
        report = refused(daemon, "tag", expected)
        if name != "lim2":
            assert present[ADDRESSES[name]] > REPLAYED / 2
            report = refused(daemon, "replayed", 2 * present[ADDRESSES[name]])
        # Late: control messages from before the window, as many have come since on a slow host.
        assert set(report["rejected"]) <= {"tag", "session", "replayed", "late"}
        assert report["sessions"] == (2 if name == "lim2" else 3)
        assert all_connected(daemon), daemon.log
        peers = {peer["name"]: peer for peer in daemon.get("/v1/peers")}
        for peer in before[name]:
            assert peers[peer["name"]]["lost"] == peer["lost"]
            assert peers[peer["name"]]["late"] == peer["late"]
        in_force = wait_for(
            lambda: daemon.limit("customer-a")["limit_in_force_bps"],  # noqa: B023 -- called at once
            lambda bps: bps == 10_000_000,
        )
        assert in_force == 10_000_000


def test_a_daemon_with_another_key_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    key, other = write_key(tmp_path / "fleet.key"), write_key(tmp_path / "other.key")
    for name, daemon in fleet.items():
        configure(daemon, f"keys = [{entry(1, other if name == 'lim3' else key)}]")
        daemon.start()
    for name in ("lim1", "lim2"):
        assert set(refused(fleet[name], "tag", 10)["rejected"]) <= {"tag", "session"}
        heard(fleet[name], 40)
        assert not fleet[name].get("/v1/peers")[1]["connected"]
        like_minded = ["lim2" if name == "lim1" else "lim1"]
        limit = wait_for(
            partial(fleet[name].limit, "customer-a"),
            lambda limit: limit["fleet"]["connected"] == like_minded,  # noqa: B023 -- called at once
        )
        assert limit["fleet"]["connected"] == like_minded
        assert len(fleet[name].log.splitlines()) < 10
    assert fleet["lim3"].get("/v1/status")["peers"]["connected"] == 0
    shown = {name: daemon.ctl("keys", "list").stdout for name, daemon in fleet.items()}
    assert shown["lim1"] == shown["lim2"] != shown["lim3"]


def test_keys_are_changed_without_a_lost_update(fleet: Fleet, tmp_path: Path) -> None:
    """Keys are changed by drlctl, and then again by the file."""
    old, new = write_key(tmp_path / "old.key"), write_key(tmp_path / "new.key")
    for daemon in fleet.values():
        configure(daemon, f"keys = [{entry(1, old)}]")
    start(fleet)
    by_hand, *others = fleet.values()

    def all_hear() -> None:
        """Wait until each daemon has read all datagrams of before the last step."""
        for daemon in fleet.values():
            heard(daemon, 1)

    for arguments in (("install", "2", str(new)), ("use", "2"), ("remove", "1")):
        by_hand.ctl("keys", *arguments)
        body = {"key": new.read_text()} if arguments[0] == "install" else None
        for daemon in others:
            daemon.post(f"/v1/keys/{arguments[1]}/{arguments[0]}", body)
        all_hear()
    assert not by_hand.get("/v1/keys")["as_configured"]
    # A reload of what the file has said all the time does not bring the old key back.
    by_hand.post("/v1/reload")
    assert [key["id"] for key in by_hand.get("/v1/keys")["keys"]] == [2]
    for lines in (
        (f"keys = [{entry(2, new)}, {entry(3, old)}]", "use = 2"),
        (f"keys = [{entry(2, new)}, {entry(3, old)}]", "use = 3"),
        (f"keys = [{entry(3, old)}]",),
    ):
        for daemon in fleet.values():
            configure(daemon, *lines)
            daemon.post("/v1/reload")
        all_hear()
    for daemon in fleet.values():
        keys = daemon.get("/v1/keys")
        assert (keys["use"], keys["as_configured"]) == (3, True)
        report = heard(daemon, 20)
        assert report["rejected"].keys() <= {"session"}
        assert report["sessions"] == 2
        assert all_connected(daemon), daemon.log
        for peer in daemon.get("/v1/peers"):
            assert (peer["lost"], peer["rejected"]) == (0, 0)
        for file in (old, new):
            assert file.read_text() not in daemon.log
