"""The BPF program beside the Python parser and matcher: every frame means the same to both.

What shows: which limits a frame falls under, the length that is counted, what is odd about it, and
the flow that it is taken for, by the identity that the program's hash gives to the five-tuple.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from ipaddress import ip_network
from typing import Any

from drld.capture import kernel_layout as layout
from drld.capture.flow_identity import flow_identity
from drld.capture.kernel.datapath import limiter_programs
from drld.capture.kernel.state import Counts
from drld.capture.matcher import Matcher
from drld.capture.packet import (
    COPY_BYTES,
    MAX_JUMBO_PAYLOAD,
    Header,
    ecn_capable,
    marked,
    parse,
)
from drld.capture.spec import Match
from drld.ebpf.bpf import Code
from drld.model import NS_PER_S, Enforcement
from drld.police.direction import Direction
from drld.police.flow_bucket import MAX_TOKENS
from drld.police.policer import DROP, FORWARD, MARK, Excess
from drld.police.source_sample import SourcePrefix
from drld.spec import LimitSpec
from tests.factories import limit_spec
from tests.fuzz.frames import LONGEST, frame, packet_of
from tests.fuzz.targets.base import Target
from tests.fuzz.targets.packet import packets

from .bench import SEED, TEST_FLAGS, Bench

INTERFACE = "eth0"


def limit(
    number: int,
    prefix: str | None = None,
    excess: Excess = Excess.DROP,
    flow: SourcePrefix | None = None,
    **conditions: Any,
) -> LimitSpec:
    """A limit on what goes out."""
    destination = ip_network(prefix) if prefix else None
    match = Match(INTERFACE, Direction.OUT, destination=destination, **conditions)
    return limit_spec(id=number, name=f"l{number}", match=match, excess=excess, flow=flow)


LIMITS = {
    "all packets": [limit(1)],
    "one limit a packet": [
        limit(1, "10.0.0.0/16"),
        limit(2, "fd00::/32"),
        limit(3, protocol=6, destination_ports=((80, 1000),), mark=(0x10, 0xF0)),
    ],
    "several limits a packet": [
        limit(1, "10.0.0.0/24", protocol=17),
        limit(2, protocol=6, source_ports=((1, 80), (443, 443))),
        limit(3, protocol=44),
        limit(4, "fd00::/16"),
        limit(5),
    ],
    "a limit that marks": [limit(1, excess=Excess.MARK)],
    "flows are sources": [limit(1, flow=SourcePrefix(13, 64))],
    "flows are sources of some limits": [
        limit(1, flow=SourcePrefix(32, 77)),
        limit(2),
        limit(3, "fd00::/16", flow=SourcePrefix(24, 128)),
    ],
}
_LOW = Enforcement(
    depth=MAX_JUMBO_PAYLOAD * 2, flow_rate=10**6, flow_depth=1500, reserve=MAX_TOKENS // NS_PER_S
)
"""With a nearly full bucket, this record marks each ECN-capable packet and drops all others that
have a byte: a byte leaves a 1500th of the reserve, which is more than the bucket has."""


class Agreement:
    """Judges frames by both, under several sets of limits."""

    def __init__(self, code: Mapping[str, Code]) -> None:
        self._sides = [_Sides(code, limits) for limits in LIMITS.values()]

    def close(self) -> None:
        for sides in self._sides:
            sides.bench.close()

    def check(self, data: bytes, mark: int = 0) -> bool:
        """Judge one frame; whether it is a packet without a defect.

        The kernel's test run takes no Ethernet frame whose IP header is cut off, as no driver
        delivers one; behind a VLAN tag it does.
        """
        packet = packet_of(data)
        if packet is not None and data[12:14] in (b"\x08\x00", b"\x86\xdd"):
            least = 20 if data[12:14] == b"\x08\x00" else 40
            if len(packet) < least:
                data = data[:12] + b"\x81\x00\x00\x0a" + data[12:]
        for sides in self._sides:
            sides.check(data, packet, mark)
        return packet is not None and parse(packet[:COPY_BYTES], len(packet)).defect is None

    def check_packet(self, packet: bytes, mark: int = 0) -> None:
        """Judge a packet without tags, with one and with two."""
        for tags in range(3):
            self.check(frame(packet, tags), mark)


class _Sides:
    def __init__(self, code: Mapping[str, Code], limits: list[LimitSpec]) -> None:
        self.bench = Bench(code, limits)
        self._marks = limits[0].policy.excess is Excess.MARK
        self._marked = 0
        self._dropped = 0, 0
        """Bytes and packets, of the limit that marks."""
        record = _LOW if self._marks else Enforcement()
        tokens = (record.depth or 0) * NS_PER_S - 1
        self._nearly_full = tokens.to_bytes(8, sys.byteorder, signed=True)
        """First field of a limit's state: one token less than a full bucket, which marks none."""
        self.bench.reset([record] * len(limits), 0)
        self._matcher = Matcher(limits)
        self._counts = {limit.id: [0, 0] for limit in limits}
        self._parse_anomalies = [0, 0, 0, 0]

    def check(self, data: bytes, packet: bytes | None, mark: int) -> None:
        example = data.hex(), mark, [limit.match for limit in self.bench.limits]
        state, slots = self.bench.state, self.bench.slots
        header = parse(packet[:COPY_BYTES], len(packet)) if packet is not None else None
        matched: tuple[LimitSpec, ...] = ()
        if header is not None:
            matched = self._matcher.classify(header, INTERFACE, Direction.OUT, mark)
            self._note(header, matched)
        for limit in matched:
            start = slots[limit.id] * layout.FLOWS_BYTES
            state.maps["flows"].memory()[start : start + layout.FLOWS_BYTES] = bytes(
                layout.FLOWS_BYTES
            )
        verdict = FORWARD
        if self._marks:
            state.write_limit(0, 0, self._nearly_full)
            if packet is not None and header is not None:
                if header.defect is None and ecn_capable(packet):
                    self._marked += 1
                    verdict = MARK if marked(packet) != packet else FORWARD
                elif header.length:
                    self._dropped = self._dropped[0] + header.length, self._dropped[1] + 1
                    verdict = DROP
        assert self.bench.packet(data, mark=mark) == verdict, example
        for limit_id, (size, count) in self._counts.items():
            counted = state.counts(slots[limit_id])
            lost_size, lost_count = self._dropped
            wanted = Counts(
                *(size - lost_size, lost_size, 0, counted.marked_bytes),
                *(count - lost_count, lost_count, 0, self._marked),
            )
            assert counted == wanted, (limit_id, example)
        assert state.parse_anomalies() == self._parse_anomalies, example
        for limit in matched:
            assert header is not None
            table = state.flows(slots[limit.id])
            flows = [pair for pair in zip(table[::2], table[1::2], strict=True) if pair[0]]
            prefix = limit.policy.flow
            prefix = prefix if isinstance(prefix, SourcePrefix) else None
            addressed = header.family != 0
            identity = flow_identity(header.flow, SEED, prefix, addressed=addressed)
            assert flows == [(identity, header.length)], example

    def _note(self, header: Header, matched: tuple[LimitSpec, ...]) -> None:
        """Add a packet to the expected counters."""
        for limit in matched:
            self._counts[limit.id][0] += header.length
            self._counts[limit.id][1] += 1
        malformed = header.defect is not None and header.defect.malformed
        truncated = header.defect is not None and not malformed
        for place, odd in enumerate((truncated, malformed, header.fragment, not matched)):
            self._parse_anomalies[place] += odd


def check(data: bytes) -> bool:
    """A mark of four bytes, and a frame."""
    if len(data) < 18:
        return False
    return _agreement().check(data[4:], int.from_bytes(data[:4], "big"))


@functools.cache
def _agreement() -> Agreement:
    return Agreement(limiter_programs(TEST_FLAGS))


def seeds() -> list[bytes]:
    return [
        bytes([0, 0, 0, 0x10 * tags]) + frame(packet, tags)
        for packet in packets()
        for tags in range(3)
    ]


TARGET = Target(check, seeds, max_bytes=min(600, LONGEST))
"""The target of scripts/fuzz, as root; coverage is that of the Python parser."""
