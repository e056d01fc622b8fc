"""The tag of an update."""

import pytest

from drld.errors import WireError
from drld.gossip.auth import MAX_KEY_SIZE, Tagger

BODY = bytes(range(16))


def test_golden_tags() -> None:
    assert Tagger(b"", "lim1", "lim2").seal(BODY) == BODY + bytes.fromhex("07b9b50e")
    assert Tagger(b"secret", "lim1", "lim2").seal(BODY) == BODY + bytes.fromhex("851f21f8")


def test_a_sealed_body_is_accepted() -> None:
    for key in (b"", b"k", b"k" * MAX_KEY_SIZE):
        datagram = Tagger(key, "a", "b").seal(BODY)
        Tagger(key, "a", "b").check_untrusted(datagram)


@pytest.mark.parametrize(
    "other",
    [
        Tagger(b"other", "a", "b"),
        Tagger(b"", "a", "b"),
        Tagger(b"key", "b", "a"),
        Tagger(b"key", "a", "c"),
        Tagger(b"key", "c", "b"),
        Tagger(b"key", "ab", ""),
        Tagger(b"key", "", "ab"),
    ],
)
def test_key_and_names_are_covered(other: Tagger) -> None:
    with pytest.raises(WireError) as caught:
        other.check_untrusted(Tagger(b"key", "a", "b").seal(BODY))
    assert caught.value.reason == "tag"


def test_every_bit_is_covered() -> None:
    tagger = Tagger(b"key", "a", "b")
    datagram = tagger.seal(BODY)
    for bit in range(8 * len(datagram)):
        flipped = bytearray(datagram)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(WireError):
            tagger.check_untrusted(bytes(flipped))


def test_a_key_or_name_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Tagger(b"k" * 33, "a", "b")
    with pytest.raises(ValueError, match="name"):
        Tagger(b"", "a" * 65536, "b")
