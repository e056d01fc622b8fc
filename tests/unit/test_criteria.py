"""Why a packet does not fall under a limit, as `drlctl explain` says it."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

import pytest

from drld.capture.criteria import first_miss
from drld.capture.notation import read
from drld.capture.spec import Match
from drld.police.direction import Direction

TCP = "tcp 10.0.0.1:1234 > 10.9.2.3:80"
CUT_OFF = "45000190000000004006000000000000"
"""A packet whose bytes end within its addresses."""
WITHOUT_PORTS = "450001900000000040060000 0a0000010a090203"
"""A TCP packet whose bytes end with its addresses."""
LATER_FRAGMENT = "450001900000001040060000 0a0000010a090203 04d20050"


@pytest.mark.parametrize(
    ("packet", "wanted", "why"),
    [
        (f"{TCP} in eth1 out eth2", {}, "in eth0: the packet crosses in eth1, out eth2"),
        (TCP, {"source": ip_network("10.1.0.0/16")}, "source: 10.0.0.1 is not in 10.1.0.0/16"),
        (TCP, {"destination": ip_network("fd00::/8")}, "destination: the packet is IPv4"),
        (
            CUT_OFF,
            {"source": ip_network("10.0.0.0/8")},
            "source: the addresses are unknown (the bytes copied end inside the headers)",
        ),
        (CUT_OFF, {"protocol": 6}, "protocol: a packet without a protocol is not tcp"),
        (TCP, {"protocol": 17}, "protocol: tcp is not udp"),
        (TCP, {"source_ports": ((1, 9), (443, 443))}, "source_port: 1234 is not in 1-9, 443"),
        (
            WITHOUT_PORTS,
            {"destination_ports": ((80, 80),)},
            "destination_port: the ports are unknown (the bytes copied end inside the headers)",
        ),
        (
            LATER_FRAGMENT,
            {"destination_ports": ((80, 80),)},
            "destination_port: a later fragment has no ports",
        ),
        (
            "icmp 10.0.0.1 > 10.9.2.3",
            {"source_ports": ((80, 80),)},
            "source_port: icmp has no ports",
        ),
        (f"{TCP} mark 0x15", {"mark": (0x10, 0xF0)}, None),
        (f"{TCP} mark 0x25", {"mark": (0x10, 0xF0)}, "mark: 0x25 & 0xf0 is 0x20, not 0x10"),
    ],
)
def test_the_criterion_that_fails_is_named_with_the_reason(
    packet: str, wanted: dict[str, Any], why: str | None
) -> None:
    match = Match(interface="eth0", direction=Direction.IN, **wanted)
    assert first_miss(match, read(packet)) == why
