"""The parts of the nfqueue datapath that need no queue; tests/kernel has the rest."""

from __future__ import annotations

import errno
import logging
import socket
from pathlib import Path
from random import Random
from typing import ClassVar

import pytest

from drld.capture.nfqueue import datapath as nfqueue_datapath
from drld.capture.nfqueue import packet_queue
from drld.capture.nfqueue.datapath import NfqueueDatapath
from drld.capture.nfqueue.packet_queue import PacketQueue
from drld.capture.spec import Match
from drld.errors import DatapathError
from drld.model import Enforcement
from drld.police.direction import Direction
from drld.police.policer import Excess

from ..factories import TICK_NS, limit_spec


class FakePacket:
    """A packet as the library passes it to the callback, with the parts that drld uses."""

    mark = 0

    def __init__(self, hook: int = 0, indev: int = 1, outdev: int = 0) -> None:
        self.hook, self.indev, self.outdev = hook, indev, outdev

    def get_payload(self) -> bytes:
        return b"\x45" + bytes(19)


@pytest.fixture
def datapath() -> NfqueueDatapath:
    return NfqueueDatapath("lim1", "auto", None, Random(1), lambda: 0)


def test_nothing_is_there_before_attach(datapath: NfqueueDatapath) -> None:
    datapath.detach()
    assert set(datapath.counters().values()) == {0}
    with pytest.raises(DatapathError, match="not attached"):
        datapath.fileno()
    with pytest.raises(DatapathError, match="not attached"):
        datapath.drain()


