"""The walk of a message: the limits that it falls under, and its place in its connection.

A message waits at each of its limits in turn, in the order of the configuration, and is charged at
each as it passes. It comes to the first at its arrival, though messages of its connection wait
before it (SRTM 2021, section V-B), and to each further one when it has passed the one before. Its
connection's order holds: it leaves once it has passed all limits, and all before it have left. So
the bound b + r dt of a limit counts messages as they are charged.

Frames that are no messages, and messages under no limit, only keep their place. A message that a
limit drops keeps its place too, for the acknowledgements that the client gets have an order.

Everything happens at the times of arrivals and of tokens, whenever it is carried out: before a
message arrives, those leave that had their tokens by then.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Protocol

from drld.messages.frame import Client, Frame, Place
from drld.messages.topics import Notation, Topics

_BESIDE = 512
"""Bytes that a frame takes while it waits, beside those on the wire and its topic's letters: some
480 in CPython 3.11, with the topic that is remembered."""


class Fate(enum.Enum):
    """What becomes of a frame."""

    FORWARD = "forward"
    WAIT = "wait"
    """`Gate.release` returns it later."""
    DROP = "drop"


class Lane:
    """One connection of a client, with its frames that wait, in their order."""

    __slots__ = ("address", "broker", "client", "frames", "held_bytes", "number", "topics")

    def __init__(
        self, broker: str, topics: Topics[Stage] | None, address: str, number: int
    ) -> None:
        self.broker = broker
        """The name of the broker."""
        self.address = address
        """That the client connects from."""
        self.number = number
        """Of the connection, since the daemon started."""
        self.client: Client | None = None
        """What the client has said of itself; None: nothing yet."""
        self.held_bytes = 0
        """Memory of the frames that wait."""
        self.topics = topics
        """The limits of the broker; None: it has none."""
        self.frames: deque[Held] = deque()
        """Those that wait; only the gate changes them."""

    def __len__(self) -> int:
        """The number of frames that wait."""
        return len(self.frames)


class Held:
    """A frame on its way through the limits."""

    __slots__ = ("_at", "came_ns", "fate", "frame", "lane", "stages")

    def __init__(self, lane: Lane, frame: Frame, stages: Sequence[Stage]) -> None:
        self.lane = lane
        self.frame = frame
        self.stages = stages
        self.came_ns = 0
        """When it came to the limit that it waits at."""
        self.fate = Fate.WAIT
        """`WAIT` until it has passed all limits."""
        self._at = 0
        """The number of limits that it has come to."""

    def walk(self, now_ns: int) -> bool:
        """Come to the next limits from now on, until one of them is not passed at once.

        Returns:
            Whether its fate is known: it does not wait at any limit.
        """
        self.came_ns = now_ns
        while self._at < len(self.stages):
            stage = self.stages[self._at]
            self._at += 1
            fate = stage.offer(self, now_ns)
            if fate is not Fate.FORWARD:
                self.fate = fate
                return fate is Fate.DROP
        self.fate = Fate.FORWARD
        return True


class Stage(Protocol):
    """One limit, as a message comes to it."""

    def offer(self, message: Held, now_ns: int) -> Fate:
        """Take in a message that comes now; if it waits, its queue returns it later."""


class Queue(Protocol):
    """The messages that wait for one bucket."""

    @property
    def due_ns(self) -> int | None:
        """When the next may leave; None: none will."""

    def release(self, now_ns: int) -> Iterable[tuple[Held, int]]:
        """The messages that may leave by now, each with the time of its tokens."""


class Gate:
    """All connections of a daemon, and the limits on their messages."""

    def __init__(self) -> None:
        self.held_bytes = 0
        """Memory of the frames that wait, of all connections."""
        self.unmatched = 0
        """Messages that fell under no limit."""
        self._topics: dict[str, Topics[Stage]] = {}
        self._opened = 0
        self._lanes: dict[Lane, None] = {}
        """Those that are open, in their order."""
        self._schedule: list[tuple[int, int, Queue]] = []
        """When queues are due, and a number that orders those of one time."""
        self._scheduled: dict[Queue, int] = {}
        """The valid entry of each queue in it."""
        self._number = 0
        self._ready: deque[Lane] = deque()
        """Connections with frames that may leave now."""
        self._now_ns = 0

    def lane(self, broker: str, address: str = "") -> Lane:
        """A new connection to a broker, of a client at this address."""
        self._opened += 1
        lane = Lane(broker, self._topics.get(broker), address, self._opened)
        self._lanes[lane] = None
        return lane

    def close(self, lane: Lane) -> None:
        """Have no more frames of a connection; those that wait leave as they would."""
        self._lanes.pop(lane, None)

    def set_limits(
        self, limits: Mapping[str, tuple[Notation, Iterable[tuple[str, Stage]]]]
    ) -> None:
        """Have these limits from now on, by the names of brokers: the notation of their filters,
        and the filters in the order of the configuration.

        Messages that wait go on under the limits that they fell under.

        Raises:
            ValueError: a filter is none of the notation.
        """
        topics = {name: Topics(filters, notation) for name, (notation, filters) in limits.items()}
        self._topics = topics
        for lane in self._lanes:
            lane.topics = topics.get(lane.broker)

    def offer(self, lane: Lane, frame: Frame, arrived_ns: int) -> Fate:
        """Take in the next frame of a connection.

        Args:
            lane: the connection.
            frame: that follows on the last one.
            arrived_ns: when its last byte arrived. Arrivals come in their order, of all
                connections; an earlier one counts as of the time that its limit has reached.
        """
        if frame.place is Place.OVERTAKES:
            return Fate.FORWARD
        if self._schedule and self._schedule[0][0] <= arrived_ns:
            self._advance(arrived_ns)
        stages: Sequence[Stage] = ()
        if frame.topic is not None:
            if lane.topics is not None:
                stages = lane.topics.match(frame.topic)
            if not stages:
                self.unmatched += 1
        frames = lane.frames
        if not stages and not frames:
            return Fate.FORWARD
        held = Held(lane, frame, stages)
        known = held.walk(arrived_ns)
        if known and not frames:
            return held.fate
        frames.append(held)
        lane.held_bytes += (size := memory(frame))
        self.held_bytes += size
        return Fate.WAIT

    def release(self, now_ns: int) -> Iterator[tuple[Lane, Frame, Fate]]:
        """Take out the frames that may leave by now, in the order of each connection: `FORWARD`,
        or `DROP`."""
        self._advance(now_ns)
        while self._ready:
            lane = self._ready[0]
            frames = lane.frames
            while frames and frames[0].fate is not Fate.WAIT:
                held = frames.popleft()
                lane.held_bytes -= (size := memory(held.frame))
                self.held_bytes -= size
                yield lane, held.frame, held.fate
            self._ready.popleft()

    @property
    def due_ns(self) -> int | None:
        """When `release` next has something, or soon before; None: never, as things are."""
        if self._ready:
            return self._now_ns
        schedule = self._schedule
        while schedule and self._scheduled.get(schedule[0][2]) != schedule[0][1]:
            heappop(schedule)
        return schedule[0][0] if schedule else None

    def schedule(self, queue: Queue) -> None:
        """Take in that the queue may be due at another time than before."""
        if (due_ns := queue.due_ns) is None:
            self._scheduled.pop(queue, None)
            return
        self._number += 1
        self._scheduled[queue] = self._number
        heappush(self._schedule, (due_ns, self._number, queue))

    def _advance(self, now_ns: int) -> None:
        """Have the messages that get their tokens by now walk on, in the order of these times."""
        self._now_ns = max(self._now_ns, now_ns)
        schedule, scheduled = self._schedule, self._scheduled
        while schedule and schedule[0][0] <= now_ns:
            due_ns, number, queue = heappop(schedule)
            if scheduled.get(queue) != number:
                continue
            del scheduled[queue]
            for message, at_ns in queue.release(due_ns):
                if message.walk(at_ns) and message.lane.frames[0] is message:
                    self._ready.append(message.lane)
            self.schedule(queue)


def memory(frame: Frame) -> int:
    """The memory that a frame takes while it waits, bytes."""
    return len(frame.data) + len(frame.topic or "") + _BESIDE
