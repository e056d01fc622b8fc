"""A long flow: a TCP connection that sends as long as it lives, and is reset when it ends."""

from __future__ import annotations

from drld.model import FlowId
from testbed.experiment import Flow
from testbed.experiment_tables import STEP_NS
from testbed.tcp.clock import Clock
from testbed.tcp.receiver import Ack
from testbed.tcp.stream import (
    HEADER_BYTES,
    SEGMENT_BYTES,
    SYN_BYTES,
    Path,
    Stream,
    syn_timeout_ns,
)
from testbed.tcp.timer import Timer


class Connection(Stream):
    """A flow of the experiment."""

    def __init__(
        self, clock: Clock, flow: Flow, flow_id: FlowId, path: Path, run_ns: tuple[int, int]
    ) -> None:
        """Open and close at the flow's times; `run_ns` are the begin and the end of the run."""
        super().__init__(clock, flow_id, path)
        self.flow = flow
        self.steps = [0] * ((run_ns[1] - run_ns[0]) // STEP_NS)
        """Application bytes received in each step of the run."""
        self.syn_ns: int | None = None
        self.connected_ns: int | None = None
        self._begin_ns = run_ns[0]
        self._syns = 0
        self._open = False
        self._timer = Timer(clock, self._send_syn, path.phase_ns)
        clock.at(run_ns[0] + flow.start_ns, self._begin)
        clock.at(run_ns[0] + flow.end_ns, self._end)

    @property
    def retransmits(self) -> int:
        """Number of retransmitted packets."""
        return max(self._syns - 1, 0) + (self.sender.retransmits if self.sender else 0)

    @property
    def held(self) -> int:
        """Received segments that wait for a missing one before them."""
        return 0 if self._receiver is None else self._receiver.held

    def _begin(self, _: object) -> None:
        self._open = True
        self.syn_ns = self._clock.now_ns
        self._send_syn()

    def _send_syn(self) -> None:
        self._syns += 1
        self._path.there.send(SYN_BYTES, self._syn_arrives, None)
        self._timer.set(syn_timeout_ns(self._syns))

    def _syn_arrives(self, _: object) -> None:
        if self._path.host.passes(self._flow_id, SYN_BYTES):
            self._path.back.send(SYN_BYTES, self._accepted, None)

    def _accepted(self, _: object) -> None:
        """Begin to send: the SYN is acknowledged."""
        if not self._open or self.sender is not None:
            return
        assert self.syn_ns is not None
        self._timer.stop()
        now_ns = self._clock.now_ns
        self.connected_ns = now_ns
        rtt_ns = now_ns - self.syn_ns if self._syns == 1 else 2 * self._path.there.delay_ns
        self._begin_receiving(rtt_ns)
        self._send_empty()
        self._begin_sending(rtt_ns, self._syns)

    def _acknowledged(self, ack: Ack) -> None:
        if self._open:
            super()._acknowledged(ack)

    def _deliver(self, segments: int) -> None:
        step = (self._clock.now_ns - self._begin_ns) // STEP_NS
        if step < len(self.steps):
            self.steps[step] += segments * SEGMENT_BYTES

    def _end(self, _: object) -> None:
        self._open = False
        self._timer.stop()
        if self.sender is not None:
            self.sender.close()
            self._path.there.send(HEADER_BYTES, self._reset_arrives, None)

    def _reset_arrives(self, _: object) -> None:
        self._path.host.passes(self._flow_id, HEADER_BYTES)
        if self._receiver is not None:
            self._receiver.close()
