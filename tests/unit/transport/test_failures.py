"""The gossip socket: what the kernel refuses."""

import errno

import pytest

from drld.gossip.transport import Address, Transport

from ...wire import taken
from .pair import KIND, UPDATE, Make, Pair


def test_datagrams_that_the_kernel_refuses_are_counted(make: Make) -> None:
    a = make("a")
    # A socket bound to loopback cannot reach beyond it; broadcast is not permitted.
    a.update_peers({"far": ("192.0.2.1", 7946), "all": ("255.255.255.255", 7946)})
    a.send("far", KIND, [UPDATE])
    a.send("all", KIND, [UPDATE])
    assert a.handshakes == 0
    assert a.errors.total() == 2
    assert a.errors["EACCES"] == 1
    assert set(a.errors) <= {"EACCES", "EINVAL", "ENETUNREACH"}
    assert (a.sent, a.bytes_sent) == (0, 0)


def test_a_dead_peer_is_no_error(pair: Pair) -> None:
    """No process listens: the ICMP message that comes back must not disturb the socket."""
    a, b = pair
    b.close()
    for _ in range(3):
        a.send("b", KIND, [UPDATE])
    assert taken(a) == []
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


def test_a_full_send_buffer_is_counted(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    a, _ = pair
    fail(
        a,
        monkeypatch,
        BlockingIOError(errno.EAGAIN, "full"),
        PermissionError(errno.EPERM, "firewall"),
        OSError("nameless"),
    )
    for _ in range(3):
        a.send("b", KIND, [UPDATE])
    assert a.errors == {"EAGAIN": 1, "EPERM": 1, "unknown": 1}
    assert a.sent == 0


def test_a_failure_to_receive_is_counted_and_ends_nothing(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = make("a")
    refused = ConnectionRefusedError(errno.ECONNREFUSED, "refused")
    fail(a, monkeypatch, refused, refused, BlockingIOError(errno.EAGAIN, "empty"))
    assert taken(a) == []
    assert a.errors == {"ECONNREFUSED": 2}


def test_a_socket_may_be_closed_twice(make: Make) -> None:
    a = make("a")
    a.close()
    a.close()
