"""The gossip socket: its address, and those of the peers."""

import socket

import pytest

from drld.errors import ConfigError
from drld.gossip.transport import Address, Transport
from drld.gossip.wire.session import Met

from .pair import KIND, UPDATE, Make, Pair, introduce, received

LOCALHOSTS = ["127.0.0.1", "::1"]


def test_an_ipv6_socket_leaves_ipv4_alone(make: Make) -> None:
    a = make("a", "::")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("0.0.0.0", a.address[1]))


def test_a_reload_changes_the_peers(make: Make) -> None:
    a, b, c = make("a"), make("b"), make("c")
    introduce(a, b)
    b.update_peers({"c": c.address})
    c.update_peers({"b": b.address})
    a.send("b", KIND, [UPDATE])
    c.send("b", KIND, [UPDATE])
    assert received(b, 2) == []
    assert received(c, 1) == [("b", Met(b.life))]
    c.send("b", KIND, [UPDATE])
    assert received(b, 2) == [("c", Met(c.life)), ("c", UPDATE)]
    assert b.rejected == {"address": 1}
    with pytest.raises(KeyError):
        b.send("a", KIND, [UPDATE])


@pytest.mark.parametrize(
    ("peers", "problem"),
    [
        ({"b": ("localhost", 1)}, "peer.b.address: 'localhost' is not an IP address"),
        ({"b": ("::1", 1)}, "peer.b.address: ::1 is of another family than limiter.listen"),
        (
            {"b": ("127.0.0.1", 1), "c": ("127.0.0.1", 1)},
            "peer.c.address: peer b has the same address",
        ),
    ],
)
def test_bad_addresses_change_nothing(pair: Pair, peers: dict[str, Address], problem: str) -> None:
    a, b = pair
    with pytest.raises(ConfigError) as caught:
        a.update_peers(peers)
    assert caught.value.problems == [problem]
    b.send("a", KIND, [UPDATE])
    assert received(a, 1) == [("b", UPDATE)]


def test_a_bad_own_address_is_refused() -> None:
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
    a.send("b", KIND, [UPDATE])
    assert received(b, 1) == [("a", UPDATE)]
