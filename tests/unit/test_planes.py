"""A second plane beside packets: limits, messages and events of its own, without a new engine."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest

from drld.capture.plane import packets
from drld.engine import Engine
from drld.errors import DatapathError
from drld.gossip.transport import Transport
from drld.gossip.wire import message
from drld.gossip.wire.message import NumberedCodec
from drld.model import FlowKey
from drld.planes.plane import Plane
from drld.spec import LimitSpec

from ..engine_fakes import FIRST, FakeDatapath
from ..factories import TICK_NS, limit_spec, limiter_spec

KIND = 15
FLOW = FlowKey(6, b"", b"", 0, 0)


class TextCodec(NumberedCodec[str]):
    def check_length_untrusted(self, length: int) -> None:
        pass

    def pack(self, body: str) -> bytes:
        return body.encode()

    def unpack_untrusted(self, data: bytes) -> str:
        return data.decode()


@dataclass(frozen=True)
class Topic:
    """The target of a limit of the toy plane."""

    name: str


class Toy(Plane):
    """Sends the messages that a test gives it, and keeps those that it receives."""

    datapath: FakeDatapath

    def __init__(self) -> None:
        super().__init__(Topic, FakeDatapath())
        self.handlers = {KIND: lambda *heard: self.heard.append(heard)}
        self.heard: list[tuple[str, str, int]] = []
        self.outbox: list[tuple[str, int, str]] = []
        self.events: list[object] = []

    def tick(self, now_ns: int) -> Iterable[tuple[str, int, Any]]:
        super().tick(now_ns)
        outbox, self.outbox = self.outbox, []
        return outbox

    def set_peers(self, peers: Collection[str]) -> None:
        self.events.append(list(peers))

    def on_session(self, peer: str) -> None:
        self.events.append(peer)

    def on_peer_change(self) -> None:
        self.events.append("change")


def topic(limit_id: int, **changes: Any) -> LimitSpec:
    made = limit_spec(id=limit_id, name=f"topic-{limit_id}", **changes)
    target: Any = Topic("news")
    return replace(made, match=target)


SECOND = topic(2)


class Daemon:
    def __init__(self, name: str, peer: str, transport: Transport, *, toy: bool = True) -> None:
        self.transport = transport
        self.packets, self.toy = FakeDatapath(), Toy()
        planes: Sequence[Plane] = [packets(self.packets), *([self.toy] if toy else [])]
        limits = [FIRST, SECOND] if toy else [FIRST]
        self.configured = limiter_spec(*limits, name=name, peers=(peer,))
        self.engine = Engine(self.configured, planes, transport, Random(1))
        self.now_ns = 0

    def tick(self) -> list[str]:
        self.now_ns += TICK_NS
        return [name for name, _ in self.engine.tick(self.now_ns)]


@pytest.fixture
def transports(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Transport, Transport]]:
    monkeypatch.setitem(message._CODECS, KIND, TextCodec(KIND))
    with ExitStack() as stack:
        a, b = (
            stack.enter_context(closing(Transport(("127.0.0.1", 0), name, {}, rng=Random(name))))
            for name in "ab"
        )
        a.update_peers({"b": b.address})
        b.update_peers({"a": a.address})
        yield a, b


def test_limits_of_two_planes_are_ticked_told_and_programmed_each_on_its_own(
    transports: tuple[Transport, Transport],
) -> None:
    a, b = Daemon("a", "b", transports[0]), Daemon("b", "a", transports[1])
    for daemon in (a, b):
        daemon.engine.start(0)
    ticked = []
    for _ in range(20):
        a.packets.policers[1].arrive(FLOW, 1500)
        a.toy.datapath.policers[2].arrive(FLOW, 4500)
        ticked += a.tick()
        b.tick()
    assert ticked.count(FIRST.name) == ticked.count(SECOND.name) == 20
    assert set(a.packets.read_limits) == {limit_id for limit_id, _ in a.packets.programmed} == {1}
    toys = a.toy.datapath
    assert set(toys.read_limits) == {limit_id for limit_id, _ in toys.programmed} == {2}
    assert a.packets.flushed_ns == toys.flushed_ns
    assert set(a.packets.shares) == {1}
    assert set(toys.shares) == {2}
    for limit_id in (1, 2):
        last = b.engine.limits[limit_id].last
        assert last is not None
        assert last.view.remote > 0
    assert b.engine.unknown_limit == {}
    # All come to rest, and a packet wakes its own limit.
    for _ in range(80):
        a.tick()
        b.tick()
    toys.policers[2].arrive(FLOW, 1500)
    assert a.tick() == [SECOND.name]


def test_a_plane_s_messages_and_events_reach_it(transports: tuple[Transport, Transport]) -> None:
    a, b = Daemon("a", "b", transports[0]), Daemon("b", "a", transports[1])
    for daemon in (a, b):
        daemon.engine.start(0)
    for _ in range(3):
        a.tick()
        b.tick()
    assert b.toy.events[:2] == [["a"], "a"]
    assert "change" in b.toy.events[2:]
    a.toy.outbox = [("b", KIND, "hello"), ("b", KIND, "again")]
    a.tick()
    b.tick()
    assert b.toy.heard == [("a", "hello", b.now_ns), ("a", "again", b.now_ns)]
    b.engine.reconfigure(replace(b.configured, peers=()), b.now_ns)
    assert b.toy.events[-1] == [
        "a"
    ]  # It departs, and is in the membership until it counts nowhere.


def test_a_message_that_no_plane_of_the_daemon_takes_is_counted_and_does_no_harm(
    transports: tuple[Transport, Transport],
) -> None:
    a, b = Daemon("a", "b", transports[0]), Daemon("b", "a", transports[1], toy=False)
    for daemon in (a, b):
        daemon.engine.start(0)
    for _ in range(3):
        a.tick()
        b.tick()
    a.toy.outbox = [("b", KIND, "hello")] * 3
    a.packets.policers[1].arrive(FLOW, 1500)
    a.tick()
    b.tick()
    assert b.transport.rejected == {"kind": 3}
    last = b.engine.limits[1].last
    assert last is not None
    assert last.view.remote > 0
    assert last.view.connected == {"a"}


def test_if_one_plane_refuses_all_are_as_they_were(transports: tuple[Transport, Transport]) -> None:
    a = Daemon("a", "b", transports[0])
    a.toy.datapath.refuse = True
    with pytest.raises(DatapathError, match="refused"):
        a.engine.start(0)
    assert a.packets.policers == {}
    a.toy.datapath.refuse = False
    a.engine.start(0)
    a.toy.datapath.refuse = True
    third = limit_spec(id=3, name="third")
    changed = limiter_spec(FIRST, SECOND, third, name="a", peers=("b",))
    with pytest.raises(DatapathError, match="refused"):
        a.engine.reconfigure(changed, 0)
    assert [limit.id for limit in a.packets.attached] == list(a.engine.limits)[:1] == [1]


def test_a_limit_without_a_plane_is_refused_by_its_name(
    transports: tuple[Transport, Transport],
) -> None:
    b = Daemon("b", "a", transports[1], toy=False)
    b.engine.start(0)
    with pytest.raises(DatapathError, match=r"limit topic-2: .* no plane") as refused:
        b.engine.reconfigure(limiter_spec(FIRST, SECOND, name="b", peers=("a",)), 0)
    assert list(refused.value.limits) == [SECOND.id]
    assert list(b.engine.limits) == list(b.packets.policers) == [1]
    assert b.tick() == [FIRST.name]
