"""Compares the times of the socket filter with those of a packet capture or a trace of the kernel.

    src ==== router ==== sink

A stream of messages of random lengths is written in random pieces, so that segments and messages do
not agree. The router loses a share of the packets, and holds up another share, so that they come
out of order. TCP repeats what is lost. At the sink a packet socket captures what arrives. From that
an oracle computes when each message arrived: the latest time of its bytes and of all before.

The sequence numbers wrap in the middle of the stream: the sender sets its first one (TCP_REPAIR).

The packet socket sees a packet before TCP does, in the same turn of the kernel. Its wall-clock time
is converted by the offset of the clocks, which must not change meanwhile. The trace sees a segment
where TCP begins (`testbed.messages.tracer`), and has the filter's clock.
"""

from __future__ import annotations

import socket
import struct
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

import trio

from drld.messages.front.stamps import SocketStamps
from drld.messages.segments import Segments
from testbed import netns
from testbed.crew import crew
from testbed.errors import DisturbedError, MeasurementError
from testbed.messages.comparison import Comparison, Message
from testbed.messages.tcp_segments import SEQUENCES, Segment, captured, parsed
from testbed.messages.tracer import Tracer
from testbed.stamps import ANY, Recorder
from testbed.topology import SINK, build_line

PORT = 1883
_ROUTER = "router"
_LONGEST_MESSAGE, _LONGEST_PIECE = 300, 1000
_BURST_BYTES, _PAUSE_S = 20_000, 0.004
_HELD_UP_NS = 2_000_000
_QUEUE = 0
_PATIENCE_S = 20.0
_READ_BYTES = 1 << 16
_CLOSE_NS = 20_000
_CLOCK_READINGS = 100
_LONGEST_READ_PAUSE_S = 0.01
_PACKETS_A_MESSAGE = 4

_TCP_REPAIR, _TCP_REPAIR_QUEUE, _TCP_QUEUE_SEQ = 19, 20, 21
_SEND_QUEUE = 2

_IPV6 = {
    "src": "address add fd00:1::2/64 dev eth0\nroute add default via fd00:1::1\n",
    _ROUTER: "address add fd00:1::1/64 dev up\naddress add fd00:2::1/64 dev down\n",
    SINK: "address add fd00:2::2/64 dev in\nroute add default via fd00:2::1\n",
}
_SINK6 = "fd00:2::2"


@dataclass(frozen=True, slots=True)
class Stream:
    """The stream to send, and its treatment on the way."""

    messages: int
    ipv6: bool = False
    lost: float = 0.01
    """Share of the packets."""
    held_up: float = 0.01
    """Share of the packets that come later than those behind them."""
    traced: bool = False
    """Whether the oracle is a trace of the kernel instead of a packet capture."""
    seed: int = 1


async def compare(stream: Stream) -> Comparison:
    """Send a stream through the lossy path and receive it.

    Raises:
        DisturbedError: the host's clock was set meanwhile.
        MeasurementError: the stream did not come through, or the capture missed packets.
    """
    with netns.workspace() as state:
        server = build_line(_ROUTER)
        if stream.ipv6:
            server = _add_ipv6()
        async with crew(state) as members:
            links = [{"queue": _QUEUE, "delay_ns": _HELD_UP_NS, "loss": 0, "seed": 0}]
            router = netns.namespace(_ROUTER)
            line = await members.start_module("line", router, "delayline", {"links": links})
            await line.receive()
            _lose(stream, router)
            with ThreadPoolExecutor(1) as pool, _Receiver(stream, server) as receiver:
                sent = pool.submit(_send, stream, server)
                return await trio.to_thread.run_sync(receiver.receive, sent)


def _add_ipv6() -> str:
    """Give the line IPv6 addresses; return the sink's."""
    for role in ("src", _ROUTER, SINK):
        netns.within(netns.namespace(role), _switch_on)
        netns.run(["ip", "-n", netns.namespace(role), "-6", "-batch", "-"], stdin=_IPV6[role])
    return _SINK6


def _switch_on() -> None:
    ipv6 = Path("/proc/sys/net/ipv6/conf")
    for each in ipv6.iterdir():
        (each / "accept_dad").write_text("0", encoding="ascii")
        (each / "disable_ipv6").write_text("0", encoding="ascii")
    (ipv6 / "all/forwarding").write_text("1", encoding="ascii")


def _lose(stream: Stream, router: str) -> None:
    """Lose and hold up some of the packets towards the sink."""
    some = "-A FORWARD -o down -m statistic --mode random --probability"
    rules = [
        f"{some} {stream.lost} -j DROP",
        f"{some} {stream.held_up} -j NFQUEUE --queue-num {_QUEUE}",
    ]
    tool = "ip6tables-restore" if stream.ipv6 else "iptables-restore"
    text = "\n".join(["*mangle", *rules, "COMMIT", ""])
    netns.run(["ip", "netns", "exec", router, tool], stdin=text)


def _ends(stream: Stream) -> list[int]:
    """The offset behind each message."""
    rng = Random(stream.seed)
    return list(accumulate(rng.randint(1, _LONGEST_MESSAGE) for _ in range(stream.messages)))


def _first(stream: Stream) -> int:
    """The sequence number of the first byte."""
    return SEQUENCES - _ends(stream)[-1] // 2


