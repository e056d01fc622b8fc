"""How messages pass the limits: each limit that they fall under, in the order of their connection.

A message waits at each of its limits in turn, in the order of the configuration, and is charged at
each as it passes. It comes to the first limit at its arrival, though messages of its connection
wait before it (SRTM 2021, section V-B). It comes to each further one when it has passed the one
before. The order of its connection holds: it leaves once it has passed all limits, and all messages
before it have left. So the bound b + r dt of a limit counts messages as they are charged.

Frames that are no messages, and messages under no limit, only keep their place. A message that a
limit drops keeps its place too, because the acknowledgements for the client have an order.

Each client's connection is a `Lane`, and a `Held` is one of its frames that does not leave at once.
A `Stage` is a limit as messages come to it. A `Queue` is the place where messages wait for one
bucket. `drld.messages.waiting.WaitingBucket` is both: a `Hold`, which is a bucket with the messages
that wait for it, and the calls by which the gate schedules it.

Everything happens at the times of arrivals and of tokens, whenever the daemon carries it out:
before a message arrives, those leave that had their tokens by then. Only a daemon that has stood
still lets out no more than a full bucket (`drld.messages.hold`).
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from heapq import heapify, heappop, heappush
from operator import is_
from typing import Protocol

from drld.messages.frame import Client, Frame, Place
from drld.messages.hold import Released
from drld.messages.topics import Notation, Topics

_BESIDE = 512
"""Bytes that a frame takes while it waits, beside its data and its topic's letters: some 480 in
CPython 3.11, with the topic that the trie remembers."""

_NO_STAGES: Iterator[Stage] = iter(())
_FEW = 64
"""Entries without effect that stay in the schedule in any case."""


class Fate(enum.Enum):
    """What happens to a frame."""

    FORWARD = "forward"
    WAIT = "wait"
    """`Gate.release` returns the frame later."""
    DROP = "drop"


class Lane:
    """One connection of a client, with its frames that wait, in their order."""

    __slots__ = ("address", "broker", "client", "frames", "held_bytes", "lost", "number", "topics")

    def __init__(
        self, broker: str, topics: Topics[Stage] | None, address: str, number: int
    ) -> None:
        self.broker = broker
        """The name of the broker."""
        self.address = address
        """The address from which the client connects."""
        self.number = number
        """The number of the connection; the first one of the daemon has 1."""
        self.client: Client | None = None
        """The client's own words about itself; None until it has connected."""
        self.held_bytes = 0
        """Memory of the frames that wait."""
        self.lost = False
        """Whether its frames can reach no broker any more."""
        self.topics = topics
        """The limits of the broker; None: it has none."""
        self.frames: deque[Held] = deque()
        """The frames that wait; only the gate changes them."""

    def __len__(self) -> int:
        """The number of frames that wait."""
        return len(self.frames)

    def waits_in(self, queue: Queue) -> bool:
        """Whether one of its messages waits in this queue."""
        return any(it.queue is queue and it.fate is Fate.WAIT for it in self.frames)


class Held:
    """A frame that does not leave at once."""

    __slots__ = ("_rest", "arrived_ns", "came_ns", "fate", "frame", "lane", "queue")

    def __init__(self, lane: Lane, frame: Frame, rest: Iterator[Stage], arrived_ns: int) -> None:
        """Hold a frame that has arrived now, and has `rest` of the limits before it."""
        self.lane = lane
        self.frame = frame
        self._rest = rest
        self.arrived_ns = arrived_ns
        self.came_ns = 0
        """The time at which the frame came to the limit that it waits at."""
        self.fate = Fate.WAIT
        """`WAIT` until the frame has passed all limits."""
        self.queue: Queue | None = None
        """The queue that the frame has come to last."""

    def walk(self, now_ns: int) -> bool:
        """Come to the next limits from now on, until the frame does not pass one at once.

        Returns whether its fate is known: it does not wait at any limit.
        """
        return self.settle(_enter(self._rest, self.lane, now_ns), now_ns)

    def settle(self, found: Fate | Queue, now_ns: int) -> bool:
        """Take the fate that the frame has found now, or wait in the queue.

        Returns whether its fate is known.
        """
        if isinstance(found, Fate):
            self.fate = found
            return True
        self.came_ns = now_ns
        self.queue = found
        found.wait(self, now_ns)
        return False


