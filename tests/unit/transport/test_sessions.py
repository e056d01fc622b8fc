"""The gossip socket: sessions, and the keys that they are sealed with."""

import select
from random import Random

import pytest

from drld.errors import WireError
from drld.gossip.transport import Transport
from drld.gossip.wire.control_codec import Control, Kind
from drld.gossip.wire.keyring import KeyRing
from drld.gossip.wire.session import Met

from ...wire import taken
from .pair import DEADLINE_S, KIND, NO_KEYS, RING, UPDATE, Make, Pair, introduce, received, sealed


def test_without_a_session_no_update_is_believed(pair: Pair) -> None:
    """The other one is answered, and told that it is not known."""
    a, b = pair
    b.update_peers({})
    b.update_peers({"a": a.address})
    for _ in range(3):
        a.send("b", KIND, [UPDATE])
    assert received(b, 3) == []
    assert b.rejected == {"session": 3}
    assert b.handshakes == 2
    # It opened another session, and greeted once.
    assert received(a, 1) == []
    assert received(b, 1) == [("a", Met(a.life))]
    assert received(a, 1) == [("b", Met(b.life))]
    a.send("b", KIND, [UPDATE])
    assert received(b, 1) == [("a", UPDATE)]


def test_a_restarted_peer_is_met_and_its_former_life_is_over(pair: Pair) -> None:
    a, b = pair
    before = sealed(a)
    address = a.address
    a.close()
    again = Transport(address, "a", {"b": b.address}, RING, Random("again"))
    try:
        b.send("a", KIND, [UPDATE])
        assert received(again, 1) == []
        assert again.rejected == {"session": 1}
        assert received(b, 1) == []
        assert received(again, 1) == [("b", Met(b.life))]
        again.send("b", KIND, [UPDATE])
        assert received(b, 2) == [("a", Met(again.life)), ("a", UPDATE)]
        again._socket.sendto(before, b.address)
        assert received(b, 1) == []
        assert b.rejected == {"tag": 1}
    finally:
        again.close()


def all_is_heard(a: Transport, b: Transport, *rings: tuple[KeyRing, KeyRing]) -> None:
    """Change the keys of both step by step, and have each tell the other something."""
    for ring_of_a, ring_of_b in rings:
        a.set_ring(ring_of_a)
        b.set_ring(ring_of_b)
        a.send("b", KIND, [UPDATE])
        b.send("a", KIND, [UPDATE])
        assert received(b, 1) == [("a", UPDATE)]
        assert received(a, 1) == [("b", UPDATE)]


def test_the_key_in_use_changes_without_a_handshake_or_a_loss(pair: Pair) -> None:
    a, b = pair
    new = RING.install(2, b"another key of it")
    all_is_heard(
        a,
        b,
        (new, RING),
        (new, new),
        (new.using(2), new),
        (new.using(2), new.using(2)),
        (new.using(2).remove(1), new.using(2)),
        (new.using(2).remove(1), new.using(2).remove(1)),
    )
    assert not a.rejected
    assert (a.handshakes, a.met, b.met) == (2, 1, 1)


def test_both_keys_are_accepted_during_a_change(make: Make) -> None:
    a, b = make("a", ring=NO_KEYS), make("b", ring=NO_KEYS)
    introduce(a, b)
    migrating = KeyRing(RING.keys, use=0, accept_unauthenticated=True)
    all_is_heard(
        a,
        b,
        (migrating, NO_KEYS),
        (migrating, migrating),
        (migrating.using(1), migrating),
        (migrating.using(1), migrating.using(1)),
        (RING, migrating.using(1)),
        (RING, RING),
    )
    b.set_ring(NO_KEYS)
    b.send("a", KIND, [UPDATE])
    assert received(a, 1) == []
    assert a.rejected == {"key": 1}


