"""One connection of a client, and drld's connection to the broker for it.

    client ──▶ stream ──▶ gate ──▶ broker        frames; those under limits may wait
    client ◀── returns ◀────────── broker        as it comes

Pressure goes back both ways by TCP. A client is not read while its frames here take more than its
part of the broker's `hold` (`BrokerFront.part`), and the broker's side is not read while the client
does not take what it is sent.

The end. A client that ends its side, or vanishes, is not read any more. What it has sent before is
delivered first, however long that waits. Then drld ends its side of the broker's connection. So the
end is as the client's was: DISCONNECT of MQTT keeps its place among the frames, and without it the
broker publishes the client's will. When the broker ends its side, the client gets what the broker
has sent, and then the end. What still waits cannot be delivered then, and is counted.

One client at a time. A broker of MQTT ends a client's connection when another one comes with the
same identifier. So the CONNECT of the newer one waits while frames of the older one wait.

Keep-alive. A broker of MQTT ends a connection on which nothing comes for 1.5 times its keep-alive.
While messages wait, drld sends pings of its own, and keeps their answers from the client.

Strangers. A client of MQTT is read up to its CONNECT, and further once the broker has answered. So
a client that the broker does not know uses up no tokens.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from drld.errors import FrameError
from drld.messages import proxy_header
from drld.messages.frame import Frame
from drld.messages.front.client_stream import ClientStream
from drld.messages.front.deadlines import Deadline
from drld.messages.front.link import Link
from drld.messages.front.pump import FLOW_FRAMES
from drld.messages.front.reactor import WRITE
from drld.model import NS_PER_S

if TYPE_CHECKING:
    from drld.messages.front.broker_front import BrokerFront

OPENING_NS = 10 * NS_PER_S
"""Time for what comes before the first message: TLS, CONNECT, and the connection to the broker."""
CLIENT_END_NS = 5 * NS_PER_S
"""Time for a client to read what is left, when the broker has ended."""
BROKER_END_NS = 60 * NS_PER_S
"""Time for a broker to read what is left, and to end, when the client has ended."""
MOST_QUEUED = 1 << 16
"""Bytes that a socket has not taken: above it the other side is not read."""
HANDSHAKES = 4
"""Steps of TLS handshakes in a turn; one takes about 1 ms with RSA of 2048 bits."""


class Connection:
    """A client, its frames and its broker (`drld.messages.front.pump.Flow`)."""

    __slots__ = (
        "_broker_ended",
        "_client_ended",
        "_connected",
        "_deadline",
        "_end_said",
        "_first",
        "_frames",
        "_front",
        "_greeted",
        "_held",
        "_paused",
        "_pinging",
        "_receive",
        "_stamps",
        "_stopping",
        "_touched",
        "broker",
        "client",
        "endpoints",
        "lane",
        "reader",
        "returns",
        "segments",
        "stream",
        "successor",
    )

    def __init__(self, front: BrokerFront, sock: socket.socket, address: str) -> None:
        """Begin with a client that has been accepted, from this address."""
        spec, protocol, pump = front.spec, front.protocol, front.pump
        tcp = sock.family != socket.AF_UNIX
        context = front.context() if tcp else None
        self._front = front
        self._stamps = front.stamps if tcp else front.unstamped
        self.endpoints = (sock.getpeername()[:2], sock.getsockname()[:2]) if tcp else None
        """Of the client and of drld; None: it is a unix socket."""
        self.segments = self._stamps.of(sock)
        self._receive = partial(self._stamps.receive, sock, self.segments)
        self.reader = protocol.reader(spec.max_frame)
        self.returns = protocol.returns(tls=context is not None)
        greeted = not protocol.tls_after_greeting
        self.stream = ClientStream(
            self.reader, proxied=spec.accept_proxy, context=context, greeted=greeted
        )
        self.lane = pump.gate.lane(spec.name, address)
        self.client = Link(pump.reactor, self._on_client)
        self.broker = Link(pump.reactor, self._on_broker)
        self.successor: Connection | None = None
        """The next connection of the same client, if it waits for this one."""
        self._first: tuple[int, Connection, Frame] | None = None
        """The CONNECT, while it waits for an older connection."""
        self._frames: Iterator[Frame] | None = None
        """Of what has been read; the gate has not had them."""
        self._touched = False
        self._paused = False
        self._connected: bool | None = None
        """Whether the broker is; None: that has not begun."""
        self._client_ended = False
        """Whether nothing more is read of the client."""
        self._broker_ended = False
        """Whether nothing can be sent to the broker any more."""
        self._end_said = False
        """Whether the broker has been told that nothing follows."""
        self._pinging: Deadline | None = None
        """The next ping of drld's; None: nothing waits."""
        self._stopping = False
        self._greeted = False
        """Whether the broker's first frame has come."""
        self._held = 0
        self._deadline = front.after(OPENING_NS, self._too_slow)
        self.client.on_close = partial(self._client_closed, sock)
        self.client.begin(sock)
        self.client.read(True)
        self._touch()

    # What the pump calls

    def take(self) -> None:
        """See `Flow.take`."""
        frames, pump = self._frames, self._front.pump
        if frames is None or self._broker_ended:
            self._frames = None
            self._touch()
            if self._stopping and self.client.reads:
                self._read_client()
            return
        if self._first is not None:
            pump.arrived.append(self._first)
            self._first = None
        if self.lane.client is not None and not self.returns.greeted:
            return
        arrived, arrival, read_ns = pump.arrived, self.segments.arrival, pump.read_ns
        left = FLOW_FRAMES
        if not self._touched:
            self._touch()
        try:
            for frame in frames:
                at_ns = arrival(frame.end, read_ns)
                if frame.answer:
                    self._to_client(self.returns.insert(frame.answer))
                if self.lane.client is None and self.reader.client is not None:
                    self._introduce(at_ns, frame)
                    return
                arrived.append((at_ns, self, frame))
                left -= 1
                if not left:
                    pump.unfinished(self)
                    return
        except FrameError as error:
            self._refuse("malformed", str(error), error.answer)
        self._frames = None
        if self.stream.ended:
            self._client_ended = True

    def forward(self, frame: Frame) -> None:
        """See `Flow.forward`."""
        if self._broker_ended:
            self._front.counts["undelivered"] += frame.topic is not None
        elif data := (self.reader.forward(frame) if frame.alias else frame.data):
            self.broker.send(data)
        if not self._touched:
            self._touch()

    def drop(self, frame: Frame) -> None:
        """See `Flow.drop`."""
        if answer := self.reader.drop(frame):
            self._to_client(self.returns.insert(answer))
        if not self._touched:
            self._touch()

    def settle(self) -> None:
        """See `Flow.settle`."""
        self._touched = False
        client, broker, front = self.client, self.broker, self._front
        if self._connected is None:
            if broker.chunks or (front.protocol.tls_after_greeting and self.stream.headed):
                self._connect()
        elif broker.chunks and not broker.blocked:
            broker.flush()
        if (tls := self.stream.tls) is not None and (output := tls.output()):
            client.send(output)
        if client.chunks and not client.blocked:
            client.flush()
        up = self.lane.held_bytes + broker.queued
        held = up + client.queued + self.returns.held
        if held != self._held:
            front.held += held - self._held
            self._held = held
            if self._pinging is None and len(self.lane):
                self._keep_alive()
        if up or self._paused:
            # Half of it when it is paused, so that it does not go back and forth.
            paused = self._paused
            self._paused = up > front.part >> paused or broker.queued > MOST_QUEUED >> paused
        if self.successor is not None and not self.waiting:
            self.successor._succeed()
            self.successor = None
        if self._client_ended or self._broker_ended:
            self._end()
        else:
            client.read(not self._paused and self._frames is None)
            if self._stopping and client.reads:
                front.pump.unfinished(self)
        if self._connected and not self._broker_ended:
            broker.read(client.queued <= min(MOST_QUEUED, front.part))

    def fail(self) -> None:
        """See `Flow.fail`."""
        self._client_ended = self._broker_ended = True
        self._frames = None
        self._front.cancel(self._deadline)
        self.client.close()
        self.broker.close()
        self._touch()

    def leave(self) -> None:
        """Read what the client has sent until now, and end as if it had ended."""
        self._stopping = True
        self._touch()

    # The client

    def _on_client(self, events: int) -> None:
        try:
            if events & WRITE:
                self.client.flush()
            if events & ~WRITE and self.client.reads:
                self._read_client()
        except Exception:
            self._front.pump.failed(self)
        if not self._touched:
            self._touch()

    def _read_client(self) -> None:
        if self.stream.shakes:
            pump = self._front.pump
            if pump.handshakes >= HANDSHAKES:
                self._touch()
                return
            pump.handshakes += 1
        data = self.client.receive(self._receive)
        if data:
            self._frames = self.stream.feed(data)
            self.take()
        elif data is not None or self._stopping:
            self._client_ended = True
        self._touch()

    def _introduce(self, at_ns: int, frame: Frame) -> None:
        """Take in what the client says of itself in this frame, and that frames of its older
        connection may wait."""
        self.lane.client = self.reader.client
        if self.stream.source is not None:
            self.lane.address = self.stream.source[0]
        self._opened()
        self._first = at_ns, self, frame
        older = self._front.join(self)
        if older is None:
            self._front.pump.unfinished(self)
        else:
            self._front.cancel(self._deadline)
            older.successor = self
            older._touch()

    def _succeed(self) -> None:
        """The older connection has no more frames that wait."""
        self._deadline = self._front.after(OPENING_NS, self._too_slow)
        self._front.pump.unfinished(self)

    def _opened(self) -> None:
        if self._connected and self.lane.client is not None:
            self._front.cancel(self._deadline)

    def _too_slow(self) -> None:
        seconds = OPENING_NS // NS_PER_S
        claim = f"client {self.lane.address}: no connection with the broker within {seconds} s"
        self._front.note("too_slow", claim)
        self.fail()

    def _refuse(self, reason: str, claim: str, answer: bytes = b"") -> None:
        """Read no more of the client, and end its side; what it has sent counts."""
        self._front.note(reason, f"client {self.lane.address}: {claim}")
        self._client_ended = True
        self._to_client(answer)
        self._end_client()
        self._touch()

    def _to_client(self, data: bytes) -> None:
        # A client of TLS that has ended its side takes no more, though TLS 1.3 would permit it.
        if data and self.client.open and not self.stream.ended:
            self.client.send(self.stream.encode(data))
            self._touch()

    # The broker

    def _connect(self) -> None:
        if self._broker_ended:
            return
        self._connected = False
        spec = self._front.spec
        if spec.send_proxy and self.endpoints is not None:
            source, destination = self.endpoints
            header = proxy_header.write(self.stream.source or source, destination)
            self.broker.chunks.insert(0, header)
            self.broker.queued += len(header)
        self.broker.connect(spec.server, self._dialled)

    def _dialled(self, reason: str | None) -> None:
        if reason is not None:
            self._lost("unreachable", f"cannot connect to the broker: {reason}")
            return
        self._connected = True
        self._opened()
        self._touch()

    def _on_broker(self, events: int) -> None:
        try:
            if events & WRITE:
                self.broker.flush()
            if events & ~WRITE and self.broker.reads:
                self._read_broker()
        except Exception:
            self._front.pump.failed(self)
        if not self._touched:
            self._touch()

    def _read_broker(self) -> None:
        data = self.broker.receive()
        if data:
            try:
                self._to_client(self.returns.feed(data))
            except FrameError as error:
                self._lost("broker_malformed", f"the broker sends no frames: {error}")
                return
            if self.returns.greeted and not self._greeted:
                self._greeted = True
                self.stream.greet()
                self._front.pump.unfinished(self)
        elif data is not None:
            self._broker_ended = True

    def _lost(self, reason: str, claim: str) -> None:
        self._front.note(reason, claim)
        self._broker_ended = True
        self._touch()

    def _keep_alive(self) -> None:
        """Show the broker that the client is there, again and again while frames wait."""
        client, ping = self.lane.client, self._front.protocol.ping
        if self._broker_ended or client is None or not client.keep_alive_s or not ping:
            return
        if self._pinging is not None:
            self._pinging = None
            if not len(self.lane):
                return
            self.broker.send(ping)
            self.returns.pings += 1
            self._touch()
        self._pinging = self._front.after(client.keep_alive_s * NS_PER_S // 2, self._keep_alive)

    # The end

    def _end(self) -> None:
        """Do what is left to do when a side has ended."""
        gate = self._front.pump.gate
        if self._broker_ended:
            gate.close(self.lane)
            self._front.cancel(self._deadline)
            self._front.cancel(self._pinging)
            self._end_client()
            self.broker.close()
            if not len(self.lane) and self.client.sock is None:
                self._front.forget(self)
            return
        self.client.read(False)
        if self._frames is not None:
            return
        gate.close(self.lane)
        if self._waiting:
            return
        if self._connected is None:
            self._broker_ended = True
            self._end()
        elif self._connected and not self._end_said:
            self._end_said = True
            self._front.cancel(self._deadline)
            self._deadline = self._front.after(BROKER_END_NS, self.fail)
            self.broker.shutdown()

    @property
    def waiting(self) -> bool:
        """Whether frames wait here, or the broker has not yet seen the end behind them."""
        ends = self._client_ended and self._connected is not None
        return not self._broker_ended and (ends or self._frames is not None or self._waiting)

    @property
    def _waiting(self) -> bool:
        return bool(len(self.lane) or self.broker.chunks)

    def _end_client(self) -> None:
        if self.client.sock is not None and not self.client.ending:
            self.client.send(self.stream.last_words())
            self.client.end(CLIENT_END_NS)

    def _client_closed(self, sock: socket.socket) -> None:
        self._stamps.close(sock)
        self._touch()

    def _touch(self) -> None:
        if not self._touched:
            self._touched = True
            self._front.pump.touch(self)