def _send(stream: Stream, server: str) -> None:
    """Write the stream in random pieces."""
    rng = Random(stream.seed)
    total = _ends(stream)[-1]
    family = socket.AF_INET6 if stream.ipv6 else socket.AF_INET
    with netns.within(
        netns.namespace("src"), lambda: socket.socket(family, socket.SOCK_STREAM)
    ) as sender:
        _begin_at(sender, _first(stream) - 1)
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sender.settimeout(_PATIENCE_S)
        sender.connect((server, PORT))
        data, sent = bytes(_LONGEST_PIECE), 0
        pause_at = _BURST_BYTES
        while sent < total:
            sent += sender.send(data[: min(rng.randint(1, _LONGEST_PIECE), total - sent)])
            if sent >= pause_at:
                pause_at = sent + _BURST_BYTES
                time.sleep(_PAUSE_S)
        sender.shutdown(socket.SHUT_WR)
        sender.recv(1)  # until the receiver has all


def _begin_at(sender: socket.socket, sequence: int) -> None:
    """Have the SYN carry this sequence number."""
    sender.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, 1)
    sender.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR_QUEUE, _SEND_QUEUE)
    sender.setsockopt(socket.IPPROTO_TCP, _TCP_QUEUE_SEQ, struct.pack("=I", sequence))
    sender.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, 0)


class _Recording(Segments):
    """A table that keeps what it was told."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.told: list[Segment] = []

    def add(self, sequence: int, length: int, time_ns: int) -> None:
        """See `Segments`."""
        if length:
            self.told.append(Segment(time_ns, sequence, length))
        super().add(sequence, length, time_ns)


class _RecordingStamps(SocketStamps):
    """The filter, with tables that keep what they were told."""

    def table(self, first: int | None) -> Segments:
        """See `SocketStamps`."""
        return _Recording(first, self.tally, self.drain)


class _Receiver:
    """The receiving end: the filter, the reader and the capture."""

    def __init__(self, stream: Stream, server: str) -> None:
        self._stream = stream
        self._server = server
        self._open = ExitStack()

    def __enter__(self) -> _Receiver:
        with ExitStack() as opened:
            self._stamps = _RecordingStamps()
            opened.callback(self._stamps.stop)
            self._listener = opened.enter_context(
                netns.within(netns.namespace(SINK), self._listening)
            )
            packets = _PACKETS_A_MESSAGE * self._stream.messages + 1000
            if self._stream.traced:
                self._tracer = Tracer(6 if self._stream.ipv6 else 4, packets)
                opened.callback(self._tracer.close)
            else:
                self._recorder = netns.within(
                    netns.namespace(SINK), lambda: Recorder("in", packets, ANY)
                )
                opened.callback(self._recorder.close)
            self._open = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _listening(self) -> socket.socket:
        family = socket.AF_INET6 if self._stream.ipv6 else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.bind((self._server, PORT))
        self._stamps.watch(listener)
        listener.listen()
        listener.settimeout(_PATIENCE_S)
        return listener

    def receive(self, sent: Future[None]) -> Comparison:
        """Read to the end, then ask for each message with the time of the read that completed it.

        Raises:
            DisturbedError: see `compare`.
            MeasurementError: see `compare`.
        """
        offset_ns = _clock_offset()
        stamps = self._stamps
        rng = Random(self._stream.seed)
        ends = _ends(self._stream)
        messages: list[Message] = []
        try:
            connection, (_, client_port, *_) = self._listener.accept()
            with connection:
                segments = stamps.of(connection)
                connection.settimeout(_PATIENCE_S)
                buffer, received = bytearray(_READ_BYTES), 0
                while True:
                    time.sleep(rng.random() * _LONGEST_READ_PAUSE_S)
                    read_ns = time.monotonic_ns()
                    stamps.drain()
                    size = stamps.receive(connection, segments, buffer)
                    if not size:
                        break
                    received += size
                    while len(messages) < len(ends) and ends[len(messages)] <= received:
                        end = ends[len(messages)]
                        messages.append(Message(end, read_ns, segments.arrival(end, read_ns)))
        except TimeoutError:
            if sent.done():
                sent.result()
            raise MeasurementError("the stream did not come through") from None
        sent.result()
        assert isinstance(segments, _Recording)
        oracle = self._traced(client_port) if self._stream.traced else self._captured(offset_ns)
        tally = stamps.tally
        return Comparison(
            _first(self._stream), segments.told, oracle, messages, tally.unstamped, stamps.lost
        )

    def _captured(self, offset_ns: int) -> list[Segment]:
        """The segments that the packet socket captured.

        Raises:
            DisturbedError: the wall clock was set meanwhile.
            MeasurementError: packets are missing.
        """
        if abs(_clock_offset() - offset_ns) > _CLOSE_NS:
            raise DisturbedError("the wall clock was set")
        if self._recorder.missed():
            raise MeasurementError(f"{self._recorder.missed()} packets were not captured")
        return [
            it._replace(time_ns=it.time_ns - offset_ns)
            for _, it in captured(self._recorder.packets(), PORT)
        ]

    def _traced(self, client_port: int) -> list[Segment]:
        """The segments of this connection at the calls of `tcp_v4_rcv` or `tcp_v6_rcv`."""
        return [
            segment
            for time_ns, length, header in self._tracer.segments()
            for client, segment in parsed(time_ns, length, header, PORT)
            if client == client_port
        ]


def _clock_offset() -> int:
    """Wall clock less monotonic clock, ns, by the closest of some readings."""
    found = []
    for _ in range(_CLOCK_READINGS):
        before_ns = time.monotonic_ns()
        wall_ns = time.time_ns()
        after_ns = time.monotonic_ns()
        found.append((after_ns - before_ns, wall_ns - (before_ns + after_ns) // 2))
    return min(found)[1]
