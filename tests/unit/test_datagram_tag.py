"""The tag of a datagram."""

import pytest

from drld.errors import WireError
from drld.gossip.wire.datagram_tag import CONTROL, HELLO, MAX_KEY_SIZE, Tagger, session_secret

from ..tags import tagger

BODY = bytes(range(16))


def test_a_sealed_body_is_accepted() -> None:
    for key in (b"", b"k", b"k" * MAX_KEY_SIZE):
        for size in (4, 8, 16):
            datagram = tagger(key, "a", "b", size=size).seal(BODY)
            assert len(datagram) == len(BODY) + size
            tagger(key, "a", "b", size=size).check_untrusted(datagram)


@pytest.mark.parametrize(
    "other",
    [
        tagger(b"other", "a", "b"),
        tagger(b"", "a", "b"),
        tagger(b"key", "b", "a"),
        tagger(b"key", "a", "c"),
        tagger(b"key", "c", "b"),
        tagger(b"key", "ab", ""),
        tagger(b"key", "", "ab"),
        tagger(b"key", "a", "b", ends=bytes(24)),
        tagger(b"key", "a", "b", kind=CONTROL),
        tagger(b"key", "a", "b", kind=HELLO),
    ],
)
def test_key_names_session_and_kind_are_covered(other: Tagger) -> None:
    with pytest.raises(WireError) as caught:
        other.check_untrusted(tagger(b"key", "a", "b").seal(BODY))
    assert caught.value.reason == "tag"


def test_a_short_tag_is_not_the_beginning_of_a_long_one() -> None:
    long = tagger(b"key", "a", "b", size=16).seal(BODY)
    assert not long.startswith(tagger(b"key", "a", "b").seal(BODY))


def test_every_bit_is_covered() -> None:
    one = tagger(b"key", "a", "b")
    datagram = one.seal(BODY)
    for bit in range(8 * len(datagram)):
        flipped = bytearray(datagram)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(WireError):
            one.check_untrusted(bytes(flipped))


def test_a_key_or_name_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        session_secret(b"k" * 33, "a", "b")
    with pytest.raises(ValueError, match="name"):
        session_secret(b"", "a" * 65536, "b")