class Stage(Protocol):
    """One limit, as a message comes to it."""

    def enter(self, lane: Lane, now_ns: int) -> Fate | Queue:
        """Take in a message of this connection that comes now.

        Returns `FORWARD` or `DROP`, or the queue in which the message must wait. So the many
        messages that pass all limits at once need no object of their own.
        """


def _enter(stages: Iterator[Stage], lane: Lane, now_ns: int) -> Fate | Queue:
    """Come to these limits until a message does not pass one at once."""
    for stage in stages:
        found = stage.enter(lane, now_ns)
        if found is not Fate.FORWARD:
            return found
    return Fate.FORWARD


class Queue(Protocol):
    """The messages that wait for one bucket."""

    def wait(self, message: Held, now_ns: int) -> None:
        """Take in a message that comes now; `release` returns it later."""

    @property
    def due_ns(self) -> int | None:
        """The time at which the next message may leave; None: none will."""

    def release(self, now_ns: int, until_ns: int) -> Iterable[Released[Held]]:
        """Take out the messages that had their tokens by `until_ns`.

        If the daemon has stood still until now, the queue may be due later than it said.
        """

    def withdraw_lost(self) -> None:
        """Throw away the messages of lost connections; those that waited use no token."""


def _raise(involved: Callable[[Lane], bool]) -> None:  # noqa: ARG001 -- see `Gate.failed`
    """Raise the error that is being handled."""
    raise  # noqa: PLE0704 -- there is always one


