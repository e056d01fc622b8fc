"""One TCP connection through a limiter: handshake, data, acknowledgements, and its end.

    Sender ---- there (loss, delay, rate) ---- limiter ---- Receiver
       |                                                       |
       +----------------- back (delay) -----------------------+

The limiter sees IP packets: 60 bytes of SYN, 1,500 for a segment of 1,448 bytes, 52 for what
carries no data. A connection that ends is reset, and gone at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from drld.model import FlowId
from testbed import MTU
from testbed.experiment import STEP_NS, Flow
from testbed.sim.clock import Clock
from testbed.sim.host import Host
from testbed.sim.link import Link
from testbed.sim.receiver import Ack, Receiver
from testbed.sim.rtt import INITIAL_RTO_NS
from testbed.sim.sender import INITIAL_WINDOW, Sender
from testbed.sim.timer import Timer

SYN_BYTES = 60
HEADER_BYTES = 52
SEGMENT_BYTES = MTU - HEADER_BYTES
LINEAR_SYNS = 4
"""SYNs repeated after the same second before the time doubles (tcp_syn_linear_timeouts)."""


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


class Connection:
    """A flow of the experiment; it sends as long as it lives."""

    def __init__(
        self, clock: Clock, flow: Flow, flow_id: FlowId, path: Path, run_ns: tuple[int, int]
    ) -> None:
        """Open and close at the flow's times; `run_ns` are the begin and the end of the run."""
        self.flow = flow
        self.steps = [0] * ((run_ns[1] - run_ns[0]) // STEP_NS)
        """Application bytes received in each step of the run."""
        self.syn_ns: int | None = None
        self.connected_ns: int | None = None
        self.sender: Sender | None = None
        self._receiver: Receiver | None = None
        self._clock = clock
        self._flow_id = flow_id
        self._there = path.there
        self._back = path.back
        self._host = path.host
        self._begin_ns = run_ns[0]
        self._phase_ns = path.phase_ns
        self._most_out = None if path.window is None else max(path.window // SEGMENT_BYTES, 1)
        self._syns = 0
        self._answered = False
        self._open = False
        self._timer = Timer(clock, self._send_syn, path.phase_ns)
        clock.at(run_ns[0] + flow.start_ns, self._begin)
        clock.at(run_ns[0] + flow.end_ns, self._end)

    @property
    def retransmits(self) -> int:
        """Packets that were sent again."""
        return max(self._syns - 1, 0) + (self.sender.retransmits if self.sender else 0)

    def _begin(self, _: object) -> None:
        self._open = True
        self.syn_ns = self._clock.now_ns
        self._send_syn()

    def _send_syn(self) -> None:
        self._syns += 1
        self._there.send(SYN_BYTES, self._syn_arrives, None)
        self._timer.set(INITIAL_RTO_NS << max(self._syns - 1 - LINEAR_SYNS, 0))

    def _syn_arrives(self, _: object) -> None:
        if self._host.passes(self._flow_id, SYN_BYTES):
            self._back.send(SYN_BYTES, self._accepted, None)

    def _accepted(self, _: object) -> None:
        """The SYN is acknowledged: begin."""
        if not self._open or self.sender is not None:
            return
        assert self.syn_ns is not None
        self._timer.stop()
        now_ns = self._clock.now_ns
        self.connected_ns = now_ns
        rtt_ns = now_ns - self.syn_ns if self._syns == 1 else self._there.delay_ns * 2
        window = INITIAL_WINDOW if self._syns <= 2 else 1
        self._receiver = Receiver(
            self._clock, self._answer, self._deliver, rtt_ns=rtt_ns, phase_ns=self._phase_ns
        )
        self.sender = Sender(
            self._clock, self._emit, rtt_ns=rtt_ns, phase_ns=self._phase_ns, window=window,
            most_out=self._most_out,
        )  # fmt: skip
        self._there.send(HEADER_BYTES, self._arrives, None)
        self.sender.start()

    def _emit(self, segment: int) -> None:
        self._there.send(MTU, self._arrives, segment)

    def _arrives(self, segment: int | None) -> None:
        """A segment, or a packet without data, comes to the limiter."""
        length = HEADER_BYTES if segment is None else MTU
        if self._host.passes(self._flow_id, length) and segment is not None:
            assert self._receiver is not None
            self._receiver.receive(segment)

    def _reset_arrives(self, _: object) -> None:
        self._host.passes(self._flow_id, HEADER_BYTES)
        if self._receiver is not None:
            self._receiver.close()

    def _answer(self, ack: Ack) -> None:
        self._back.send(HEADER_BYTES, self._acknowledged, ack)

    def _acknowledged(self, ack: Ack) -> None:
        if self._open:
            assert self.sender is not None
            self.sender.acknowledge(ack)

    def _deliver(self, segments: int) -> None:
        step = (self._clock.now_ns - self._begin_ns) // STEP_NS
        if step < len(self.steps):
            self.steps[step] += segments * SEGMENT_BYTES

    def _end(self, _: object) -> None:
        self._open = False
        self._timer.stop()
        if self.sender is not None:
            self.sender.close()
            self._there.send(HEADER_BYTES, self._reset_arrives, None)
