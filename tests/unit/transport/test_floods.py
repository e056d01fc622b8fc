"""The gossip socket in a flood, of forgeries or of what a large fleet says."""

import socket
from random import Random
from types import SimpleNamespace
from typing import cast

import pytest

from drld.gossip.transport import MAX_REFUSED, Address
from drld.gossip.wire.channel import MAX_ANSWERS
from drld.gossip.wire.control_codec import NO_END, Control, End, Hello, Kind
from drld.gossip.wire.datagram_tag import HELLO, Tagger, session_secret
from drld.gossip.wire.keyring import KeyRing
from drld.gossip.wire.message import LONG_TAG_SIZE
from drld.gossip.wire.session import Met
from drld.gossip.wire.update_codec import MAX_UPDATES
from drld.model import Update

from ...wire import encode_control, pushsum, taken
from .pair import KIND, NO_KEYS, RING, UPDATE, Make, Pair, greeting, received


def test_a_flood_of_forgeries_waits_for_the_next_tick(
    pair: Pair, stranger: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair
    monkeypatch.setattr("drld.gossip.transport.MAX_REFUSED", 10)
    for _ in range(25):
        stranger.sendto(bytes(20), b.address)
    a.send("b", KIND, [UPDATE])
    assert MAX_REFUSED > 10
    assert taken(b) == []
    assert (b.rejected.total(), b.floods) == (10, 1)
    assert not b.drained
    assert taken(b) == []
    assert received(b, 6) == [("a", UPDATE)]
    assert (b.rejected.total(), b.floods) == (25, 2)
    assert b.drained


def test_updates_that_are_not_taken_count_against_a_flood_and_nothing_else_is_lost(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair
    monkeypatch.setattr("drld.gossip.transport.MAX_REFUSED", 3)
    probe = Control(Kind.PROBE, 1, 2, 3)
    a.send("b", KIND, [UPDATE] * MAX_UPDATES)
    a.send("b", Kind.PROBE, probe)
    for _ in range(4):
        a.send("b", KIND, [UPDATE])
    assert taken(b, {KIND: "unheeded"}) == [("a", probe)]
    assert (b.rejected, b.received, b.floods) == ({"unheeded": 3}, 0, 1)
    assert taken(b) == [("a", UPDATE)] * 2


def test_the_updates_of_a_large_fleet_in_a_tick_are_no_flood(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flood would never end: after one, all updates of the next tick are refused."""
    a, b = pair
    monkeypatch.setattr("drld.gossip.transport.MAX_REFUSED", 3)
    others = {f"p{number}": (f"127.0.1.{number}", 7946) for number in range(7)}
    b.update_peers({"a": a.address, **others})
    b.drained = False
    for _ in range(len(others) + 1):
        a.send("b", KIND, [UPDATE])
    assert taken(b, {KIND: "unheeded"}) == []
    assert (b.rejected, b.floods, b.drained) == ({"unheeded": 8}, 0, True)


def test_recorded_handshakes_are_counted_and_a_flood_of_them_waits(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They accuse no peer: a peer that did not hear the answer may repeat its HELLO."""
    a, b = pair
    recorded = greeting(a, 100)
    monkeypatch.setattr("drld.gossip.transport.MAX_REFUSED", 10)
    before = b.greetings
    for _ in range(25):
        a._socket.sendto(recorded, b.address)
    a.send("b", KIND, [UPDATE])
    assert taken(b) == []
    assert (b.greetings - before, b.floods, b.rejected) == (10, 1, {})
    assert received(b, 16) == [("a", UPDATE)]
    assert b.greetings - before == 25
    # A HELLO of the session in use gets no answer.
    assert b.handshakes == 1


def test_updates_that_the_owner_refuses_count_against_a_flood(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair
    monkeypatch.setattr("drld.gossip.transport.MAX_REFUSED", 10)
    for _ in range(4):
        a.send("b", KIND, [UPDATE] * 4)
    came = 0

    def refuse_all(_peer: str, _kind: int, body: list[Update]) -> None:
        nonlocal came
        came += len(body)
        for _ in body:
            b.refuse("replayed")

    b.receive(refuse_all)
    assert (came, b.rejected, b.floods) == (12, {"replayed": 12}, 1)
    assert len(taken(b)) == 4


@pytest.mark.parametrize("ring", [NO_KEYS, RING])
def test_a_handshake_gets_through_a_flood(
    make: Make, stranger: socket.socket, ring: KeyRing
) -> None:
    """10,000 forged HELLOs a second come from the peer's address, and as many from a stranger."""
    a, b = make("a", ring=ring), make("b", ring=ring)
    a.update_peers({"b": b.address})
    b.update_peers({"a": a.address})
    rng = Random(1)
    key_id = ring.use << 6

    def flood() -> None:
        """Before each tick. Without a key all of them are as they must be but for the echo."""
        for number in range(500):
            hello = Hello(End(rng.getrandbits(64) | 1, 1), NO_END, number + 1, rng.getrandbits(64))
            content = encode_control(hello, ring.use, 0)
            forged = content + rng.randbytes(LONG_TAG_SIZE)
            if ring is NO_KEYS:
                secret = session_secret(b"", "a", "b")
                forged = Tagger(secret, HELLO, LONG_TAG_SIZE).seal(content)
            assert forged[1] == key_id
            a._socket.sendto(forged, b.address)
            stranger.sendto(forged, b.address)

    met: dict[str, list[object]] = {"a": [], "b": []}
    for _ in range(3):
        flood()
        # A true one is no different where there are no keys, and the last in the queue.
        a.send("b", KIND, [UPDATE])
        met["b"] += [message for _, message in received(b, 1)]
        met["a"] += [message for _, message in taken(a)]
    assert Met(a.life) in met["b"]
    assert met["a"] == [Met(b.life)]
    assert b.floods == 0
    assert b.rejected["address"] == 1500
    if ring is NO_KEYS:
        assert b.greetings >= 1500
        # A few are answered in a tick, so that a true one is, if not in this one.
        assert b.handshakes <= 3 * (MAX_ANSWERS + 1)
    else:
        assert b.rejected["tag"] == 1500


def test_a_flood_ends(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = pair
    for _ in range(5):
        a.send("b", KIND, [UPDATE])
    monkeypatch.setattr(b, "_pending_limit", 3 * 512)
    assert len(received(b, 1)) == 3
    assert len(received(b, 1)) == 2


def test_a_bound_on_what_is_delivered_leaves_the_rest_for_the_next_look(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair
    for _ in range(5):
        a.send("b", KIND, [UPDATE])
    size = len(a._by_name["b"].channel.seal(KIND, [UPDATE]) or b"")
    monkeypatch.setattr(b, "_most_delivered", size + 1)
    looks = [(len(received(b, 1)), b.drained) for _ in range(3)]
    assert looks == [(2, False), (2, False), (1, True)]
    assert b.floods == 0


def test_a_flood_of_long_datagrams_ends_when_no_more_can_have_been_there(pair: Pair) -> None:
    """The kernel counts their length, too: there is room for a third as many of these."""
    a, b = pair
    most = b._pending_limit // (512 + MAX_UPDATES * 16)
    waiting = 0

    def flood(_: int) -> tuple[bytes, Address]:
        nonlocal waiting
        waiting += 1
        return long, a.address

    long = a._by_name["b"].channel.seal(KIND, [UPDATE] * MAX_UPDATES) or b""
    b._socket.close()
    b._socket = cast(socket.socket, SimpleNamespace(recvfrom=flood, close=bool))
    assert len(taken(b)) == waiting * MAX_UPDATES
    assert waiting <= most


def test_a_burst_of_a_large_fleet_fits_the_buffer(pair: Pair) -> None:
    """The updates of 490 limiters in an interval wait in the kernel until the next tick."""
    a, b = pair
    for sequence in range(490):
        a.send("b", KIND, [pushsum(1, sequence, 1.0, 1.0)])
    assert [
        update.sequence for _, update in received(b, 490) if isinstance(update, Update)
    ] == list(range(490))
