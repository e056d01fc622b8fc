"""The pump with connections of the test's: the order of arrivals, its bounds, its timer."""

from __future__ import annotations

import select
import socket
import time
from functools import partial

import pytest

from drld.messages.datapath import MessageDatapath
from drld.messages.frame import Frame, Place
from drld.messages.front.deadlines import Deadlines
from drld.messages.front.pump import READ_NS, TURN_FRAMES, Pump
from drld.messages.front.reactor import READ
from drld.messages.front.timer import Timer
from drld.messages.gate import Lane
from drld.messages.topics import Topic
from tests.unit.messages.made import datapath, message_limit


class Flow:
    """A connection that has frames with arrival times."""

    def __init__(self, pump: Pump, log: list[str], *frames: tuple[int, str]) -> None:
        self.pump = pump
        self.log = log
        self.frames = [*frames]
        self.lane: Lane = pump.gate.lane("mqtt", "")
        self.settled = 0
        self.failed = 0
        pump.flows[self.lane] = self
        pump.unfinished(self)

    def take(self) -> None:
        for at_ns, name in self.frames:
            self.pump.arrived.append(
                (at_ns, self, Frame(name.encode(), 0, Topic("a"), Place.KEEPS))
            )
        self.frames.clear()
        self.pump.touch(self)

    def forward(self, frame: Frame) -> None:
        self.log.append(frame.data.decode())

    def drop(self, frame: Frame) -> None:
        self.log.append(f"dropped {frame.data.decode()}")

    def settle(self) -> None:
        self.settled += 1

    def fail(self) -> None:
        self.failed += 1


class Broken(Flow):
    """One in which the program has a mistake."""

    def take(self) -> None:
        raise ZeroDivisionError


def made(*, burst: float = 1, rate: float = 1000) -> tuple[Pump, MessageDatapath]:
    now_ns = time.monotonic_ns()
    found = datapath(message_limit(burst=burst, rate=rate), now_ns=now_ns)
    return Pump(found.gate, time.monotonic_ns), found


def test_frames_of_all_connections_are_charged_in_the_order_of_their_arrival() -> None:
    """The earliest frame gets the only token, whichever connection is read first."""
    pump, found = made(rate=0.001)
    log: list[str] = []
    now_ns = time.monotonic_ns()
    Flow(pump, log, (now_ns + 3, "late"), (now_ns + 3, "later"))
    Flow(pump, log, (now_ns + 1, "early"), (now_ns + 9, "latest"))
    pump.turn()
    assert log == ["early"]
    assert found.waits(1).waiting == 3
    pump.close()


def test_what_waits_leaves_when_the_timer_says_so() -> None:
    pump, _ = made(rate=200)
    log: list[str] = []
    begun_ns = time.monotonic_ns()
    Flow(pump, log, *[(begun_ns, f"{number}") for number in range(4)])
    pump.turn()
    while len(log) < 4:
        assert select.select([pump.reactor.fileno()], [], [], 60)[0]
        pump.turn()
    assert log == ["0", "1", "2", "3"]
    assert time.monotonic_ns() - begun_ns >= 3 * 5_000_000
    pump.close()


def test_limits_that_change_wake_it() -> None:
    """Messages that wait for a removed limit leave at once, and not when they were due."""
    pump, found = made(rate=0.001)
    log: list[str] = []
    Flow(pump, log, *[(time.monotonic_ns(), f"{number}") for number in range(3)])
    pump.turn()
    assert log == ["0"]
    found.attach((), time.monotonic_ns())
    pump.wake()
    assert select.select([pump.reactor.fileno()], [], [], 60)[0]
    pump.turn()
    assert log == ["0", "1", "2"]
    pump.close()


def test_a_turn_takes_so_many_frames_and_the_next_one_goes_on() -> None:
    pump, _ = made(burst=1e6)
    log: list[str] = []
    now_ns = time.monotonic_ns()
    flows = [Flow(pump, log, *[(now_ns, "x")] * TURN_FRAMES) for _ in range(3)]
    for turn in range(1, 4):
        assert pump.turn() is (turn < 3)
        assert len(log) == turn * TURN_FRAMES
    assert [flow.settled for flow in flows] == [1, 1, 1]
    assert not pump.turn()
    pump.close()


