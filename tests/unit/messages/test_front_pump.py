"""The pump with connections of the test's: the order of arrivals, its bounds, its timer."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from functools import partial

import pytest

from drld.messages.datapath import MessageDatapath
from drld.messages.frame import Frame, Place
from drld.messages.front.deadlines import Deadlines, Owner
from drld.messages.front.pump import FLOW_FRAMES, READ_NS, TURN_FRAMES, Pump
from drld.messages.front.reactor import READ
from drld.messages.front.timer import Timer
from drld.messages.gate import Lane
from drld.messages.spec import Excess
from drld.messages.topics import Topic
from tests.unit.messages.made import datapath, message_limit


class Flow:
    """A connection that has frames with arrival times."""

    def __init__(self, pump: Pump, log: list[str], *frames: tuple[int, str]) -> None:
        self.pump = pump
        self.log = log
        self.frames = [*frames]
        self.lane: Lane = pump.gate.lane("mqtt", "")
        self.topic = "a"
        """The topic of its messages; empty: they are named as their topics."""
        self.most = FLOW_FRAMES
        """The most frames that it adds at a time."""
        self.settled = 0
        self.failed = 0
        self.abandoned = 0
        pump.flows[self.lane] = self
        pump.unfinished(self)

    def take(self) -> None:
        taken, self.frames = self.frames[: self.most], self.frames[self.most :]
        for at_ns, name in taken:
            self.pump.arrived.append(
                (at_ns, self, Frame(name.encode(), 0, Topic(self.topic or name), Place.KEEPS))
            )
        if self.frames:
            self.pump.unfinished(self)
        self.pump.touch(self)

    def forward(self, frame: Frame) -> None:
        self.log.append(frame.data.decode())

    def drop(self, frame: Frame) -> None:
        self.log.append(f"dropped {frame.data.decode()}")

    def settle(self) -> None:
        self.settled += 1

    def fail(self) -> None:
        self.failed += 1

    def abandon(self) -> None:
        self.abandoned += 1


class Broken(Flow):
    """One in which the program has a mistake, in the method of this name."""

    def __init__(self, wrong: str, pump: Pump, log: list[str], *frames: tuple[int, str]) -> None:
        super().__init__(pump, log, *frames)

        def divide(*_: Frame) -> None:
            raise ZeroDivisionError

        setattr(self, wrong, divide)


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


def test_waiting_messages_leave_when_the_timer_says_so() -> None:
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
    for flow in flows:
        flow.most = TURN_FRAMES
    for turn in range(1, 4):
        assert pump.turn() is (turn < 3)
        assert len(log) == turn * TURN_FRAMES
    assert [flow.settled for flow in flows] == [1, 1, 1]
    assert not pump.turn()
    pump.close()


@pytest.mark.parametrize(("age_ns", "whole"), [(READ_NS, False), (READ_NS + 1, True)])
def test_messages_of_a_standstill_are_sorted_as_a_whole(age_ns: int, whole: bool) -> None:
    """The sockets have more frames than a turn takes, and each has more than a connection's."""
    now_ns = 10**15
    pump = Pump(datapath(now_ns=now_ns).gate, lambda: now_ns)
    log: list[str] = []
    ends = [socket.socketpair() for _ in range(6)]
    numbers = range(6 * 2 * FLOW_FRAMES)

    def read(flow: Flow, at: int, _: int) -> None:
        ends[at][1].recv(1)
        flow.frames = [(now_ns - age_ns + number, f"{number}") for number in numbers[at::6]]
        flow.take()

    for at, (here, there) in enumerate(ends):
        pump.reactor.watch(there.fileno(), READ, partial(read, Flow(pump, log), at))
        here.send(b"x")
    while pump.turn():
        pass
    assert sorted(log, key=int) == [f"{number}" for number in numbers]
    assert (log == sorted(log, key=int)) is whole
    pump.close()
    for pair in ends:
        for end in pair:
            end.close()


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


@pytest.mark.parametrize(("works", "turns"), [(True, (2, 4)), (False, (4,))])
def test_a_turn_reads_no_further_socket_once_its_time_is_over(
    works: bool, turns: tuple[int, ...]
) -> None:
    """A read may make few frames and cost much: tiny records of TLS, for example. But sockets that
    are ready together are read together, as only the frames of one turn are sorted. Busy processes
    that interrupt a turn do not take its time.
    """
    now_ns = [0]
    pump = Pump(datapath().gate, lambda: now_ns[0], lambda: now_ns[0] if works else 0)
    ends = [socket.socketpair() for _ in range(4)]
    read: list[int] = []

    def slow(number: int) -> None:
        ends[number][1].recv(1)
        read.append(number)
        now_ns[0] += READ_NS // 2

    for number, (here, there) in enumerate(ends):
        pump.reactor.watch(there.fileno(), READ, lambda _, number=number: slow(number))  # type: ignore[misc]  # a default is untyped
        here.send(b"x")
    for reads in turns:
        assert pump.turn()
        assert len(read) == reads
    assert not pump.turn()
    assert sorted(read) == [0, 1, 2, 3]
    pump.close()
    for pair in ends:
        for end in pair:
            end.close()


