"""The pump: one task moves the messages of all connections, without a task or an await for each.

A turn does what is ready, at once:

1. It reads the sockets that are ready, and cuts what came into frames.
2. It brings the frames of all connections into the order of their arrival, and offers them to the
   gate in that order: sockets are ready in an order of their own (SRTM 2021, section V-B; a bucket
   whose time has passed cannot go back).
3. It takes out of the gate what may leave by now.
4. It sends what has collected, once for each socket.

Bounds. A turn reads about `TURN_FRAMES` frames, each connection at most `FLOW_FRAMES` more. It
keeps the events and frames beyond that for the next turn, which begins with them: so no connection
waits behind another one for longer than a turn. After `BUDGET_NS` of turns the other tasks of the
daemon get theirs.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from itertools import islice
from operator import itemgetter
from typing import Protocol

import trio

from drld.log_event import event
from drld.messages.frame import Frame
from drld.messages.front.reactor import Reactor
from drld.messages.gate import Fate, Gate, Lane

log = logging.getLogger(__name__)

TURN_FRAMES = 512
FLOW_FRAMES = 128
BUDGET_NS = 2_000_000
"""About what a tick of the engine may be late by."""

_arrival = itemgetter(0)


class Source(Protocol):
    """Tells when bytes arrived (`drld.messages.front.stamp_source.Stamps`)."""

    def drain(self) -> None:
        """Take what is known: at the start of each turn."""


class Flow(Protocol):
    """A connection, as the pump knows it."""

    lane: Lane

    def take(self) -> None:
        """Add frames of what has been read to `Pump.arrived`."""

    def forward(self, frame: Frame) -> None:
        """Send a frame to the broker when the turn ends."""

    def drop(self, frame: Frame) -> None:
        """Do not send a frame."""

    def settle(self) -> None:
        """Send what has collected, and find out what to do next: at the end of a turn."""

    def fail(self) -> None:
        """Close: something that concerns it has raised an error."""


class Pump:
    """Moves the messages of all brokers of a daemon."""

    def __init__(self, gate: Gate, clock: Callable[[], int]) -> None:
        """`clock`: monotonic time, ns."""
        self.reactor = Reactor(clock)
        self.gate = gate
        self.sources: list[Source] = []
        """Of arrival times."""
        self.flows: dict[Lane, Flow] = {}
        self.arrived: list[tuple[int, Flow, Frame]] = []
        """Frames of this turn, with their arrival times, in their order of each connection."""
        self.read_ns = 0
        """When this turn began."""
        self.handshakes = 0
        """Steps of handshakes in this turn."""
        self.errors = 0
        self._events: deque[tuple[int, int]] = deque()
        self._unfinished: deque[Flow] = deque()
        self._touched: list[Flow] = []
        self._closed = False

    def touch(self, flow: Flow) -> None:
        """Have a connection settle at the end of the turn; call it once until then."""
        self._touched.append(flow)

    def unfinished(self, flow: Flow) -> None:
        """Have the next turn take more frames of a connection."""
        self._unfinished.append(flow)

    def wake(self) -> None:
        """Turn soon if something is due earlier than it was: the gate has changed."""
        self.reactor.wake(self.gate.due_ns)

    async def run(self) -> None:
        """Turn until cancelled, or closed."""
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
        """Do what is ready; return whether something was."""
        reactor, arrived = self.reactor, self.arrived
        self.read_ns = reactor.clock()
        self.handshakes = 0
        for source in self.sources:
            source.drain()
        unfinished, events = self._unfinished, self._events
        for _ in range(len(unfinished)):
            if len(arrived) >= TURN_FRAMES:
                break
            self._guard(unfinished[0], unfinished.popleft().take)
        if not events:
            events.extend(reactor.events())
        busy = bool(events or unfinished or arrived)
        while events and len(arrived) < TURN_FRAMES:
            reactor.handle(*events.popleft())
        if arrived:
            self._offer()
        now_ns = reactor.clock()
        reactor.deadlines.run(now_ns)
        due_ns = self.gate.due_ns
        if due_ns is not None and due_ns <= now_ns:
            self._release(now_ns)
        touched = self._touched
        while touched:
            flow = touched.pop()
            self._guard(flow, flow.settle)
        reactor.wake(self.gate.due_ns)
        return busy

    def close(self) -> None:
        """Close the descriptors."""
        self._closed = True
        self.reactor.close()

    def _offer(self) -> None:
        arrived, offer = self.arrived, self.gate.offer
        arrived.sort(key=_arrival)
        for at_ns, flow, frame in arrived:
            fate = offer(flow.lane, frame, at_ns)
            if fate is Fate.FORWARD:
                flow.forward(frame)
            elif fate is Fate.DROP:
                flow.drop(frame)
        arrived.clear()

    def _release(self, now_ns: int) -> None:
        flows = self.flows
        # What is left is due still, and the next turn goes on with it.
        for lane, frame, fate in islice(self.gate.release(now_ns), TURN_FRAMES):
            flow = flows[lane]
            if fate is Fate.DROP:
                flow.drop(frame)
            else:
                flow.forward(frame)

    def _guard(self, flow: Flow, act: Callable[[], None]) -> None:
        """Act for a connection; an error of the program ends this one, and no other."""
        try:
            act()
        except Exception:
            self.failed(flow)

    def failed(self, flow: Flow) -> None:
        """End a connection in whose course an exception has been raised; call this when it is
        handled."""
        self.errors += 1
        log.exception("error in a connection, which ends", extra=event("broker.error"))
        flow.fail()
