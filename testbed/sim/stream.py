"""Data from a sender through a limiter to a receiver, and the acknowledgements back.

    Sender ---- there (loss, delay, rate) ---- limiter ---- Receiver
       |                                                       |
       +----------------- back (delay) -----------------------+

What the two kinds of connections have in common: long flows, which the sender opens
(`connection.py`), and web requests, where the receiver does (`download.py`). The limiter sees IP
packets: 60 bytes of SYN, 1,500 for a full segment, 52 for what carries no data.
"""

from __future__ import annotations

from dataclasses import dataclass

from drld.model import FlowId
from testbed import MTU
from testbed.sim.clock import Clock
from testbed.sim.congestion import INITIAL_WINDOW
from testbed.sim.controls import CONTROLS
from testbed.sim.host import Host
from testbed.sim.link import Link
from testbed.sim.receiver import Ack, Receiver
from testbed.sim.rtt import INITIAL_RTO_NS
from testbed.sim.sender import Sender

SYN_BYTES = 60
HEADER_BYTES = 52
SEGMENT_BYTES = MTU - HEADER_BYTES
LINEAR_SYNS = 4
"""SYNs repeated after the same second before the time doubles (tcp_syn_linear_timeouts)."""


def syn_timeout_ns(syns: int) -> int:
    """How long to wait for an answer to so many SYNs."""
    return INITIAL_RTO_NS << max(syns - 1 - LINEAR_SYNS, 0)


@dataclass(frozen=True, slots=True)
class Path:
    """What the connections of a group share."""

    there: Link
    back: Link
    host: Host
    """The limiter between."""
    phase_ns: int
    """When the jiffies of the group's hosts begin."""
    window: int | None = None
    """Of the receivers, bytes; None if it is never full."""
    congestion: str = "reno"
    """The congestion control of the senders."""


class Stream:
    """One connection, once both ends have opened it."""

    def __init__(self, clock: Clock, flow_id: FlowId, path: Path) -> None:
        self.sender: Sender | None = None
        self._receiver: Receiver | None = None
        self._clock = clock
        self._flow_id = flow_id
        self._path = path

    def _begin_receiving(self, rtt_ns: int) -> None:
        self._receiver = Receiver(
            self._clock, self._answer, self._deliver, rtt_ns=rtt_ns, phase_ns=self._path.phase_ns
        )

    def _begin_sending(self, rtt_ns: int, syns: int, segments: int | None = None) -> None:
        """`syns` is how many it took; after two losses Linux begins with a window of one."""
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
        """Of its packet."""
        return MTU

    def _deliver(self, segments: int) -> None:
        """So many more segments are there, in order."""
        raise NotImplementedError

    def _emit(self, segment: int) -> None:
        self._path.there.send(self._length(segment), self._arrives, segment)

    def _arrives(self, segment: int) -> None:
        """A segment comes to the limiter."""
        if self._path.host.passes(self._flow_id, self._length(segment)):
            assert self._receiver is not None
            self._receiver.receive(segment)

    def _send_empty(self) -> None:
        """A packet without data, of which nothing depends."""
        self._path.there.send(HEADER_BYTES, self._empty_arrives, None)

    def _empty_arrives(self, _: object) -> None:
        self._path.host.passes(self._flow_id, HEADER_BYTES)

    def _answer(self, ack: Ack) -> None:
        self._path.back.send(HEADER_BYTES, self._acknowledged, ack)

    def _acknowledged(self, ack: Ack) -> None:
        assert self.sender is not None
        self.sender.acknowledge(ack)
