"""The gossip socket, on the loopback interface."""

import errno
import select
import socket
from collections.abc import Callable, Iterator

import pytest

from drld.errors import ConfigError
from drld.gossip.control_wire import Control, Kind
from drld.gossip.transport import Address, Transport
from drld.gossip.wire import encode
from drld.model import Quantity, Update

from ..tags import tagger

UPDATE = Update(limit_id=1, sequence=258, quantity=Quantity.WEIGHT, epoch=5, value=3.5, weight=0.25)
DEADLINE_S = 10
LOCALHOSTS = ["127.0.0.1", "::1"]

Make = Callable[..., Transport]


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes transports on free ports; closes them afterwards."""
    made = []

    def make(me: str, host: str = "127.0.0.1", key: bytes = b"") -> Transport:
        transport = Transport((host, 0), me, {}, key)
        made.append(transport)
        return transport

    yield make
    for transport in made:
        transport.close()


def introduce(a: Transport, b: Transport) -> None:
    """Make a and b peers of one another, by these names."""
    a.update_peers({"b": b.address})
    b.update_peers({"a": a.address})


def received(transport: Transport, datagrams: int) -> list[tuple[str, Update | Control]]:
    """What comes out once so many datagrams have come in."""
    got: list[tuple[str, Update | Control]] = []

    def seen() -> int:
        return transport.received + transport.control_received + transport.rejected.total()

    before = seen()
    while seen() < before + datagrams:
        readable, _, _ = select.select([transport._socket], [], [], DEADLINE_S)
        assert readable, f"only {got} and {transport.rejected}"
        got += transport.receive()
    return got


@pytest.fixture
def stranger() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.bind(("127.0.0.1", 0))
        yield made


@pytest.mark.parametrize("key", [b"", b"secret"])
@pytest.mark.parametrize(("host", "size"), [("127.0.0.1", 48), ("::1", 68)])
def test_updates_arrive(make: Make, host: str, size: int, key: bytes) -> None:
    a, b = make("a", host, key), make("b", host, key)
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


@pytest.mark.parametrize("kind", [Kind.PROBE, Kind.ACK, Kind.PROBE_REQUEST])
def test_control_messages_arrive(make: Make, kind: Kind) -> None:
    a, b = make("a", key=b"secret"), make("b", key=b"secret")
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
    stranger.sendto(tagger(b"", "a", "b").seal(encode(UPDATE)), b.address)
    assert received(b, 1) == []
    assert b.rejected == {"address": 1}


def test_every_reason_is_counted(make: Make, stranger: socket.socket) -> None:
    b = make("b", key=b"secret")
    b.update_peers({"a": stranger.getsockname()})
    good = tagger(b"secret", "a", "b").seal(encode(UPDATE))
    datagrams = [
        b"",
        good[:-1],
        good + b"\0",
        b"\x20" + good[1:],
        b"\x15" + good[1:],
        tagger(b"guess", "a", "b").seal(encode(UPDATE)),
        tagger(b"secret", "a", "c").seal(encode(UPDATE)),
        good,
    ]
    for datagram in datagrams:
        stranger.sendto(datagram, b.address)
    assert received(b, len(datagrams)) == [("a", UPDATE)]
    assert b.rejected == {"length": 3, "version": 1, "kind": 1, "tag": 2}
    assert b.received == 1


def test_a_big_datagram_costs_no_more_than_a_small_one(make: Make, stranger: socket.socket) -> None:
    b = make("b")
    b.update_peers({"a": stranger.getsockname()})
    stranger.sendto(bytes(9000), b.address)
    assert received(b, 1) == []
    assert b.rejected == {"length": 1}


def test_what_the_kernel_refuses_to_send_is_counted(make: Make) -> None:
    a = make("a")
    # A socket bound to loopback cannot reach beyond it; broadcast is not permitted.
    a.update_peers({"far": ("192.0.2.1", 7946), "all": ("255.255.255.255", 7946)})
    a.send("far", [UPDATE])
    a.send("all", [UPDATE])
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
    a = make("a")
    a.update_peers({"b": ("127.0.0.1", 7946)})
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
    a.send("b", [UPDATE])
    received(b, 1)
    b.update_peers({"c": c.address})
    c.update_peers({"b": b.address})
    a.send("b", [UPDATE])
    c.send("b", [UPDATE])
    assert received(b, 2) == [("c", UPDATE)]
    assert b.rejected == {"address": 1}
    with pytest.raises(KeyError):
        b.send("a", [UPDATE])


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
