"""The gossip socket: what arrives, and what is refused."""

import socket

import pytest

from drld.gossip.fabrics.pushsum_update import PushsumUpdate
from drld.gossip.wire.control_codec import Control, Kind
from drld.gossip.wire.keyring import KeyRing

from ...tags import tagger
from ...wire import encode, taken
from .pair import (
    KIND,
    NO_KEYS,
    RING,
    UPDATE,
    Make,
    Pair,
    introduce,
    received,
    sealed,
    sealed_control,
)


@pytest.mark.parametrize("ring", [NO_KEYS, RING])
@pytest.mark.parametrize(("host", "size"), [("127.0.0.1", 48), ("::1", 68)])
def test_updates_arrive(make: Make, host: str, size: int, ring: KeyRing) -> None:
    a, b = make("a", host, ring), make("b", host, ring)
    introduce(a, b)
    a.send("b", KIND, [UPDATE])
    a.send("b", KIND, [UPDATE])
    assert received(b, 2) == [("a", UPDATE)] * 2
    b.send("a", KIND, [UPDATE])
    assert received(a, 1) == [("b", UPDATE)]
    assert (a.sent, a.bytes_sent, a.received) == (2, 2 * size, 1)
    assert (b.sent, b.bytes_sent, b.received) == (1, size, 2)
    assert not a.rejected
    assert not a.errors


@pytest.mark.parametrize("tag_size", [4, 8, 16])
def test_the_tag_may_be_longer(make: Make, tag_size: int) -> None:
    ring = KeyRing(RING.keys, use=1, tag_size=tag_size)
    a, b = make("a", ring=ring), make("b", ring=ring)
    introduce(a, b)
    a.send("b", KIND, [UPDATE])
    assert received(b, 1) == [("a", UPDATE)]
    assert a.bytes_sent == 28 + 16 + tag_size


@pytest.mark.parametrize("kind", [Kind.PROBE, Kind.ACK, Kind.PROBE_REQUEST])
def test_control_messages_arrive(pair: Pair, kind: Kind) -> None:
    a, b = pair
    message = Control(kind, sequence=1, target=2, digest=3)
    a.send("b", kind, message)
    a.send("b", KIND, [UPDATE])
    assert received(b, 2) == [("a", message), ("a", UPDATE)]
    assert (a.control_sent, b.control_received, b.received) == (1, 1, 1)


def test_receive_does_not_wait(make: Make) -> None:
    assert taken(make("a")) == []


def test_a_stranger_is_counted_and_ignored(pair: Pair, stranger: socket.socket) -> None:
    a, b = pair
    stranger.sendto(sealed(a), b.address)
    assert received(b, 1) == []
    assert b.rejected == {"address": 1}


def test_every_reason_is_counted(pair: Pair) -> None:
    a, b = pair
    good, control = sealed(a), sealed_control(a)
    old = [sealed_control(a) for _ in range(64)][-1]
    body = encode(UPDATE, 1)
    datagrams = [
        b"",
        good[:-1],
        good + b"\0",
        good[:8],
        bytes(2000),
        b"\x10" + good[1:],
        b"\x2e" + good[1:],
        good[:1] + b"\xb5" + good[2:],
        body + bytes(4),
        tagger(RING.keys[1], "a", "b").seal(body),
        control[:-1] + b"\0",
        b"\x23" + control[1:],
        control,
        control,
        old,
        good,
    ]
    for datagram in datagrams:
        a._socket.sendto(datagram, b.address)
    assert [type(message) for _, message in received(b, len(datagrams))] == [
        Control,
        Control,
        PushsumUpdate,
    ]
    assert b.rejected == {
        **{"length": 5, "version": 1, "kind": 1, "key": 1},
        **{"tag": 4, "replayed": 1},
    }
    a._socket.sendto(control, b.address)
    received(b, 1)
    assert b.rejected["late"] == 1
    assert b.received == 1


def test_a_big_datagram_costs_no_more_than_a_small_one(make: Make, stranger: socket.socket) -> None:
    b = make("b")
    b.update_peers({"a": stranger.getsockname()})
    stranger.sendto(bytes(9000), b.address)
    assert received(b, 1) == []
    assert b.rejected == {"length": 1}


def test_a_reload_that_is_taken_back_keeps_peers_and_sessions(pair: Pair) -> None:
    a, b = pair
    undo = b.update_peers({})
    undo()
    b.send("a", KIND, [UPDATE])
    assert received(a, 1) == [("b", UPDATE)]
