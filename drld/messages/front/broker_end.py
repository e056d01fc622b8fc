"""The end of a connection at the broker: drld's socket there, and what comes back on it.

Keep-alive. A broker of MQTT ends a connection on which nothing comes for 1.5 times its keep-alive.
While the client's frames wait, or one of them is on its way, drld sends pings of its own. It keeps
their answers from the client. The broker may have heard nothing for a whole keep-alive when a frame
comes that waits. So drld's first ping comes a quarter of it later, and so does each further one.

A NATS server asks instead, and ends a connection that does not answer. While the client's frames
wait, its PONG is behind them, and drld may not read it at all. So drld answers in its place, and
the client does not get the server's PING.

The verdict. A broker says whether it accepts a client: MQTT by CONNACK, NATS by the answer to a
PING behind CONNECT. `Returns.accepted` has this verdict. drld asks a NATS server itself (`ask`),
because a client need not.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from drld.errors import FrameError
from drld.messages import proxy_header
from drld.messages.frame import Client
from drld.messages.front.deadlines import Deadline
from drld.messages.front.link import Link
from drld.messages.front.reactor import Handler, OwnReactor
from drld.messages.protocols import Protocol
from drld.messages.proxy_header import Endpoints
from drld.messages.spec import BrokerSpec
from drld.model import NS_PER_S

END_NS = 60 * NS_PER_S
"""Time for a broker to read what is left, and to end, when the client has ended."""


class Phase(Enum):
    """What drld's connection to the broker has come to."""

    UNBEGUN = "unbegun"
    DIALLING = "dialling"
    CONNECTED = "connected"
    FINISHED = "finished"
    """drld has told the broker that nothing follows."""
    ENDED = "ended"
    """drld can send nothing to the broker any more."""


class BrokerEnd:
    """The broker of a connection."""

    __slots__ = ("_end", "_ping_due", "_protocol", "_reactor", "_spec", "link", "phase", "returns")

    def __init__(
        self,
        protocol: Protocol,
        spec: BrokerSpec,
        reactor: OwnReactor,
        handler: Handler,
        *,
        tls: bool,
    ) -> None:
        """Do not connect yet.

        Args:
            protocol: the broker's.
            spec: the settings of the broker.
            reactor: watches the socket.
            handler: gets the events of the socket.
            tls: whether the client speaks TLS.
        """
        self._protocol = protocol
        self._spec = spec
        self._reactor = reactor
        self.link = Link(reactor, handler)
        self.returns = protocol.returns(spec.max_frame, tls=tls)
        self.phase = Phase.UNBEGUN
        self._end: Deadline | None = None
        """The time at which the broker must have ended; None: it need not end yet."""
        self._ping_due: Deadline | None = None
        """The time of drld's next ping; None: drld need not send any."""

    @property
    def ended(self) -> bool:
        """Whether drld can send nothing to the broker any more."""
        return self.phase is Phase.ENDED

    def connect(self, client: Endpoints | None, done: Callable[[str | None], None]) -> None:
        """Connect to the broker.

        Args:
            client: the client's addresses, for the header of the PROXY protocol before all frames,
                if the broker is to have one; None: by a unix socket.
            done: gets the reason if it is not possible, or None. It may be called at once.
        """
        self.phase = Phase.DIALLING
        if self._spec.send_proxy:
            header = proxy_header.write(client)
            self.link.chunks.insert(0, header)
            self.link.queued += len(header)

        def dialled(reason: str | None) -> None:
            if reason is None and self.phase is Phase.DIALLING:
                self.phase = Phase.CONNECTED
            done(reason)

        self.link.connect(self._spec.server, dialled)

    def receive(self, *, stands_in: bool) -> bytes:
        """Read what the broker has sent; return what of it is for the client.

        Args:
            stands_in: whether drld answers pings of the broker in the client's place.

        Raises:
            FrameError: the broker sends no frames of its protocol.
        """
        data = self.link.receive()
        if data:
            returns = self.returns
            returns.stands_in = stands_in
            try:
                passed = returns.feed(data)
            except FrameError:
                self.phase = Phase.ENDED
                raise
            if returns.asked and self.phase is Phase.CONNECTED:
                self.link.send(self._protocol.pong * returns.asked)
                returns.asked = 0
            return passed
        if data is not None:
            self.phase = Phase.ENDED
        return b""

    def ping(self) -> None:
        """Send a ping of drld's; its answer does not reach the client."""
        self.link.send(self._protocol.ping)
        self.returns.pings += 1

    def keep_alive(
        self, client: Client | None, needed: Callable[[], bool], sent: Callable[[], None]
    ) -> None:
        """Show the broker that the client is there, as long as that is needed.

        Args:
            client: the client's own words, with its keep-alive; one of the broker's own takes its
                place. None: the client has said none yet.
            needed: whether frames of the client's still wait.
            sent: is called when a ping is to be sent in this turn.
        """
        if client is None or not self.returns.accepted or not self._protocol.keep_alive:
            return
        own = self.returns.keep_alive_s
        seconds = client.keep_alive_s if own is None else own
        if self._ping_due is not None or not seconds or not needed():
            return

        def due() -> None:
            self._ping_due = None
            if needed() and not self.ended:
                self.ping()
                sent()
                self.keep_alive(client, needed, sent)

        self._ping_due = self._reactor.after(seconds * NS_PER_S // 4, due)

    def finish(self, give_up: Callable[[], None]) -> None:
        """Tell the broker that nothing follows; call `give_up` if it has not ended in `END_NS`."""
        self.phase = Phase.FINISHED
        self.link.shutdown()
        self._end = self._reactor.after(END_NS, give_up)

    def close(self) -> None:
        """Close the connection at once."""
        self.phase = Phase.ENDED
        self._reactor.cancel(self._ping_due)
        self._reactor.cancel(self._end)
        self.link.close()
