"""Packets through the topology, and limits that let an exact number of them pass."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

import pytest

from drld.capture.spec import Match
from drld.model import NS_PER_S, Enforcement, Measurement
from drld.police.direction import Direction
from drld.spec import LimitSpec

from ..factories import limit_spec
from .remote import RemoteDatapath
from .topology import Topology

TCP_NUMBER, UDP_NUMBER = 6, 17
UNLIMITED = Enforcement()
NOTHING = Enforcement(drop_probability=1.0)
SINK = {4: "10.91.2.1", 6: "fd91:2::1"}
SINK_TOO = {4: "10.91.3.1", 6: "fd91:3::1"}
SOURCE = {4: "10.91.1.1", 6: "fd91:1::1"}
PAYLOAD = 100
LENGTH = {4: PAYLOAD + 28, 6: PAYLOAD + 48}
"""IP-layer bytes of a packet that `send_udp` sends."""

both_families = pytest.mark.parametrize("family", [4, 6])
both_directions = pytest.mark.parametrize("interface", ["in0", "out0"])


def only(packets: int, length: int = LENGTH[4]) -> Enforcement:
    """Let so many packets of so many bytes pass, ever."""
    return Enforcement(fill_rate=0, depth=packets * length)


def limit(
    limit_id: int,
    interface: str,
    destination: str | None = None,
    *,
    protocol: int | None = None,
    ports: tuple[tuple[int, int], ...] = (),
    mark: tuple[int, int] | None = None,
    **settings: Any,
) -> LimitSpec:
    """A limit on packets in at in0 or out at out0; `settings` are those of `LimitSpec`."""
    match = Match(
        interface,
        Direction.IN if interface.startswith("in") else Direction.OUT,
        destination=ip_network(destination) if destination else None,
        protocol=protocol,
        destination_ports=ports,
        mark=mark,
    )
    # A datapath takes its daemon for dead after 20 intervals: of 50 ms, a slow host takes longer.
    settings = {"interval_ns": 60 * NS_PER_S, **settings}
    return limit_spec(id=limit_id, name=f"limit-{limit_id}", match=match, **settings)


def send_udp(
    topology: Topology, destination: str, packets: int, *, payload: int = PAYLOAD, port: int = 9000
) -> None:
    family = 6 if ":" in destination else 4
    with topology.udp("source", SOURCE[family]) as sender:
        for _ in range(packets):
            sender.sendto(bytes(payload), (destination, port))


def ten_of_25_pass(topology: Topology, datapath: RemoteDatapath, family: int) -> Measurement:
    """The counts of limit 1, which lets ten packets to the sink pass: checked to the byte."""
    length = LENGTH[family]
    with topology.udp("sink", SINK[family], 9000) as sink, topology.capture() as capture:
        send_udp(topology, SINK[family], 25)
        total = datapath.wait(1, 25)
        assert len(capture.wait(10)) == 10
        assert len(sink.recv(2000)) == PAYLOAD
    assert (total.arrived_items, total.arrived_tokens) == (25, 25 * length)
    assert (total.forwarded_items, total.forwarded_tokens) == (10, 10 * length)
    assert (total.dropped_items, total.dropped_tokens) == (15, 15 * length)
    return total
