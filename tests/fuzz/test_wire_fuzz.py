"""Whatever bytes arrive: a valid update or a `WireError`, and nothing else."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drld.errors import WireError
from drld.gossip.wire.update_codec import (
    BODY_SIZE,
    MAX_UPDATES,
    TAG_SIZE,
    encode,
    size,
)
from drld.model import Quantity, Update

from ..examples import examples
from ..tags import tagger
from .targets.wire import check, check_updates

DATAGRAM = tagger(b"", "a", "b").seal(encode(Update(1, 2, Quantity.RATE, 3, 4.0, 5.0)))


@settings(max_examples=examples(500))
@given(
    st.one_of(
        st.binary(max_size=64), *(st.binary(min_size=size(n), max_size=size(n)) for n in (1, 2))
    )
)
def test_random_bytes(datagram: bytes) -> None:
    check(datagram)


@settings(max_examples=examples(500))
@given(st.binary(min_size=18, max_size=18))
def test_random_bytes_behind_a_good_head(rest: bytes) -> None:
    check(DATAGRAM[:2] + rest)


@given(st.lists(st.binary(min_size=14, max_size=14), min_size=1, max_size=MAX_UPDATES + 1))
def test_random_bodies_behind_good_heads(rests: list[bytes]) -> None:
    check(b"".join(DATAGRAM[:2] + rest for rest in rests) + bytes(4))


@settings(max_examples=examples(500))
@given(st.lists(st.tuples(st.integers(0, size(1) - 1), st.integers(0, 255)), max_size=4))
def test_mutated_updates(changes: list[tuple[int, int]]) -> None:
    datagram = bytearray(DATAGRAM)
    for index, byte in changes:
        datagram[index] = byte
    accepted = check_updates(bytes(datagram), TAG_SIZE)
    if bytes(datagram) == DATAGRAM:
        assert accepted
    else:
        # The tag catches what changed, whether or not the fields are well-formed.
        with pytest.raises(WireError, match="tag"):
            tagger(b"", "a", "b").check_untrusted(bytes(datagram))


@given(st.integers(0, size(MAX_UPDATES + 2)))
def test_cut_and_extended_updates(length: int) -> None:
    bodies, rest = divmod(length - 4, BODY_SIZE)
    many = DATAGRAM[:BODY_SIZE] * (MAX_UPDATES + 3)
    assert check_updates(many[:length], TAG_SIZE) == (rest == 0 and 1 <= bodies <= MAX_UPDATES)


@given(st.binary(max_size=64))
def test_tags_of_random_bytes(datagram: bytes) -> None:
    with pytest.raises(WireError, match="tag"):
        tagger(b"key", "a", "b").check_untrusted(datagram)