def test_a_lone_event_takes_one_turn_and_several_take_another() -> None:
    """The second turn would find nothing where messages come one by one."""
    pump, _ = made()
    ends = [socket.socketpair() for _ in range(2)]
    for _, there in ends:
        pump.reactor.watch(there.fileno(), READ, lambda _, there=there: there.recv(1))  # type: ignore[misc]  # a default is untyped
    for here, _ in ends[:1]:
        here.send(b"x")
    assert not pump.turn()
    for here, _ in ends:
        here.send(b"x")
    assert pump.turn()
    assert not pump.turn()
    pump.close()
    for pair in ends:
        for end in pair:
            end.close()


def test_a_turn_reads_no_further_socket_once_its_time_is_over() -> None:
    """A read may make few frames and cost much: tiny records of TLS, for example. But sockets that
    are ready together are read together, as only the frames of one turn are sorted."""
    now_ns = [0]
    pump = Pump(datapath().gate, lambda: now_ns[0])
    ends = [socket.socketpair() for _ in range(4)]
    read: list[int] = []

    def slow(number: int) -> None:
        ends[number][1].recv(1)
        read.append(number)
        now_ns[0] += READ_NS // 2

    for number, (here, there) in enumerate(ends):
        pump.reactor.watch(there.fileno(), READ, lambda _, number=number: slow(number))  # type: ignore[misc]  # a default is untyped
        here.send(b"x")
    for reads in (2, 4):
        assert pump.turn()
        assert len(read) == reads
    assert not pump.turn()
    assert sorted(read) == [0, 1, 2, 3]
    pump.close()
    for pair in ends:
        for end in pair:
            end.close()


def test_an_error_ends_the_connection_that_it_came_from_and_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pump, _ = made(burst=10)
    log: list[str] = []
    broken = Broken(pump, log)
    sound = Flow(pump, log, (time.monotonic_ns(), "sound"))
    pump.turn()
    assert (broken.failed, sound.failed, pump.errors) == (1, 0, 1)
    assert log == ["sound"]
    assert "error in a connection" in caplog.text
    pump.close()


def test_deadlines_are_met_in_their_order_unless_called_off() -> None:
    deadlines, log = Deadlines(), list[int]()
    kept = [deadlines.add(at_ns, partial(log.append, at_ns)) for at_ns in (30, 10, 20)]
    off = [deadlines.add(at_ns, lambda: log.append(-1)) for at_ns in range(5, 505)]
    for deadline in off:
        deadlines.cancel(deadline)
    deadlines.run(9)
    assert log == []
    deadlines.run(20)
    assert log == [10, 20]
    assert deadlines.next_ns == 30
    deadlines.cancel(kept[1])  # It is done.
    deadlines.run(30)
    assert log == [10, 20, 30]
    deadlines.run(1000)
    assert deadlines.next_ns is None


def test_a_timer_is_readable_from_its_time_on() -> None:
    timer = Timer()
    assert not select.select([timer.fileno()], [], [], 0)[0]
    at_ns = time.monotonic_ns() + 3_000_000
    timer.set(at_ns)
    assert select.select([timer.fileno()], [], [], 60)[0]
    assert time.monotonic_ns() >= at_ns
    timer.clear()
    assert not select.select([timer.fileno()], [], [], 0)[0]
    timer.set(1)  # long ago
    assert select.select([timer.fileno()], [], [], 60)[0]
    timer.set(None)
    assert not select.select([timer.fileno()], [], [], 0)[0]
    timer.close()


def test_a_connection_that_changes_outside_of_a_turn_settles_soon() -> None:
    """Without anything to read, and although no message waits."""
    pump, _ = made()
    flow = Flow(pump, [])
    while pump.turn():
        pass
    settled = flow.settled
    pump.touch(flow)
    pump.wake()
    pump.wake()  # as each tick of the daemon does
    assert select.select([pump.reactor.fileno()], [], [], 60)[0]
    pump.turn()
    assert flow.settled == settled + 1
    pump.close()
