"""The key ring: which keys seal and open, and how they are changed."""

import base64

import pytest

from drld.errors import ConfigError, WireError
from drld.gossip.wire.keyring import KeyRing, fingerprint, parse_key

ONE, TWO = bytes(16), bytes(range(32))
RING = KeyRing({1: ONE, 2: TWO}, use=1)


def reason(ring: KeyRing, key_id: int) -> str | None:
    try:
        ring.key(key_id)
    except WireError as error:
        return error.reason
    return None


def test_every_key_of_the_ring_opens_and_one_seals() -> None:
    assert [RING.key(1), RING.key(2), RING.key(RING.use)] == [ONE, TWO, ONE]
    assert [reason(RING, key_id) for key_id in range(4)] == ["key", None, None, "key"]


def test_without_keys_every_datagram_is_taken() -> None:
    assert (KeyRing().use, KeyRing().key(0)) == (0, b"")
    assert reason(KeyRing(), 1) == "key"


def test_migration_takes_both() -> None:
    ring = KeyRing({1: ONE}, use=0, accept_unauthenticated=True)
    assert (ring.key(ring.use), ring.key(0), ring.key(1)) == (b"", b"", ONE)
    assert reason(KeyRing({1: ONE}, use=1, accept_unauthenticated=True), 0) is None


def test_keys_are_installed_used_and_removed() -> None:
    ring = KeyRing({1: ONE}, use=1).install(2, TWO)
    assert ring == RING
    assert ring.using(2).remove(1) == KeyRing({2: TWO}, use=2)
    assert ring.install(2, ONE).keys[2] == ONE
    assert ring.install(1, ONE) == ring


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda: RING.using(3), r"must be the id of a key \(got 3\)"),
        (lambda: RING.using(0), "accept_unauthenticated"),
        (lambda: RING.remove(1), "in use"),
        (lambda: RING.remove(3), "not there"),
        (lambda: RING.install(1, TWO), "in use"),
        (lambda: RING.install(0, TWO), "one of 1, 2, 3"),
        (lambda: RING.install(4, TWO), "one of 1, 2, 3"),
        (lambda: RING.install(3, bytes(15)), "15 bytes"),
        (lambda: RING.install(3, bytes(33)), "33 bytes"),
        (lambda: KeyRing(tag_size=5), "tag: 5"),
    ],
)
def test_an_invalid_change_of_keys_is_refused(change: object, problem: str) -> None:
    assert callable(change)
    with pytest.raises(ConfigError, match=problem):
        change()


@pytest.mark.parametrize("key", [ONE, TWO, bytes(range(24))])
def test_keys_are_read_in_both_writings(key: bytes) -> None:
    for text in (key.hex(), key.hex().upper(), base64.b64encode(key).decode()):
        assert parse_key(f" {text}\n".encode()) == key


def test_a_fingerprint_tells_keys_apart() -> None:
    assert fingerprint(ONE) != fingerprint(TWO)
    assert len(fingerprint(ONE)) == 8


def test_a_ring_does_not_show_its_keys() -> None:
    assert repr(TWO) not in repr(RING)
