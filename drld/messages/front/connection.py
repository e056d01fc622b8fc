"""One connection of a client, with drld's connection to the broker for it.

    client ──▶ stream ──▶ gate ──▶ broker        frames; those under limits may wait
    client ◀── returns ◀────────── broker        bytes, as they come

Pressure goes back both ways by TCP. drld does not read a client while the client's frames take more
than its part of the broker's memory (`drld.messages.front.memory`). It does not read the broker
while the client does not take what drld sends.

The end. When a client ends its side, or vanishes, drld reads no more of it. drld first delivers
what the client has sent before, however long that waits. Then it ends its side towards the broker.
So the broker sees the end that the client made: DISCONNECT of MQTT keeps its place among the
frames, and without it the broker publishes the client's will. When the broker ends its side, the
client gets what the broker has sent, and then the end. Messages that still wait cannot be delivered
then, and are counted.

`drld.messages.front.opening` has the beginning, and `hand_over` the end that drld makes itself.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import chain
from ssl import SSLContext

from drld.errors import FrameError
from drld.messages.frame import Frame
from drld.messages.front.arrival import Stamps
from drld.messages.front.broker_end import BrokerEnd, Phase
from drld.messages.front.client_end import ClientEnd
from drld.messages.front.client_stream import ClientStream
from drld.messages.front.hand_over import HandOver, hand_over
from drld.messages.front.link import READ_BYTES
from drld.messages.front.memory import MOST_QUEUED, Share
from drld.messages.front.opening import STRANGER_BYTES, Opening, more_than_connect
from drld.messages.front.patience import Patience
from drld.messages.front.pump import FLOW_FRAMES
from drld.messages.front.reactor import WRITE, OwnReactor
from drld.messages.front.shared import Shared
from drld.messages.front.succession import Successive
from drld.messages.spec import BrokerSpec


class Connection:
    """A client, its frames and its broker (`drld.messages.front.pump.Flow`)."""

    __slots__ = (
        *("_frames", "_hand_over", "_leaving", "_on_end", "_opening", "_patience"),
        *("_share", "_shared", "_touched"),
        *("broker", "client", "lane", "reader", "successor"),
    )

    def __init__(
        self,
        shared: Shared,
        spec: BrokerSpec,
        sock: socket.socket,
        address: str,
        *,
        stamps: Stamps,
        context: SSLContext | None,
        on_end: Callable[[Connection], None],
    ) -> None:
        """Begin with a client that has been accepted.

        Args:
            shared: what the connections of the broker share.
            spec: the settings of the broker; they hold for this connection until it ends.
            sock: the client's socket; it never blocks.
            address: the client's address.
            stamps: the source of arrival times.
            context: makes TLS; None: the client speaks no TLS.
            on_end: is called when the connection has ended.

        Raises:
            OSError: the client has reset the connection.
        """
        protocol, pump = shared.protocol, shared.pump
        self._shared = shared
        self._on_end = on_end
        self.reader = protocol.reader(spec.max_frame, shared.topics)
        stream = ClientStream(
            self.reader,
            proxied=spec.accept_proxy,
            context=context,
            greeted=not protocol.tls_after_greeting,
        )
        # First, because it may raise OSError: nothing has to be undone then.
        reactor = OwnReactor(pump.reactor, self)
        self.client = ClientEnd(
            *(sock, stream, stamps),
            reactor=reactor,
            handler=self._on_client,
            closed=self.look,
        )
        self.lane = pump.gate.lane(shared.broker, address)
        self.successor: Successive | None = None
        self._frames: Iterator[Frame] | None = None
        """Frames of what has been read that the gate has not had; None: there are none."""
        self._leaving = False
        """Whether `leave` has been called."""
        self._hand_over: HandOver | None = None
        self._touched = False
        """Whether the connection settles at the end of this turn."""
        self._share = Share(shared.memory, self.look)
        self._patience = Patience(reactor, self._too_slow)
        self.broker = BrokerEnd(protocol, spec, reactor, self._on_broker, tls=context is not None)
        self._opening: Opening | None = Opening(
            *(shared, self, self.lane),
            stream=stream,
            returns=self.broker.returns,
            patience=self._patience,
        )
        """The beginning of the connection; None: it is over."""
        self.look()

    # The pump calls these.

    def take(self) -> None:
        """See `Flow.take`."""
        frames, pump = self._frames, self._shared.pump
        if frames is None or self.broker.ended:
            self._frames = None
            self.look()
            if self._leaving and self.client.link.reads:
                self._read_client()
            return
        arrived, arrival, read_ns = pump.arrived, self.client.segments.arrival, pump.read_ns
        left, opening = FLOW_FRAMES, self._opening
        if not self._touched:
            self.look()
        try:
            for frame in frames:
                if opening is not None:
                    if waiting := opening.held_back(frame):
                        self._frames = chain(waiting, frames)
                        return
                    if opening.done:
                        opening = self._opening = None
                at_ns = arrival(frame.end, read_ns)
                if at_ns > read_ns and pump.postpones(self, at_ns):
                    self._frames = chain((frame,), frames)
                    return
                if frame.answer:
                    self.client.answer(frame.answer, self.broker.returns)
                arrived.append((at_ns if at_ns < read_ns else read_ns, self, frame))
                left -= 1
                if not left:
                    pump.unfinished(self)
                    return
        except FrameError as error:
            self._refuse("malformed", str(error), error.answer)
        self._frames = None
        if self.client.stream.ended:
            self.client.ended = True

    def forward(self, frame: Frame) -> None:
        """See `Flow.forward`."""
        broker = self.broker
        if broker.phase is Phase.ENDED:
            self._shared.journal.counts["undelivered"] += frame.topic is not None
        elif data := (self.reader.forward(frame) if frame.alias else frame.data):
            broker.link.send(data)
        if not self._touched:
            self.look()

    def drop(self, frame: Frame) -> None:
        """See `Flow.drop`."""
        if answer := self.reader.drop(frame):
            self.client.answer(answer, self.broker.returns)
        self.look()

    def settle(self) -> None:
        """See `Flow.settle`."""
        self._touched = False
        client, broker, share = self.client, self.broker, self._share
        if broker.phase is Phase.UNBEGUN:
            early = self._shared.protocol.tls_after_greeting and client.stream.headed
            if broker.link.chunks or early:
                broker.connect(client.endpoints, self._dialled)
        elif broker.link.chunks and not broker.link.blocked:
            broker.link.flush()
        client.flush()
        # The client cannot complete a frame that has begun if drld reads no more of it.
        begun = 0 if client.ended else client.stream.held
        up = self.lane.held_bytes + broker.link.queued
        down = client.link.queued + broker.returns.held
        if share.count(up + begun + down):
            broker.keep_alive(self.lane.client, self._busy, self.look)
        if begun:
            self._patience.frame(self.reader.offset, self._begun)
            up += 0 if broker.returns.accepted else begun  # See `Share.decide`.
        if client.answered:
            client.answered = min(client.answered, down)
        share.decide(up, begun, max(broker.link.queued, client.answered))
        if self.successor is not None and not self.waits():
            self._shared.succession.pass_on(self)
        if client.ended or broker.ended:
            self._end()
        else:
            client.link.read(not share.paused and self._frames is None)
            if self._leaving and client.link.reads:
                self._shared.pump.unfinished(self)
        if broker.phase in (Phase.CONNECTED, Phase.FINISHED):
            broker.link.read(client.link.queued <= min(MOST_QUEUED, self._shared.memory.part))

    def fail(self) -> None:
        """See `Flow.fail`."""
        self.client.ended = True
        self._frames = None
        with ExitStack() as steps:  # An error in one of them leaves out no other.
            for step in (self.look, self.broker.close, self.client.link.close, self._patience.end):
                steps.callback(step)

    def abandon(self) -> None:
        """See `Flow.abandon`."""
        self._touched = True  # It does not settle any more.
        succession = self._shared.succession
        with ExitStack() as steps:
            steps.callback(self._on_end, self)
            steps.callback(succession.leave, self)
            steps.callback(succession.pass_on, self)
            steps.callback(self._share.end)
            steps.callback(self._lose)

    # The front calls these.

    def leave(self) -> None:
        """Read what the client has sent until now, deliver it, and part from the client."""
        self._leaving = True
        self.look()

    def waits(self) -> bool:
        """See `Successive.waits`."""
        if not (self._waiting or self.client.ended or self.broker.ended):
            self._frames = self.client.receive()
            if self._frames is not None:
                self.client.link.read(False)
                self._shared.pump.unfinished(self)
        return self._waiting

    def succeed(self) -> None:
        """See `Successive.succeed`."""
        if self._opening is not None:
            self._opening.succeed()

    def followed(self, *, same: bool) -> None:
        """See `Successive.followed`."""
        if same and self.client.read_last(paused=self._share.paused):
            self._note("taken_over", "another connection has come with its identifier")
        self.look()

    def give_way(self) -> None:
        """See `Successive.give_way`."""
        if self._frames is not None:
            # What has come meanwhile is read only now.
            later = self.client.receive(STRANGER_BYTES) or ()
            self._frames = more_than_connect(chain(self._frames, later))
        if self._frames is None:
            self.broker.phase = Phase.ENDED
            self.look()

    def look(self) -> None:
        """Settle at the end of this turn."""
        if not self._touched:
            self._touched = True
            self._shared.pump.touch(self)

    # The client

    def _on_client(self, events: int) -> None:
        if events & WRITE:
            self.client.link.flush()
        if events & ~WRITE and self.client.link.reads:
            self._read_client()
        if not self._touched:
            self.look()

    def _read_client(self) -> None:
        if self.client.stream.shakes and not self._shared.pump.shakes():
            return
        most = READ_BYTES if self.broker.returns.accepted else STRANGER_BYTES
        frames = self.client.receive(most)
        if frames is not None:
            self._frames = frames
            self.take()
        elif self._leaving and not self.client.ended:
            self.client.ended = True
            self._hand_over = hand_over(
                self._shared.protocol, self.lane.client, self.client, self.broker
            )

    def _begun(self) -> int | None:
        """See `Patience.frame`."""
        waits = self._frames is not None or len(self.lane) or self.broker.link.queued
        return None if waits or not self.client.stream.held else self.reader.offset

    def _too_slow(self, claim: str) -> None:
        self._note("too_slow", claim)
        self.fail()

    def _note(self, reason: str, claim: str) -> None:
        endpoints = self.client.stream.endpoints
        address = endpoints.source[0] if endpoints is not None else self.lane.address
        self._shared.journal.note(reason, f"client {address}: {claim}")

    def _refuse(self, reason: str, claim: str, answer: bytes = b"") -> None:
        """Read no more of the client, and end its side; drld still delivers what it has sent."""
        self._note(reason, claim)
        self.client.ended = True
        self.client.send(answer)
        self.client.end()

    # The broker

    def _dialled(self, reason: str | None) -> None:
        if reason is not None:
            self._lost("unreachable", f"cannot connect to the broker: {reason}")
        else:
            self.look()

    def _on_broker(self, events: int) -> None:
        link = self.broker.link
        if events & WRITE:
            link.flush()
        if events & ~WRITE and link.reads:
            self._read_broker()
        self.look()

    def _read_broker(self) -> None:
        returns = self.broker.returns
        before = returns.greeted, returns.accepted
        try:
            data = self.broker.receive(stands_in=self._busy() or not self.client.link.reads)
        except FrameError as error:
            self._lost("server_malformed", f"the broker sends no frames: {error}")
            return
        self.client.send(data)
        if (returns.greeted, returns.accepted) != before:
            if returns.greeted:
                self.client.stream.greet()
            if returns.accepted and self._opening is not None:
                self._opening.accepted()
            self._shared.pump.unfinished(self)

    def _lost(self, reason: str, claim: str) -> None:
        self._shared.journal.note(reason, claim)
        self.broker.phase = Phase.ENDED
        self.look()

    def _busy(self) -> bool:
        """Whether the broker may hear nothing of a client that sends frames."""
        return bool(len(self.lane) or self.client.stream.held)

    # The end

    def _end(self) -> None:
        """Do what is left to do when a side has ended."""
        gate, broker, client = self._shared.pump.gate, self.broker, self.client
        if broker.phase is Phase.ENDED:
            self._lose()
            self._patience.end()
            client.end()
            broker.close()
            if client.link.sock is None:
                self.abandon()
            return
        client.link.read(False)
        if self._frames is not None:
            return
        if self._hand_over is None:
            client.forget()
        gate.close(self.lane)
        if self._undelivered:
            return
        if broker.phase is Phase.UNBEGUN:
            broker.phase = Phase.ENDED
            self._end()
        elif broker.phase is Phase.CONNECTED:
            if self._hand_over is not None and not self._hand_over.done():
                return
            broker.finish(self.fail)

    def _lose(self) -> None:
        self._shared.journal.counts["undelivered"] += self._shared.pump.gate.lose(self.lane)

    @property
    def _waiting(self) -> bool:
        """Whether frames wait here, or the broker has not yet seen the end behind them."""
        ends = self.client.ended and self.broker.phase is not Phase.UNBEGUN
        return not self.broker.ended and (ends or self._frames is not None or self._undelivered)

    @property
    def _undelivered(self) -> bool:
        return bool(len(self.lane) or self.broker.link.chunks)