@pytest.mark.parametrize("wrong", ["take", "forward", "settle"])
def test_an_error_ends_the_connection_that_it_came_from_and_no_other(
    wrong: str, caplog: pytest.LogCaptureFixture
) -> None:
    pump, _ = made(burst=10)
    log: list[str] = []
    broken = Broken(wrong, pump, log, (time.monotonic_ns(), "broken"))
    sound = Flow(pump, log, (time.monotonic_ns(), "sound"))
    pump.turn()
    assert (broken.failed, sound.failed, pump.errors) == (1, 0, 1)
    assert log[-1] == "sound"
    assert "error in a connection" in caplog.text
    pump.close()


def test_an_error_while_a_connection_fails_concerns_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pump, _ = made(burst=10)
    log: list[str] = []
    broken = Broken("fail", pump, log, (time.monotonic_ns(), "broken"))
    broken.forward = lambda frame: log.append(f"{1 // 0}")  # type: ignore[method-assign]  # a mistake
    sound = Flow(pump, log, (time.monotonic_ns(), "sound"))
    pump.turn()
    assert (log, sound.settled, sound.failed, pump.errors) == (["sound"], 1, 0, 2)
    assert "error at the end of a connection" in caplog.text
    pump.close()


@pytest.mark.parametrize("wrong", ["settle", "abandon"])
def test_a_connection_that_cannot_even_settle_is_abandoned(wrong: str) -> None:
    """The turn ends, although a connection that has failed settles once more."""
    pump, _ = made(burst=10)
    log: list[str] = []
    sound = Flow(pump, log, (time.monotonic_ns(), "sound"))
    broken = Broken(wrong, pump, log)

    def settle() -> None:
        pump.touch(broken)
        raise ZeroDivisionError

    broken.settle = settle  # type: ignore[method-assign]  # a mistake
    pump.touch(broken)
    pump.turn()
    assert (broken.failed, broken.abandoned) == (1, wrong == "settle")
    assert pump.errors == 2 + (wrong == "abandon")
    assert (log, sound.settled, sound.failed) == (["sound"], 1, 0)
    pump.close()


@pytest.mark.parametrize("wrong", ["forward", "drop"])
def test_an_error_with_a_frame_that_has_waited_ends_its_connection_and_no_other(wrong: str) -> None:
    """The frame that waits leaves as the limit changes, or behind it one that is dropped."""
    now_ns = time.monotonic_ns()
    found = datapath(
        message_limit("wait", rate=0.001, burst=1),
        message_limit("drop", id=2, excess=Excess.DROP, rate=0.001, burst=1),
        now_ns=now_ns,
    )
    pump, log = Pump(found.gate, time.monotonic_ns), list[str]()
    names = ("wait", "wait", "drop", "drop")
    broken = Broken(wrong, pump, log, *((now_ns, name) for name in names))
    sound = Flow(pump, log, (now_ns, "wait"))
    broken.topic = sound.topic = ""
    pump.turn()
    found.attach((), time.monotonic_ns())
    pump.turn()
    assert (broken.failed > 0, sound.failed) == (True, 0)
    assert pump.errors == broken.failed
    assert log[-1] == "wait"
    pump.close()


def test_an_error_in_a_deadline_ends_its_connection_and_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pump, _ = made()
    flow, log = Flow(pump, []), list[int]()
    for owner in (flow, None):
        pump.reactor.after(0, lambda: log.append(1 // 0), owner)
    pump.reactor.after(0, partial(log.append, 1))
    pump.turn()
    assert (flow.failed, pump.errors, log) == (1, 2, [1])
    assert "error in a connection" in caplog.text
    assert "error outside of connections" in caplog.text
    pump.close()


def test_an_error_in_a_handler_ends_its_connection_and_no_other() -> None:
    """A socket that connects or ends has a handler of its link, and not of its connection."""
    pump, _ = made()
    flow = Flow(pump, [])
    here, there = socket.socketpair()

    def divide(_: int) -> None:
        there.recv(1)
        raise ZeroDivisionError

    pump.reactor.watch(there.fileno(), READ, divide, flow)
    here.send(b"x")
    pump.turn()
    assert (flow.failed, pump.errors) == (1, 1)
    pump.close()
    here.close()
    there.close()


def act(owner: Owner | None, deed: Callable[[], None]) -> None:
    """Make a call of a deadline."""
    assert owner is None
    deed()


def test_deadlines_are_met_in_their_order_unless_called_off() -> None:
    deadlines, log = Deadlines(), list[int]()
    kept = [deadlines.add(at_ns, partial(log.append, at_ns)) for at_ns in (30, 10, 20)]
    off = [deadlines.add(at_ns, lambda: log.append(-1)) for at_ns in range(5, 505)]
    for deadline in off:
        deadlines.cancel(deadline)
    deadlines.run(9, act)
    assert log == []
    deadlines.run(20, act)
    assert log == [10, 20]
    assert deadlines.next_ns == 30
    deadlines.cancel(kept[1])  # It is done.
    deadlines.run(30, act)
    assert log == [10, 20, 30]
    deadlines.run(1000, act)
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