class Gate:
    """All connections of a daemon, and the limits on their messages."""

    def __init__(self) -> None:
        self.failed: Callable[[Callable[[Lane], bool]], None] = _raise
        """A function that is called while an error in one limit is handled. It ends the connections
        for which its argument is true, because their messages cannot pass the limit."""
        self.held_bytes = 0
        """Memory of the frames that wait, of all connections."""
        self.unmatched = 0
        """The number of messages that fell under no limit."""
        self.expired = 0
        """The number of messages whose expiry interval was over before they could leave."""
        self._topics: dict[str, Topics[Stage]] = {}
        """The limits by the names of brokers."""
        self._opened = 0
        """The number of connections since the daemon started."""
        self._lanes: dict[Lane, None] = {}
        """The open connections, in their order."""
        self._schedule: list[tuple[int, int, Queue]] = []
        """A heap of the times at which queues are due; a number orders those of one time."""
        self._scheduled: dict[Queue, int] = {}
        """The number of each queue's valid entry in the heap."""
        self._number = 0
        self._ready: deque[Lane] = deque()
        """Connections with frames that may leave now."""
        self._with_lost: set[Queue] = set()
        """Queues with messages of lost connections."""
        self._now_ns = 0

    def lane(self, broker: str, address: str = "") -> Lane:
        """Begin a connection to a broker, of a client at this address."""
        self._opened += 1
        lane = Lane(broker, self._topics.get(broker), address, self._opened)
        self._lanes[lane] = None
        return lane

    def close(self, lane: Lane) -> None:
        """Take no more frames of a connection; those that wait leave as they would."""
        self._lanes.pop(lane, None)

    def lose(self, lane: Lane) -> int:
        """Throw away the frames of a connection that wait, as nothing can be sent to its broker.

        Returns the number of messages among them.
        """
        self.close(lane)
        lane.lost = True
        messages = 0
        for held in lane.frames:
            messages += held.frame.topic is not None
            if held.fate is Fate.WAIT and held.queue is not None:
                # Many connections are lost at a time: each queue is gone through once for all.
                self._with_lost.add(held.queue)
        lane.frames.clear()
        self.held_bytes -= lane.held_bytes
        lane.held_bytes = 0
        return messages

    def set_limits(
        self, limits: Mapping[str, tuple[Notation, Iterable[tuple[str, Stage]]]]
    ) -> None:
        """Have these limits from now on; messages that wait stay under theirs.

        Args:
            limits: by the names of brokers, the notation of their filters, and the filters in the
                order of the configuration.

        Raises:
            ValueError: a filter is not in the notation.
        """
        topics = {name: Topics(filters, notation) for name, (notation, filters) in limits.items()}
        self._topics = topics
        for lane in self._lanes:
            lane.topics = topics.get(lane.broker)

    def offer(self, lane: Lane, frame: Frame, arrived_ns: int) -> Fate:
        """Take in the next frame of a connection.

        Args:
            lane: the connection.
            frame: the frame behind the connection's last one.
            arrived_ns: the time at which its last byte arrived. Arrivals come in their order, of
                all connections; an earlier one counts at the time that its limit has reached.
        """
        if frame.place is Place.OVERTAKES:
            return Fate.FORWARD
        if self._schedule and self._schedule[0][0] <= arrived_ns:
            self._advance(arrived_ns)
        stage, rest = None, _NO_STAGES
        if (topic := frame.topic) is not None:
            if (topics := lane.topics) is not None:
                # Without the call for a topic that has come before.
                if topic.found_in is not topics.identity:
                    topics.match(topic)
                stage = topic.first
                if topic.others:
                    rest = iter(topic.others)
            if stage is None:
                self.unmatched += 1
        frames = lane.frames
        found = Fate.FORWARD if stage is None else stage.enter(lane, arrived_ns)
        if rest is not _NO_STAGES and found is Fate.FORWARD:
            found = _enter(rest, lane, arrived_ns)
        if not frames and isinstance(found, Fate):
            return found
        held = Held(lane, frame, rest, arrived_ns)
        held.settle(found, arrived_ns)
        frames.append(held)
        lane.held_bytes += (size := memory(frame))
        self.held_bytes += size
        return Fate.WAIT

    def release(self, now_ns: int) -> Iterator[tuple[Lane, Frame, Fate]]:
        """Take out the frames that may leave by now, in the order of each connection.

        Yields the connection, the frame, and `FORWARD` or `DROP`. Messages that have expired are
        dropped; others have the rest of their expiry interval.
        """
        self._advance(now_ns)
        while self._ready:
            lane = self._ready[0]
            frames = lane.frames
            while frames and frames[0].fate is not Fate.WAIT:
                held = frames.popleft()
                lane.held_bytes -= (size := memory(held.frame))
                self.held_bytes -= size
                frame, fate = held.frame, held.fate
                if frame.expiry_at and fate is Fate.FORWARD:
                    if (aged := frame.aged(now_ns - held.arrived_ns)) is not None:
                        frame = aged
                    else:
                        fate = Fate.DROP
                        self.expired += 1
                yield lane, frame, fate
            self._ready.popleft()

    @property
    def due_ns(self) -> int | None:
        """The time at which `release` next has something, or soon before; None: never, as things
        are."""
        if self._ready or self._with_lost:
            return self._now_ns
        schedule = self._schedule
        while schedule and self._scheduled.get(schedule[0][2]) != schedule[0][1]:
            heappop(schedule)
        return schedule[0][0] if schedule else None

    def schedule(self, queue: Queue) -> None:
        """Ask the queue again for the time at which it is due."""
        if (due_ns := queue.due_ns) is None:
            self._scheduled.pop(queue, None)
            return
        self._number += 1
        self._scheduled[queue] = self._number
        heappush(self._schedule, (due_ns, self._number, queue))
        if len(self._schedule) > 2 * len(self._scheduled) + _FEW:
            # Entries that are not valid any more, as rates have changed.
            valid = self._scheduled
            self._schedule[:] = [it for it in self._schedule if valid.get(it[2]) == it[1]]
            heapify(self._schedule)

    def _advance(self, now_ns: int) -> None:
        """Move on the messages that get their tokens by now, in the order of these times."""
        self._now_ns = max(self._now_ns, now_ns)
        while self._with_lost:
            queue = self._with_lost.pop()
            try:
                queue.withdraw_lost()
            except Exception:
                self.failed(partial(Lane.waits_in, queue=queue))
        schedule, scheduled = self._schedule, self._scheduled
        while schedule and schedule[0][0] <= now_ns:
            due_ns, number, queue = heappop(schedule)
            if scheduled.get(queue) != number:
                continue
            del scheduled[queue]
            try:
                for message, waited_ns in queue.release(now_ns, due_ns):
                    self._walk(message, message.came_ns + waited_ns)
                self.schedule(queue)
            except Exception:
                self.failed(partial(Lane.waits_in, queue=queue))

    def _walk(self, message: Held, now_ns: int) -> None:
        """Have a message that has passed a limit come to its further ones."""
        lane = message.lane
        try:
            if message.walk(now_ns) and lane.frames[0] is message:
                self._ready.append(lane)
        except Exception:
            self.failed(partial(is_, lane))


def memory(frame: Frame) -> int:
    """The memory that a frame takes while it waits, bytes."""
    topic = frame.topic_text or ""
    # CPython takes four bytes for each letter of a text with a letter beyond U+FFFF.
    return len(frame.data) + len(topic) * (1 if topic.isascii() else 4) + _BESIDE
