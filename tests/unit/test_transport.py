"""The gossip socket, on the loopback interface."""

import errno
import select
import socket
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, cast

import pytest

from drld.errors import ConfigError, WireError
from drld.gossip.auth import HELLO, Tagger, session_secret
from drld.gossip.channel import MAX_ANSWERS, Message
from drld.gossip.control_wire import (
    CONTROL_TAG_SIZE,
    NOBODY,
    Control,
    End,
    Hello,
    Kind,
    encode_control,
)
from drld.gossip.keyring import KeyRing
from drld.gossip.session import Met
from drld.gossip.transport import MAX_REFUSED, Address, Transport
from drld.gossip.wire import encode
from drld.model import Quantity, Update

from ..tags import tagger

UPDATE = Update(limit_id=1, sequence=258, quantity=Quantity.WEIGHT, epoch=5, value=3.5, weight=0.25)
DEADLINE_S = 10
RING = KeyRing({1: b"sixteen bytes it"}, use=1)
NO_KEYS = KeyRing()
LOCALHOSTS = ["127.0.0.1", "::1"]

Make = Callable[..., Transport]


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes transports on free ports; closes them afterwards."""
    made = []

    def make(me: str, host: str = "127.0.0.1", ring: KeyRing = RING) -> Transport:
        transport = Transport((host, 0), me, {}, ring, Random(me))
        made.append(transport)
        return transport

    yield make
    for transport in made:
        transport.close()


def introduce(a: Transport, b: Transport) -> None:
    """Make a and b peers of one another, by these names, and let them have a session."""
    a.update_peers({"b": b.address})
    b.update_peers({"a": a.address})
    a.send("b", [UPDATE])
    assert received(b, 1) == []
    assert received(a, 1) == [("b", Met(b.life))]
    assert received(b, 1) == [("a", Met(a.life))]
    assert (a.met, b.met, a.handshakes, b.handshakes) == (1, 1, 2, 1)
    a.bytes_sent = b.bytes_sent = 0


def received(transport: Transport, datagrams: int) -> list[tuple[str, Message]]:
    """What comes out of so many datagrams."""
    got: list[tuple[str, Message]] = []
    taken = 0

    class Counting:
        """The socket, and how often it gave something."""

        def recvfrom(self, size: int) -> tuple[bytes, Address]:
            nonlocal taken
            datagram, address = real.recvfrom(size)
            taken += 1
            return datagram, address

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

    real = transport._socket
    transport._socket = cast(socket.socket, Counting())
    try:
        while taken < datagrams:
            readable, _, _ = select.select([real], [], [], DEADLINE_S)
            assert readable, f"only {got} and {transport.rejected}"
            got += transport.receive()
    finally:
        transport._socket = real
    return got


@pytest.fixture
def stranger() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.bind(("127.0.0.1", 0))
        yield made


@pytest.mark.parametrize("ring", [NO_KEYS, RING])
@pytest.mark.parametrize(("host", "size"), [("127.0.0.1", 48), ("::1", 68)])
def test_updates_arrive(make: Make, host: str, size: int, ring: KeyRing) -> None:
    a, b = make("a", host, ring), make("b", host, ring)
    introduce(a, b)
    a.send("b", [UPDATE])
    a.send("b", [UPDATE])
    assert received(b, 2) == [("a", UPDATE)] * 2
    b.send("a", [UPDATE])
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
    a.send("b", [UPDATE])
    assert received(b, 1) == [("a", UPDATE)]
    assert a.bytes_sent == 28 + 16 + tag_size


@pytest.mark.parametrize("kind", [Kind.PROBE, Kind.ACK, Kind.PROBE_REQUEST])
def test_control_messages_arrive(make: Make, kind: Kind) -> None:
    a, b = make("a"), make("b")
    introduce(a, b)
    message = Control(kind, sequence=1, target=2, digest=3)
    a.send_control("b", message)
    a.send("b", [UPDATE])
    assert received(b, 2) == [("a", message), ("a", UPDATE)]
    assert (a.control_sent, b.control_received, b.received) == (1, 1, 1)


def test_receive_does_not_wait(make: Make) -> None:
    assert list(make("a").receive()) == []


def test_a_stranger_is_counted_and_ignored(make: Make, stranger: socket.socket) -> None:
    a, b = make("a"), make("b")
    introduce(a, b)
    stranger.sendto(sealed(a), b.address)
    assert received(b, 1) == []
    assert b.rejected == {"address": 1}


def sealed(a: Transport) -> bytes:
    """What a would send b."""
    datagram = a._by_name["b"].channel.seal_updates([UPDATE])
    assert datagram is not None
    return datagram


def sealed_control(a: Transport) -> bytes:
    datagram = a._by_name["b"].channel.seal_control(Control(Kind.PROBE, 1, 2, 3))
    assert datagram is not None
    return datagram


def test_every_reason_is_counted(make: Make) -> None:
    a, b = make("a"), make("b")
    introduce(a, b)
    good, control = sealed(a), sealed_control(a)
    old = [sealed_control(a) for _ in range(64)][-1]
    body = encode(UPDATE, 1)
    datagrams = [
        b"",
        good[:-1],
        good + b"\0",
        good[:8],
        bytes(2000),
        b"\x20" + good[1:],
        b"\x17" + good[1:],
        good[:1] + b"\x95" + good[2:],
        body + bytes(4),
        tagger(RING.keys[1], "a", "b").seal(body),
        control[:-1] + b"\0",
        b"\x11" + control[1:],
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
        Update,
    ]
    assert b.rejected == {
        **{"length": 5, "version": 1, "kind": 1, "key": 1},
        **{"tag": 4, "replayed": 1},
    }
    a._socket.sendto(control, b.address)
    received(b, 1)
    assert b.rejected["late"] == 1
    assert b.received == 1


def test_without_a_session_nothing_is_believed(make: Make) -> None:
    """The other one is answered, and told that it is not known."""
    a, b = make("a"), make("b")
    introduce(a, b)
    b.update_peers({})
    b.update_peers({"a": a.address})
    for _ in range(3):
        a.send("b", [UPDATE])
    assert received(b, 3) == []
    assert b.rejected == {"session": 3}
    assert b.handshakes == 2
    # It opened another session, and greeted once.
    assert received(a, 1) == []
    assert received(b, 1) == [("a", Met(a.life))]
    assert received(a, 1) == [("b", Met(b.life))]
    a.send("b", [UPDATE])
    assert received(b, 1) == [("a", UPDATE)]


def test_a_restarted_peer_is_met_and_its_former_life_is_over(make: Make) -> None:
    a, b = make("a"), make("b")
    introduce(a, b)
    before = sealed(a)
    address = a.address
    a.close()
    again = Transport(address, "a", {"b": b.address}, RING, Random("again"))
    try:
        b.send("a", [UPDATE])
        assert received(again, 1) == []
        assert again.rejected == {"session": 1}
        assert received(b, 1) == []
        assert received(again, 1) == [("b", Met(b.life))]
        again.send("b", [UPDATE])
        assert received(b, 2) == [("a", Met(again.life)), ("a", UPDATE)]
        again._socket.sendto(before, b.address)
        assert received(b, 1) == []
        assert b.rejected == {"tag": 1}
    finally:
        again.close()


def test_the_key_in_use_changes_without_a_handshake_or_a_loss(make: Make) -> None:
    a, b = make("a"), make("b")
    introduce(a, b)
    new = RING.install(2, b"another key of it")
    for ring_of_a, ring_of_b in (
        (new, RING),
        (new, new),
        (new.using(2), new),
        (new.using(2), new.using(2)),
        (new.using(2).remove(1), new.using(2)),
        (new.using(2).remove(1), new.using(2).remove(1)),
    ):
        a.set_ring(ring_of_a)
        b.set_ring(ring_of_b)
        a.send("b", [UPDATE])
        b.send("a", [UPDATE])
        assert received(b, 1) == [("a", UPDATE)]
        assert received(a, 1) == [("b", UPDATE)]
    assert not a.rejected
    assert (a.handshakes, a.met, b.met) == (2, 1, 1)


def test_on_the_way_to_a_key_both_are_believed(make: Make) -> None:
    a, b = make("a", ring=NO_KEYS), make("b", ring=NO_KEYS)
    introduce(a, b)
    migrating = KeyRing(RING.keys, use=0, accept_unauthenticated=True)
    for ring_of_a, ring_of_b in (
        (migrating, NO_KEYS),
        (migrating, migrating),
        (migrating.using(1), migrating),
        (migrating.using(1), migrating.using(1)),
        (RING, migrating.using(1)),
        (RING, RING),
    ):
        a.set_ring(ring_of_a)
        b.set_ring(ring_of_b)
        a.send("b", [UPDATE])
        b.send("a", [UPDATE])
        assert received(b, 1) == [("a", UPDATE)]
        assert received(a, 1) == [("b", UPDATE)]
    b.set_ring(NO_KEYS)
    b.send("a", [UPDATE])
    assert received(a, 1) == []
    assert a.rejected == {"key": 1}


def test_another_key_is_refused(make: Make) -> None:
    a, b = make("a"), make("b", ring=KeyRing({1: bytes(16)}, use=1))
    a.update_peers({"b": b.address})
    b.update_peers({"a": a.address})
    a.send("b", [UPDATE])
    assert received(b, 1) == []
    assert b.rejected == {"tag": 1}
    assert b.handshakes == 0


def test_who_has_no_session_is_greeted_once_a_turn(make: Make) -> None:
    a, b = make("a"), make("b")
    a.update_peers({"b": b.address})
    for _ in range(3):
        a.send("b", [UPDATE])
        a.send_control("b", Control(Kind.PROBE, 1, 2, 3))
    assert (a.handshakes, a.sent, a.control_sent) == (1, 0, 0)
    list(a.receive())
    a.send("b", [UPDATE])
    assert a.handshakes == 2


def test_a_big_datagram_costs_no_more_than_a_small_one(make: Make, stranger: socket.socket) -> None:
    b = make("b")
    b.update_peers({"a": stranger.getsockname()})
    stranger.sendto(bytes(9000), b.address)
    assert received(b, 1) == []
    assert b.rejected == {"length": 1}


def test_a_flood_of_forgeries_waits_for_the_next_tick(
    make: Make, stranger: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = make("a"), make("b")
    introduce(a, b)
    monkeypatch.setattr("drld.gossip.transport.MAX_REFUSED", 10)
    for _ in range(25):
        stranger.sendto(bytes(20), b.address)
    a.send("b", [UPDATE])
    assert MAX_REFUSED > 10
    assert list(b.receive()) == []
    assert (b.rejected.total(), b.floods) == (10, 1)
    assert not b.drained
    assert list(b.receive()) == []
    assert received(b, 6) == [("a", UPDATE)]
    assert (b.rejected.total(), b.floods) == (25, 2)
    assert b.drained


def greeting(a: Transport, turn: int) -> bytes:
    datagram = a._by_name["b"].channel.greet(turn)
    assert datagram is not None
    return datagram


def test_recorded_handshakes_are_counted_and_a_flood_of_them_waits(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are nobody's fault: a peer may say so again that did not hear the answer."""
    a, b = make("a"), make("b")
    introduce(a, b)
    recorded = greeting(a, 100)
    monkeypatch.setattr("drld.gossip.transport.MAX_REFUSED", 10)
    before = b.greetings
    for _ in range(25):
        a._socket.sendto(recorded, b.address)
    a.send("b", [UPDATE])
    assert list(b.receive()) == []
    assert (b.greetings - before, b.floods, b.rejected) == (10, 1, {})
    assert received(b, 16) == [("a", UPDATE)]
    assert b.greetings - before == 25
    # Whoever has the session has no answer.
    assert b.handshakes == 1


