"""A web request: a connection that the client opens to get one object, timed from its SYN.

The client's packets go back to the server, where nothing is lost or limited; the server's pass the
limiter: SYN-ACK, the response's head, the object, FIN. A server repeats its SYN-ACK as a client
does its SYN.
"""

from __future__ import annotations

from collections.abc import Callable

from drld.model import FlowId
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

HEAD_BYTES = 160
"""Size of the response's head, in a segment of its own."""
REQUEST_BYTES = 130


class Download(Stream):
    """One object; it begins at once."""

    def __init__(
        self,
        clock: Clock,
        flow_id: FlowId,
        path: Path,
        size: int,
        told: Callable[[Download, int], None],
    ) -> None:
        """`told(self, count)` is called for received bytes of the object."""
        super().__init__(clock, flow_id, path)
        self.size = size
        self.received = 0
        self.start_ns = clock.now_ns
        self.end_ns: int | None = None
        """When the last byte came; None: not yet."""
        self._told = told
        self._whole, self._rest = divmod(size, SEGMENT_BYTES)
        self._syns = self._syn_acks = 0
        self._syn_ack_ns = 0
        self._aborted = self._parted = False
        self._client_timer = Timer(clock, self._send_syn, path.phase_ns)
        self._server_timer = Timer(clock, self._send_syn_ack, path.phase_ns)
        self._send_syn()

    def abort(self) -> None:
        """Break the request off if it has not ended: a reset goes to the server."""
        if self.end_ns is None and not self._aborted:
            self._aborted = True
            self._client_timer.stop()
            if self._receiver is not None:
                self._receiver.close()
            self._path.back.send(HEADER_BYTES, self._reset_arrives, None)

    def _reset_arrives(self, _: object) -> None:
        self._server_timer.stop()
        if self.sender is not None:
            self.sender.close()

    def _send_syn(self) -> None:
        self._syns += 1
        self._path.back.send(SYN_BYTES, self._syn_arrives, None)
        self._client_timer.set(syn_timeout_ns(self._syns))

    def _syn_arrives(self, _: object) -> None:
        if self.sender is None and not self._aborted:
            self._send_syn_ack()

    def _send_syn_ack(self) -> None:
        self._syn_acks += 1
        self._syn_ack_ns = self._clock.now_ns
        self._path.there.send(SYN_BYTES, self._syn_ack_arrives, None)
        self._server_timer.set(syn_timeout_ns(self._syn_acks))

    def _syn_ack_arrives(self, _: object) -> None:
        """The SYN-ACK reaches the limiter; the client is next to it, and sends its request."""
        passed = self._path.host.passes(self._flow_id, SYN_BYTES)
        if not passed or self._aborted or self._receiver is not None:
            return
        self._client_timer.stop()
        rtt_ns = 2 * self._path.there.delay_ns
        self._begin_receiving(self._clock.now_ns - self.start_ns if self._syns == 1 else rtt_ns)
        self._path.back.send(HEADER_BYTES + REQUEST_BYTES, self._request_arrives, None)

    def _request_arrives(self, _: object) -> None:
        self._server_timer.stop()
        if self._aborted:
            return
        rtt_ns = 2 * self._path.there.delay_ns
        if self._syn_acks == 1:
            rtt_ns = self._clock.now_ns - self._syn_ack_ns
        self._begin_sending(rtt_ns, self._syn_acks, 1 + self._whole + (self._rest > 0))

    def _length(self, segment: int) -> int:
        return HEADER_BYTES + (self._carries(segment) if segment else HEAD_BYTES)

    def _carries(self, segment: int) -> int:
        """Received bytes of the object."""
        if segment == 0:
            return 0
        return SEGMENT_BYTES if segment <= self._whole else self._rest

    def _deliver(self, segments: int) -> None:
        assert self._receiver is not None
        end = self._receiver.next_
        count = sum(map(self._carries, range(end - segments, end)))
        self.received += count
        if self.received == self.size:
            self.end_ns = self._clock.now_ns
        self._told(self, count)

    def _acknowledged(self, ack: Ack) -> None:
        super()._acknowledged(ack)
        assert self.sender is not None
        if self.sender.finished and not self._parted:
            self._parted = True
            self._send_empty()
