"""Recorded datagrams come again at a limiter's real socket: they are counted, and change nothing.

With keys and without; tests/kernel/test_keys_kernel.py does it to daemons.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from random import Random

import pytest

from drld.capture.plane import packets
from drld.engine import Engine
from drld.errors import WireError
from drld.gossip.fabrics.mesh_update import MESH
from drld.gossip.transport import Transport
from drld.gossip.wire.channel import Channel
from drld.gossip.wire.control_codec import Control, End, Kind
from drld.gossip.wire.keyring import KeyRing
from drld.gossip.wire.message import MAX_DATAGRAM
from drld.gossip.wire.session import Session
from drld.model import HEARTBEAT, Quantity

from ..engine_fakes import FakeDatapath
from ..factories import TICK_NS, limit_spec, limiter_spec
from ..wire import mesh

RINGS = [KeyRing(), KeyRing({1: bytes(16)}, use=1)]
DEADLINE_S = 10


class Scene:
    """Limiter `a`, and its peer `b`, whose datagrams an attacker records."""

    def __init__(self, transport: Transport, peer: socket.socket, ring: KeyRing) -> None:
        self.transport = transport
        self.now_ns = 0
        self._peer = peer
        transport.update_peers({"b": peer.getsockname()})
        planes = [packets(FakeDatapath())]
        self.engine = Engine(limiter_spec(limit_spec()), planes, transport, Random(1))
        self.engine.start(0)
        self.begin(7)

    def begin(self, life: int) -> None:
        """A life of the peer."""
        session = Session(End(life, 1), b"b")
        self.channel = Channel("b", "a", session, self.transport.ring)
        self.hello = self.channel.greet(0)
        answer = self.hello
        met = self.transport.met
        while not (session.open and self.transport.met > met):
            self.hear(*([] if answer is None else [answer]))
            try:
                answer = self.channel.open_untrusted(self._peer.recv(MAX_DATAGRAM), 0).answer
            except WireError:
                answer = None  # It was said to the life before.

    def hear(self, *datagrams: bytes | None) -> None:
        for datagram in datagrams:
            assert datagram is not None
            self._peer.sendto(datagram, self.transport.address)
        self.now_ns += TICK_NS
        self.engine.tick(self.now_ns)

    def update(self, sequence: int, limit_id: int = 1) -> bytes | None:
        value = 0.0 if limit_id == HEARTBEAT else 2.0
        update = mesh(limit_id, sequence, value, Quantity.WEIGHT, whole=True)
        return self.channel.seal(MESH.kind, [update])


@pytest.fixture(params=RINGS, ids=["no keys", "a key"])
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    ring: KeyRing = request.param
    with (
        closing(Transport(("127.0.0.1", 0), "a", {}, ring, Random(2))) as transport,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer,
    ):
        peer.bind(("127.0.0.1", 0))
        peer.settimeout(DEADLINE_S)
        yield Scene(transport, peer, ring)


@pytest.mark.parametrize("limit_id", [1, HEARTBEAT, 9])
def test_repeated_updates_are_counted_and_ignored(scene: Scene, limit_id: int) -> None:
    recorded = [scene.update(number, limit_id) for number in range(100)]
    scene.hear(*recorded)
    assert scene.transport.rejected == {}
    heard_ns = scene.engine.membership.heard_ns("b")
    scene.hear(*recorded)
    scene.hear(*reversed(recorded))
    assert scene.transport.rejected == {"replayed": 200}
    assert scene.engine.membership.heard_ns("b") == heard_ns
    scene.hear(scene.update(100, limit_id))
    assert scene.transport.rejected == {"replayed": 200}
    assert scene.engine.membership.heard_ns("b") == scene.now_ns


@pytest.mark.parametrize("taken", [True, False], ids=["believed", "not joined"])
def test_no_flood_of_replays_is_looked_at_for_longer_than_another(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, *, taken: bool
) -> None:
    """The bound holds, too, in the tick after one too long, in which no update is believed."""
    monkeypatch.setattr("drld.gossip.transport.MAX_REFUSED", 10)
    recorded = scene.update(0)
    scene.hear(recorded)
    scene.engine.node.spec = replace(scene.engine.spec, joined=taken)
    for ticks in range(1, 7):
        scene.hear(*[recorded] * 100)
        assert scene.transport.rejected.total() == 10 * ticks
    assert scene.transport.floods == 6
    assert scene.transport.rejected["replayed"] == (10 if taken else 0)
    assert scene.transport.received == (11 if taken else 1)


def test_a_flood_of_an_update_that_was_held_back_is_looked_at_for_no_longer(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same holds for a flood of two such updates in turn."""
    monkeypatch.setattr("drld.gossip.transport.MAX_REFUSED", 10)
    scene.hear(scene.update(0))
    scene.hear(*[scene.update(500), scene.update(900)] * 50)
    assert scene.transport.rejected == {"replayed": 10}
    assert scene.transport.received == 12
    assert scene.engine.limits[1].limiter.fabric.links["b"].late == 1


def test_a_heartbeat_with_a_guessed_tag_counts_no_peer_out(scene: Scene) -> None:
    """The same holds if updates have replaced heartbeats for long."""
    scene.hear(scene.update(0, HEARTBEAT))
    for number in range(100):
        scene.hear(scene.update(number))
    # The farthest that is accepted.
    scene.hear(
        *[scene.update(100)], *[scene.update(number, HEARTBEAT) for number in range(64, 1, -1)]
    )
    for number in range(1, 100):
        scene.hear(scene.update(number, HEARTBEAT))
        assert scene.engine.membership.connected(scene.now_ns) == {"b"}


@pytest.mark.parametrize("scene", [RINGS[1]], indirect=True)
def test_a_session_outlives_the_key_that_it_began_with(scene: Scene) -> None:
    """docs/security.md tells an operator to restart all daemons after the loss of a key."""
    scene.hear(scene.update(0))
    # An attacker that has the key can be the peer.
    scene.hear(scene.update(2**30), scene.update(2**30 + 1))
    changed = KeyRing({2: bytes(range(16))}, use=2)
    scene.transport.set_ring(changed)
    scene.channel.set_ring(changed)
    scene.hear(scene.update(1))
    assert scene.transport.rejected == {"replayed": 1}
    scene.begin(8)
    scene.hear(scene.update(0))
    assert scene.transport.rejected["replayed"] == 1
    assert scene.engine.membership.heard_ns("b") == scene.now_ns


def test_overtaken_updates_are_late_and_not_refused(scene: Scene) -> None:
    recorded = [scene.update(number) for number in range(5)]
    scene.hear(*reversed(recorded))
    assert scene.transport.rejected == {}
    assert scene.engine.limits[1].limiter.fabric.links["b"].late == 4
    scene.hear(*recorded)
    assert scene.transport.rejected == {"replayed": 5}
    assert scene.engine.limits[1].limiter.fabric.links["b"].late == 4


def test_repeated_probes_are_counted_and_ignored(scene: Scene) -> None:
    probe = scene.channel.seal(Kind.PROBE, Control(Kind.PROBE, 0, 0, 0))
    scene.hear(probe)
    scene.hear(probe, probe)
    assert scene.transport.rejected == {"replayed": 2}


def test_repeated_handshakes_are_counted_and_ignored(scene: Scene) -> None:
    known, sessions = scene.transport.greetings, scene.transport.met
    scene.hear(*[scene.hello] * 10)
    assert (scene.transport.greetings, scene.transport.met) == (known + 10, sessions)
    assert scene.transport.rejected == {}
    scene.hear(scene.update(0))
    assert scene.transport.received == 1