def test_what_is_refused_after_all_counts_against_a_flood(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = make("a"), make("b")
    introduce(a, b)
    monkeypatch.setattr("drld.gossip.transport.MAX_REFUSED", 10)
    for _ in range(4):
        a.send("b", [UPDATE] * 4)
    taken = 0
    for _ in b.receive():
        taken += 1
        b.refuse("replayed")
    assert (taken, b.rejected, b.floods) == (12, {"replayed": 12}, 1)
    assert len(list(b.receive())) == 4


@pytest.mark.parametrize("ring", [NO_KEYS, RING])
def test_a_handshake_gets_through_a_flood(
    make: Make, stranger: socket.socket, ring: KeyRing
) -> None:
    """Of 10,000 forged HELLOs a second from the peer's address, and as many of a stranger's."""
    a, b = make("a", ring=ring), make("b", ring=ring)
    a.update_peers({"b": b.address})
    b.update_peers({"a": a.address})
    rng = Random(1)
    key_id = ring.use << 6

    def flood() -> None:
        """Before each tick. Without a key all of them are as they must be but for the echo."""
        for number in range(500):
            hello = Hello(End(rng.getrandbits(64) | 1, 1), NOBODY, number + 1, rng.getrandbits(64))
            content = encode_control(hello, ring.use, 0)
            forged = content + rng.randbytes(CONTROL_TAG_SIZE)
            if ring is NO_KEYS:
                secret = session_secret(b"", "a", "b")
                forged = Tagger(secret, HELLO, CONTROL_TAG_SIZE).seal(content)
            assert forged[1] == key_id
            a._socket.sendto(forged, b.address)
            stranger.sendto(forged, b.address)

    met: dict[str, list[Message]] = {"a": [], "b": []}
    for _ in range(3):
        flood()
        # A true one is no different where there are no keys, and the last in the queue.
        a.send("b", [UPDATE])
        met["b"] += [message for _, message in received(b, 1)]
        met["a"] += [message for _, message in a.receive()]
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


def test_a_peer_begins_one_life_in_a_turn(make: Make) -> None:
    """Else whoever can begin one could begin as many as he gets answers."""
    a, b = make("a"), make("b")
    introduce(a, b)
    lives = [Transport(("127.0.0.1", 0), "a", {"b": b.address}, RING, Random(n)) for n in range(2)]
    try:
        channel = b._by_name["a"].channel

        def answer(life: Transport, its_turn: int) -> bytes:
            """What a life says to whoever it does not know."""
            greeting = channel._seal_hello(channel.session.greet())
            opened = life._by_name["b"].channel.open_untrusted(greeting, its_turn)
            assert opened.answer is not None
            return opened.answer

        turn = b._turn + 1
        opened = channel.open_untrusted(answer(lives[0], 1), turn)
        assert opened.messages == [Met(lives[0].life)]
        with pytest.raises(WireError) as caught:
            channel.open_untrusted(answer(lives[1], 1), turn)
        assert caught.value.reason == "hasty"
        assert channel.session.theirs.life == lives[0].life
        opened = channel.open_untrusted(answer(lives[1], 2), turn + 1)
        assert opened.messages == [Met(lives[1].life)]
    finally:
        for life in lives:
            life.close()


def test_what_the_kernel_refuses_to_send_is_counted(make: Make) -> None:
    a = make("a")
    # A socket bound to loopback cannot reach beyond it; broadcast is not permitted.
    a.update_peers({"far": ("192.0.2.1", 7946), "all": ("255.255.255.255", 7946)})
    a.send("far", [UPDATE])
    a.send("all", [UPDATE])
    assert a.handshakes == 0
    assert a.errors.total() == 2
    assert a.errors["EACCES"] == 1
    assert set(a.errors) <= {"EACCES", "EINVAL", "ENETUNREACH"}
    assert (a.sent, a.bytes_sent) == (0, 0)


def test_a_dead_peer_is_no_error(make: Make) -> None:
    """Nobody listens: the ICMP message that comes back must not disturb the socket."""
    a, b = make("a"), make("b")
    introduce(a, b)
    b.close()
    for _ in range(3):
        a.send("b", [UPDATE])
    assert list(a.receive()) == []
    assert a.sent == 3
    assert not a.errors


class Failing:
    """A socket whose calls fail in turn."""

    def __init__(self, *failures: OSError) -> None:
        self._failures = list(failures)

    def sendto(self, datagram: bytes, address: Address) -> int:
        raise self._failures.pop(0)

    def recvfrom(self, size: int) -> tuple[bytes, Address]:
        raise self._failures.pop(0)

    def close(self) -> None: ...


def fail(transport: Transport, monkeypatch: pytest.MonkeyPatch, *failures: OSError) -> None:
    transport.close()
    monkeypatch.setattr(transport, "_socket", Failing(*failures))


def test_a_full_send_buffer_is_counted(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = make("a"), make("b")
    introduce(a, b)
    fail(
        a,
        monkeypatch,
        BlockingIOError(errno.EAGAIN, "full"),
        PermissionError(errno.EPERM, "firewall"),
        OSError("nameless"),
    )
    for _ in range(3):
        a.send("b", [UPDATE])
    assert a.errors == {"EAGAIN": 1, "EPERM": 1, "unknown": 1}
    assert a.sent == 0


def test_a_failure_to_receive_is_counted_and_ends_nothing(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = make("a")
    refused = ConnectionRefusedError(errno.ECONNREFUSED, "refused")
    fail(a, monkeypatch, refused, refused, BlockingIOError(errno.EAGAIN, "empty"))
    assert list(a.receive()) == []
    assert a.errors == {"ECONNREFUSED": 2}


def test_a_flood_ends(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = make("a"), make("b")
    introduce(a, b)
    for _ in range(5):
        a.send("b", [UPDATE])
    monkeypatch.setattr(b, "_pending_limit", 3)
    assert len(received(b, 1)) == 3
    assert len(received(b, 1)) == 2


def test_an_ipv6_socket_leaves_ipv4_alone(make: Make) -> None:
    a = make("a", "::")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("0.0.0.0", a.address[1]))


def test_a_reload_changes_the_peers(make: Make) -> None:
    a, b, c = make("a"), make("b"), make("c")
    introduce(a, b)
    b.update_peers({"c": c.address})
    c.update_peers({"b": b.address})
    a.send("b", [UPDATE])
    c.send("b", [UPDATE])
    assert received(b, 2) == []
    assert received(c, 1) == [("b", Met(b.life))]
    c.send("b", [UPDATE])
    assert received(b, 2) == [("c", Met(c.life)), ("c", UPDATE)]
    assert b.rejected == {"address": 1}
    with pytest.raises(KeyError):
        b.send("a", [UPDATE])


def test_a_reload_that_is_taken_back_keeps_peers_and_sessions(make: Make) -> None:
    a, b = make("a"), make("b")
    introduce(a, b)
    undo = b.update_peers({})
    undo()
    b.send("a", [UPDATE])
    assert received(a, 1) == [("b", UPDATE)]


@pytest.mark.parametrize(
    ("peers", "problem"),
    [
        ({"b": ("localhost", 1)}, "peer.b.address: 'localhost' is not an IP address"),
        ({"b": ("::1", 1)}, "peer.b.address: ::1 is of another family than limiter.listen"),
        (
            {"b": ("127.0.0.1", 1), "c": ("127.0.0.1", 1)},
            "peer.c.address: b has the same one",
        ),
    ],
)
def test_bad_addresses_change_nothing(make: Make, peers: dict[str, Address], problem: str) -> None:
    a, b = make("a"), make("b")
    introduce(a, b)
    with pytest.raises(ConfigError) as caught:
        a.update_peers(peers)
    assert caught.value.problems == [problem]
    b.send("a", [UPDATE])
    assert received(a, 1) == [("b", UPDATE)]


def test_a_bad_address_of_our_own_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"limiter\.listen"):
        Transport(("example.org", 1), "a", {})


def test_an_address_in_use_is_refused(make: Make) -> None:
    with pytest.raises(OSError, match="in use"):
        Transport(make("a").address, "b", {})


@pytest.mark.parametrize("host", LOCALHOSTS)
def test_any_spelling_of_an_address_is_known(make: Make, host: str) -> None:
    a, b = make("a", host), make("b", host)
    spelled = {"127.0.0.1": "127.0.0.1", "::1": "0:0:0:0:0:0:0:1"}[host]
    introduce(a, b)
    a.update_peers({"b": (spelled, b.address[1])})
    b.update_peers({"a": (spelled, a.address[1])})
    a.send("b", [UPDATE])
    assert received(b, 1) == [("a", UPDATE)]


def test_closing_twice(make: Make) -> None:
    a = make("a")
    a.close()
    a.close()


def test_a_burst_of_a_large_fleet_fits_the_buffer(make: Make) -> None:
    """What 490 limiters send in an interval waits in the kernel until it is asked for."""
    a, b = make("a"), make("b")
    introduce(a, b)
    for sequence in range(490):
        a.send("b", [Update(1, sequence, Quantity.RATE, 0, 1.0, 1.0)])
    assert [
        update.sequence for _, update in received(b, 490) if isinstance(update, Update)
    ] == list(range(490))
