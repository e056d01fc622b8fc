"""Data from a sender through a limiter to a receiver, and the acknowledgements back.

    Sender ---- there (loss, delay, rate) ---- limiter ---- Receiver
       |                                                       |
       +----------------- back (delay) -----------------------+

The common part of both kinds of connections: long flows, which the sender opens
(`testbed.sim.connection`), and web requests, which the receiver opens (`testbed.sim.download`). The
limiter sees IP packets: 60 bytes of SYN, 1,500 bytes of a full segment, 52 bytes without data.

With `gso`, segments that leave at one moment and in order form super-packets of up to 44 segments.
A limiter judges one as a whole, and charges all its segments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from drld.model import FlowId
from drld.police.policer import MARK
from testbed import MTU
from testbed.tcp.clock import Clock
from testbed.tcp.congestion import INITIAL_WINDOW
from testbed.tcp.controls import CONTROLS
from testbed.tcp.link import Link
from testbed.tcp.receiver import Ack, Receiver
from testbed.tcp.rtt import INITIAL_RTO_NS
from testbed.tcp.sender import Sender

SYN_BYTES = 60
HEADER_BYTES = 52
SEGMENT_BYTES = MTU - HEADER_BYTES
_MOST_SEGMENTS = 44
"""Most segments of a super-packet: 64 kB."""
LINEAR_SYNS = 4
"""SYNs repeated after one second each, before the time doubles (tcp_syn_linear_timeouts)."""


def syn_timeout_ns(syns: int) -> int:
    """Time to wait for an answer after this number of SYNs."""
    return INITIAL_RTO_NS << max(syns - 1 - LINEAR_SYNS, 0)


class Hop(Protocol):
    """A device between sender and receiver that decides about each packet."""

    def passes(self, flow: FlowId, length: int, capable: bool = False) -> int:
        """The verdict on a packet of `length` bytes (`drld.police.policer`)."""


@dataclass(frozen=True, slots=True)
class Path:
    """The common settings of a group's connections."""

    there: Link
    back: Link
    host: Hop
    """The limiter between."""
    phase_ns: int
    """The begin of the jiffies of the group's hosts, ns."""
    window: int | None = None
    """The receivers' window, bytes; None: it is never full."""
    congestion: str = "reno"
    """The congestion control of the senders."""
    ecn: bool = False
    """Whether both ends use explicit congestion notification."""
    gso: bool = False
    """Whether senders make super-packets."""


class Packet(NamedTuple):
    """A packet that is more than a plain segment."""

    first: int
    """The first of its segments."""
    segments: int
    length: int
    """Bytes of all its segments."""
    capable: bool
    """Whether it is ECN-capable."""
    reduced: bool
    """Whether it says that the window was reduced."""


class Stream:
    """One connection, once both ends have opened it."""

    def __init__(self, clock: Clock, flow_id: FlowId, path: Path) -> None:
        self.sender: Sender | None = None
        self._receiver: Receiver | None = None
        self._clock = clock
        self._flow_id = flow_id
        self._path = path
        self._plain = not path.ecn and not path.gso
        self._leaving: list[Packet] = []
        """Packets that leave at this moment, with `gso`."""

    def _begin_receiving(self, rtt_ns: int) -> None:
        self._receiver = Receiver(
            self._clock, self._answer, self._deliver, rtt_ns=rtt_ns, phase_ns=self._path.phase_ns
        )

    def _begin_sending(self, rtt_ns: int, syns: int, segments: int | None = None) -> None:
        """`syns`: number of SYNs sent; after two losses Linux begins with a window of one."""
        window = self._path.window
        self.sender = Sender(
            self._clock,
            self._emit,
            rtt_ns=rtt_ns,
            phase_ns=self._path.phase_ns,
            window=INITIAL_WINDOW if syns <= 2 else 1,
            segments=segments,
            most_out=None if window is None else max(window // SEGMENT_BYTES, 1),
            control=CONTROLS[self._path.congestion],
        )
        self.sender.start()

    def _length(self, segment: int) -> int:  # noqa: ARG002 -- where all are full
        """The length of the segment's packet, bytes."""
        return MTU

    def _deliver(self, segments: int) -> None:
        """More segments have come in order."""
        raise NotImplementedError

    def _emit(self, segment: int) -> None:
        if self._plain:
            self._path.there.send(self._length(segment), self._arrives, segment)
            return
        sender = self.sender
        assert sender is not None
        capable = self._path.ecn and not sender.board.segments[segment].ever_resent
        reduced = capable and sender.tells_reduction()
        packet = Packet(segment, 1, self._length(segment), capable, reduced)
        if not self._path.gso:
            self._send(packet)
            return
        if not self._leaving:
            self._clock.at(self._clock.now_ns, self._flush)
        self._leaving.append(packet)

    def _flush(self, _: object) -> None:
        """Send the packets of this moment in super-packets."""
        leaving, self._leaving = self._leaving, []
        whole = leaving[0]
        for packet in leaving[1:]:
            follows = packet.first == whole.first + whole.segments
            alike = packet.capable == whole.capable
            if follows and alike and whole.segments < _MOST_SEGMENTS:
                whole = whole._replace(
                    segments=whole.segments + 1,
                    length=whole.length + packet.length,
                    reduced=whole.reduced or packet.reduced,
                )
            else:
                self._send(whole)
                whole = packet
        self._send(whole)

    def _send(self, packet: Packet) -> None:
        self._path.there.send(packet.length, self._packet_arrives, packet)

    def _packet_arrives(self, packet: Packet) -> None:
        """A super-packet reaches the limiter."""
        verdict = self._path.host.passes(self._flow_id, packet.length, packet.capable)
        if not verdict:
            return
        assert self._receiver is not None
        for segment in range(packet.first, packet.first + packet.segments):
            self._receiver.receive(segment, verdict == MARK, packet.reduced)

    def _arrives(self, segment: int) -> None:
        """A segment reaches the limiter."""
        if self._path.host.passes(self._flow_id, self._length(segment)):
            assert self._receiver is not None
            self._receiver.receive(segment)

    def _send_empty(self) -> None:
        """A packet without data, whose loss has no effect."""
        self._path.there.send(HEADER_BYTES, self._empty_arrives, None)

    def _empty_arrives(self, _: object) -> None:
        self._path.host.passes(self._flow_id, HEADER_BYTES)

    def _answer(self, ack: Ack) -> None:
        self._path.back.send(HEADER_BYTES, self._acknowledged, ack)

    def _acknowledged(self, ack: Ack) -> None:
        assert self.sender is not None
        self.sender.acknowledge(ack)