def test_the_hook_tells_the_direction(
    datapath: NfqueueDatapath, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {1: "eth0", 2: "eth1"}
    monkeypatch.setattr(socket, "if_indextoname", names.__getitem__)
    hooks = [(name, direction) for name in ("eth0", "eth1") for direction in Direction]
    limits = [limit_spec(id=at, match=Match(*hook)) for at, hook in enumerate(hooks)]
    datapath._gate.replace([(limit, Enforcement()) for limit in limits], 0)
    for hook in range(5):
        datapath._verdict(FakePacket(hook, 1, 2))  # type: ignore[arg-type]  # a stand-in
    seen = [datapath.read(limit.id, 0).arrived_items for limit in limits]
    assert dict(zip(hooks, seen, strict=True)) == {
        ("eth0", Direction.IN): 2,
        ("eth0", Direction.OUT): 0,
        ("eth1", Direction.IN): 0,
        ("eth1", Direction.OUT): 3,
    }


def test_without_descriptors_an_interface_is_the_last_known_one(
    datapath: NfqueueDatapath, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(_: int) -> str:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket, "if_indextoname", exhausted)
    datapath._earlier = {1: "eth0"}
    assert datapath._resolve(1) == "eth0"
    # One that was never known: the packet is an error, and not one without limits.
    assert not datapath._verdict(FakePacket(indev=7))  # type: ignore[arg-type]  # a stand-in
    assert datapath.counters()["errors"] == 1


def test_an_interface_that_is_gone_has_no_limits(datapath: NfqueueDatapath) -> None:
    assert datapath._verdict(FakePacket(indev=2**31 - 1))  # type: ignore[arg-type]  # a stand-in
    counters = datapath.counters()
    assert (counters["unmatched"], counters["errors"]) == (1, 0)


@pytest.mark.parametrize("fail_open", [True, False])
def test_every_packet_gets_one_verdict(
    datapath: NfqueueDatapath, caplog: pytest.LogCaptureFixture, fail_open: bool
) -> None:
    class Bad(FakePacket):
        def get_payload(self) -> bytes:
            raise ArithmeticError("a bug")

    datapath._gate.fail_open = fail_open
    with caplog.at_level(logging.ERROR):
        verdicts = [datapath._verdict(Bad()) for _ in range(100)]  # type: ignore[arg-type]  # a stand-in
    assert verdicts == [fail_open] * 100
    assert datapath.counters()["errors"] == 100
    # The log is not flooded: 1, 2, 4, ... 64.
    assert [record.exc_info is not None for record in caplog.records] == [True] * 7


class FakeQueue:
    """A queue that does not bind; the kernel refuses to copy whole packets."""

    number = 7

    def __init__(self, *_: object) -> None:
        self.closed = False
        self.copied: list[bool] = []

    def copy(self, *, whole: bool) -> None:
        self.copied.append(whole)
        if whole:
            raise DatapathError("NFQUEUE 7: no room")

    def waiting(self, _: float = 0.0) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def unmarking(monkeypatch: pytest.MonkeyPatch) -> NfqueueDatapath:
    monkeypatch.setattr(nfqueue_datapath, "PacketQueue", FakeQueue)
    monkeypatch.setattr(nfqueue_datapath, "remove_leftovers", lambda *_: None)
    return NfqueueDatapath("lim1", "none", None, Random(1), lambda: 0, timestamps="read")


def test_a_reload_that_the_queue_refuses_changes_nothing(unmarking: NfqueueDatapath) -> None:
    plain, marks = limit_spec(), limit_spec(id=2, excess=Excess.MARK)
    record = Enforcement(fill_rate=1000, depth=3000)
    unmarking.attach([(plain, record)], 0)
    with pytest.raises(DatapathError, match="no room"):
        unmarking.attach([(marks, record)], 0)
    assert unmarking.read(1, TICK_NS).arrived_tokens == 0
    with pytest.raises(KeyError):
        unmarking.read(2, TICK_NS)


def test_a_start_that_the_queue_refuses_leaves_nothing(unmarking: NfqueueDatapath) -> None:
    limit = limit_spec(excess=Excess.MARK)
    with pytest.raises(DatapathError, match="no room"):
        unmarking.attach([(limit, Enforcement(fill_rate=1000, depth=3000))], 0)
    with pytest.raises(DatapathError, match="not attached"):
        unmarking.fileno()


@pytest.mark.parametrize("refused", [errno.EPERM, None])
def test_a_queue_copies_whole_packets_without_the_right_to_force_its_buffer(
    monkeypatch: pytest.MonkeyPatch, refused: int | None
) -> None:
    """A user namespace allows the host's maximum only."""

    class Socket:
        options: ClassVar[list[int]] = []

        def setsockopt(self, _: int, option: int, __: int) -> None:
            self.options.append(option)
            if option == packet_queue._SO_RCVBUFFORCE and refused:
                raise OSError(refused, "refused")

        def send(self, _: bytes) -> None:
            pass

    Socket.options.clear()
    queue = PacketQueue.__new__(PacketQueue)
    queue._whole, queue.number, queue._socket = False, 7, Socket()  # type: ignore[assignment]  # a stand-in
    queue.copy(whole=True)
    assert queue._whole
    assert (socket.SO_RCVBUF in Socket.options) is (refused is not None)


PROC = """    0   1234     0 2    60     0     0        0  1
 4711 -12345     7 2   256    10     3     5000  1
"""


@pytest.fixture
def listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "nfnetlink_queue"
    monkeypatch.setattr(packet_queue, "_QUEUES", path)
    return path


def test_bound_queues_and_their_drops_are_listed(listing: Path) -> None:
    assert packet_queue.listed() == {}  # no queue was ever bound
    listing.write_text(PROC)
    assert packet_queue.listed() == {0: (0, 0), 4711: (10, 3)}


def test_a_limiters_first_queue_is_decided_by_its_name(listing: Path) -> None:
    listing.write_text("")
    first = list(packet_queue.candidates("lim1"))
    assert first == list(packet_queue.candidates("lim1"))
    assert len(first) == len(set(first)) == 64
    assert all(1024 <= number <= 65535 for number in first)
    assert first[0] != next(iter(packet_queue.candidates("lim2")))
    listing.write_text(PROC.replace("4711", str(first[0])))
    assert list(packet_queue.candidates("lim1")) == first[1:]
