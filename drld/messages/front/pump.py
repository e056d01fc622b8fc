"""The pump: one task moves the messages of all connections, without a task or an await for each.

A turn does all that is possible at once:

1. It reads the sockets that are ready, and cuts the bytes into frames.
2. It sorts the frames of all connections by their arrival, and offers them to the gate in that
   order. Sockets are ready in an order of their own, and a bucket cannot go back in time (SRTM
   2021, section V-B).
3. It takes the frames out of the gate that may leave by now.
4. It sends the output that has collected, once for each socket.

Bounds. A turn reads about `TURN_FRAMES` frames, and at most `FLOW_FRAMES` more of one connection.
After `READ_NS` it reads no further socket, because many bytes may make few frames. This is
processor time: a turn that busy processes have interrupted still reads all sockets that are ready.
It keeps the events and frames beyond that for the next turn, which begins with them. So no
connection waits behind another one for longer than a turn. After `BUDGET_NS` of turns, the daemon's
other tasks have their time.

A frame that arrived after the turn began belongs to the next turn. A turn may be interrupted at any
place for as long as busy processes take. Sockets that have become ready meanwhile are read in the
next turn, and their frames may have arrived earlier.

After a stop of the daemon, all sockets are ready, with more frames than these. Charged in several
turns, conforming messages would wait: a bucket that has taken in a later message is not as full as
it was. So if the first frame of a socket is older than `READ_NS`, the turn has no bound on frames:
it reads all sockets that are ready once, for `READ_NS` at most. Only messages beyond that time, or
beyond `drld.messages.front.link.READ_BYTES` of a socket, come in a later turn.

Turns follow each other without the event loop only while several sockets are ready, or something is
left to do. Messages that come one by one would cost a second turn each, which finds nothing.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from itertools import islice
from operator import itemgetter
from typing import Protocol

import trio

from drld.log_event import event
from drld.messages.frame import Frame
from drld.messages.front.deadlines import Owner
from drld.messages.front.reactor import Reactor
from drld.messages.gate import Fate, Gate, Lane

log = logging.getLogger(__name__)

TURN_FRAMES = 512
"""Frames of one turn: messages whose tokens have come leave at its end."""
FLOW_FRAMES = 128
"""Frames of one connection in a turn: a quarter, so that a fast client leaves time for others."""
BUDGET_NS = 2_000_000
"""The time of turns after which other tasks run."""
READ_NS = 20_000_000
"""The processor time for which a turn reads sockets; a tick of the engine may be so late. It is
enough for some thousand frames."""

HANDSHAKES = 4
"""Steps of TLS handshakes in a turn; one takes about 1 ms with RSA of 2048 bits."""

_arrival = itemgetter(0)


class Source(Protocol):
    """A source of arrival times (`drld.messages.front.arrival.Stamps`)."""

    def drain(self) -> None:
        """Take in the times that are known: at the start of each turn."""


class Flow(Owner, Protocol):
    """The part of a connection that the pump uses."""

    lane: Lane

    def take(self) -> None:
        """Add frames of the bytes that have been read to `Pump.arrived`."""

    def forward(self, frame: Frame) -> None:
        """Send a frame to the broker when the turn ends."""

    def drop(self, frame: Frame) -> None:
        """Do not send a frame, and acknowledge it to the client."""

    def settle(self) -> None:
        """Send the output, and decide what to do next: at the end of a turn."""

    def abandon(self) -> None:
        """Forget the connection at once: to settle has raised an error again, after `fail`."""


class Pump:
    """Moves the messages of all brokers of a daemon."""

    def __init__(
        self,
        gate: Gate,
        clock: Callable[[], int],
        processor: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        """Begin without connections.

        Args:
            gate: the limits.
            clock: monotonic time, ns.
            processor: processor time of the thread, ns.
        """
        self.reactor = Reactor(clock, self.failed)
        self.gate = gate
        gate.failed = self._limit_failed
        self.sources: list[Source] = []
        """The sources of arrival times."""
        self.flows: dict[Lane, Flow] = {}
        """The connections by their lanes in the gate."""
        self.arrived: list[tuple[int, Flow, Frame]] = []
        """The frames of this turn with their arrival times, in the order of each connection."""
        self.read_ns = 0
        """The time at which this turn began."""
        self.errors = 0
        """The number of errors in the program; each has ended the connection that it was in."""
        self._processor = processor
        self._read_until_ns = 0
        """The processor time until which a turn reads; of an earlier turn if one socket is ready,
        because only the order of several matters."""
        self._events: deque[tuple[int, int]] = deque()
        self._unfinished: deque[Flow] = deque()
        self._postponed: list[Flow] = []
        """The connections with frames that arrived after this turn began."""
        self._touched: list[Flow] = []
        self._handshakes = 0
        """The number of steps of TLS handshakes in this turn."""
        self._closed = False

    def touch(self, flow: Flow) -> None:
        """Let a connection settle at the end of the turn; the caller does this once until then."""
        self._touched.append(flow)

    def unfinished(self, flow: Flow) -> None:
        """Let the next turn take more frames of a connection."""
        self._unfinished.append(flow)

    def postpones(self, flow: Flow, arrived_ns: int) -> bool:
        """Let the next turn take a frame that arrived after this turn began.

        Returns whether it does: not if the time is still to come, so it is of another clock.
        """
        if arrived_ns > self.reactor.clock():
            return False
        self._postponed.append(flow)
        return True

    def shakes(self) -> bool:
        """Count a step of a TLS handshake; return whether this turn has time for it."""
        self._handshakes += 1
        return self._handshakes <= HANDSHAKES

    def wake(self) -> None:
        """Begin a turn in time: the gate has changed, or a connection outside of a turn."""
        self.reactor.wake(self.reactor.clock() if self._touched else self.gate.due_ns)

    async def run(self) -> None:
        """Take turns until cancelled or closed."""
        clock = self.reactor.clock
        while not self._closed:
            if self._events or self._unfinished:
                await trio.lowlevel.checkpoint()
            else:
                await trio.lowlevel.wait_readable(self.reactor.fileno())
            until_ns = clock() + BUDGET_NS
            while not self._closed and self.turn() and clock() < until_ns:
                pass

    def turn(self) -> bool:
        """Do all that is possible now; return whether another turn is likely to have work."""
        reactor, arrived = self.reactor, self.arrived
        self.read_ns = reactor.clock()
        self._handshakes = 0
        for source in self.sources:
            source.drain()
        several = self._read()
        if arrived:
            self._offer()
        now_ns = reactor.clock()
        reactor.deadlines.run(now_ns, self._guard)
        due_ns = self.gate.due_ns
        if due_ns is not None and due_ns <= now_ns:
            self._release(now_ns)
        self._settle()
        reactor.wake(self.gate.due_ns)
        return several or bool(self._events or self._unfinished)

    def close(self) -> None:
        """Close the descriptors."""
        self._closed = True
        self.reactor.close()

    def _read(self) -> bool:
        """Read sockets, up to the bounds of a turn; return whether several are ready."""
        reactor, arrived = self.reactor, self.arrived
        unfinished, events = self._unfinished, self._events
        for _ in range(len(unfinished)):
            if len(arrived) >= TURN_FRAMES:
                break
            self._take()
        if not events:
            events.extend(reactor.events())
        several = len(events) > 1
        if several:
            self._read_until_ns = self._processor() + READ_NS
        late_ns = self.read_ns - READ_NS
        # Frames that were left over may be old although the daemon is in time.
        first, late = len(arrived), False
        while events and (late or len(arrived) < TURN_FRAMES):
            reactor.handle(*events.popleft())
            if events and self._has_read():
                break
            late = late or (len(arrived) > first and arrived[first][0] < late_ns)
        while late and unfinished and not self._has_read():
            self._take()
        unfinished.extend(self._postponed)
        self._postponed.clear()
        return several

    def _has_read(self) -> bool:
        """Whether this turn has read for `READ_NS`."""
        # Processor time takes a system call, and is never more than the time that has passed.
        passed_ns = self.reactor.clock() - self.read_ns
        return passed_ns >= READ_NS and self._processor() >= self._read_until_ns

    def _take(self) -> None:
        """Take more frames of the first connection that has some."""
        flow = self._unfinished.popleft()
        self._guard(flow, flow.take)

    def _offer(self) -> None:
        arrived, offer = self.arrived, self.gate.offer
        arrived.sort(key=_arrival)
        for at_ns, flow, frame in arrived:
            try:
                fate = offer(flow.lane, frame, at_ns)
                if fate is Fate.FORWARD:
                    flow.forward(frame)
                elif fate is Fate.DROP:
                    flow.drop(frame)
            except Exception:
                self.failed(flow)
        arrived.clear()

    def _release(self, now_ns: int) -> None:
        flows = self.flows
        # The next turn goes on with the frames that are left.
        for lane, frame, fate in islice(self.gate.release(now_ns), TURN_FRAMES):
            flow = flows[lane]
            try:
                if fate is Fate.DROP:
                    flow.drop(frame)
                else:
                    flow.forward(frame)
            except Exception:
                self.failed(flow)

    def _settle(self) -> None:
        """Let all connections settle that something has happened to."""
        touched, failed = self._touched, set[Flow]()
        while touched:
            flow = touched.pop()
            try:
                flow.settle()
            except Exception:
                self._log("in a connection, which ends")
                if flow in failed:
                    self._end(flow.abandon)
                    touched[:] = [other for other in touched if other is not flow]
                else:  # It settles again, to end.
                    failed.add(flow)
                    self._end(flow.fail)

    def _guard(self, owner: Owner | None, act: Callable[[], None]) -> None:
        """Act for a connection, or for none; an error of the program ends this connection alone."""
        try:
            act()
        except Exception:
            self.failed(owner)

    def failed(self, owner: Owner | None) -> None:
        """Log and count the exception that the caller handles, and end the connection of it."""
        self._log("outside of connections" if owner is None else "in a connection, which ends")
        if owner is not None:
            self._end(owner.fail)

    def _limit_failed(self, involved: Callable[[Lane], bool]) -> None:
        """See `Gate.failed`."""
        self._log("in a limit; the connections whose messages wait for it end")
        for flow in [flow for lane, flow in self.flows.items() if involved(lane)]:
            self._end(flow.fail)

    def _end(self, end: Callable[[], None]) -> None:
        """End a connection in which an error was; an error in that end concerns no other."""
        try:
            end()
        except Exception:
            self._log("at the end of a connection")

    def _log(self, where: str) -> None:
        """Log and count the exception that the caller handles."""
        self.errors += 1
        log.exception("error %s", where, extra=event("broker.error"))