def test_another_key_is_refused(make: Make) -> None:
    a, b = make("a"), make("b", ring=KeyRing({1: bytes(16)}, use=1))
    a.update_peers({"b": b.address})
    b.update_peers({"a": a.address})
    a.send("b", KIND, [UPDATE])
    assert received(b, 1) == []
    assert b.rejected == {"tag": 1}
    assert b.handshakes == 0


def test_a_peer_without_a_session_is_greeted_once_a_turn(make: Make) -> None:
    a, b = make("a"), make("b")
    a.update_peers({"b": b.address})
    for _ in range(3):
        a.send("b", KIND, [UPDATE])
        a.send("b", Kind.PROBE, Control(Kind.PROBE, 1, 2, 3))
    assert (a.handshakes, a.sent, a.control_sent) == (1, 0, 0)
    taken(a)
    a.send("b", KIND, [UPDATE])
    assert a.handshakes == 2


def test_a_peer_begins_one_life_in_a_turn(pair: Pair) -> None:
    """Otherwise an attacker that can begin one life could begin one for each answer."""
    _, b = pair
    lives = [Transport(("127.0.0.1", 0), "a", {"b": b.address}, RING, Random(n)) for n in range(2)]
    try:
        channel = b._by_name["a"].channel

        def answer(life: Transport, its_turn: int) -> bytes:
            """The HELLO of a life to a limiter that it does not know."""
            greeting = channel._seal_hello(channel.session.greet())
            opened = life._by_name["b"].channel.open_untrusted(greeting, its_turn)
            assert opened.answer is not None
            return opened.answer

        turn = b._turn + 1
        opened = channel.open_untrusted(answer(lives[0], 1), turn)
        assert opened.body == Met(lives[0].life)
        with pytest.raises(WireError) as caught:
            channel.open_untrusted(answer(lives[1], 1), turn)
        assert caught.value.reason == "hasty"
        assert channel.session.theirs.life == lives[0].life
        opened = channel.open_untrusted(answer(lives[1], 2), turn + 1)
        assert opened.body == Met(lives[1].life)
    finally:
        for life in lives:
            life.close()


def test_a_peer_that_speaks_another_version_is_known_until_it_is_understood(make: Make) -> None:
    a, b = make("a"), make("b")
    a.update_peers({"b": b.address})
    b.update_peers({"a": a.address})
    a._socket.sendto(b"\x10" + bytes(19), b.address)
    assert received(b, 1) == []
    assert (b.rejected, b.other_versions) == ({"version": 1}, {"a": 1})
    b.update_peers({})
    assert b.other_versions == {}
    introduce(a, b)
    assert b.other_versions == {}
    # It was upgraded, or any host has sent this while the peers talk to each other.
    a._socket.sendto(b"\x10" + bytes(19), b.address)
    assert received(b, 1) == []
    assert (b.rejected["version"], b.other_versions) == (2, {"a": 1})
    a.send("b", KIND, [UPDATE])
    assert received(b, 1) == [("a", UPDATE)]
    assert b.other_versions == {}


def test_the_kind_of_a_refused_update_is_known_until_another_update_comes(pair: Pair) -> None:
    a, b = pair
    a.send("b", KIND, [UPDATE])
    assert select.select([b._socket], [], [], DEADLINE_S)[0]
    b.receive(lambda *_: pytest.fail("it is refused"), {KIND: "fabric"})
    assert (b.rejected, b.refused_kinds) == ({"fabric": 1}, {"a": (KIND, "fabric")})
    a.send("b", KIND, [UPDATE])
    assert received(b, 1) == [("a", UPDATE)]
    assert b.refused_kinds == {}


def test_the_kind_of_a_refused_update_leaves_with_the_peer(pair: Pair) -> None:
    a, b = pair
    a.send("b", KIND, [UPDATE])
    assert select.select([b._socket], [], [], DEADLINE_S)[0]
    b.receive(lambda *_: pytest.fail("it is refused"), {KIND: "fabric"})
    b.update_peers({})
    assert b.refused_kinds == {}
