"""Whatever bytes arrive: a valid update or a `WireError`, and nothing else."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drld.errors import WireError
from drld.gossip.auth import Tagger
from drld.gossip.wire import MAX_VALUE, MAX_WEIGHT, UPDATE_SIZE, decode_untrusted, encode
from drld.model import Quantity, Update

REASONS = {"length", "version", "kind", "key", "quantity", "limit", "value", "weight"}
DATAGRAM = Tagger(b"", "a", "b").seal(encode(Update(1, 2, Quantity.RATE, 3, 4.0, 5.0)))


def decode(datagram: bytes) -> Update | str:
    """The update, or the reason for its refusal."""
    try:
        return decode_untrusted(datagram)
    except WireError as error:
        return error.reason


def check(datagram: bytes) -> bool:
    """Decode; whether it was accepted."""
    update = decode(datagram)
    if isinstance(update, str):
        assert update in REASONS
        return False
    assert len(datagram) == UPDATE_SIZE
    assert 1 <= update.limit_id <= 65535
    assert 0 <= update.sequence < 2**32
    assert isinstance(update.quantity, Quantity)
    assert 0 <= update.epoch < 16
    assert math.isfinite(update.value)
    assert abs(update.value) <= MAX_VALUE
    assert 0 <= update.weight <= MAX_WEIGHT
    assert encode(update) == datagram[:16]
    return True


@settings(max_examples=500)
@given(st.one_of(st.binary(max_size=64), st.binary(min_size=UPDATE_SIZE, max_size=UPDATE_SIZE)))
def test_random_bytes(datagram: bytes) -> None:
    check(datagram)


@settings(max_examples=500)
@given(st.binary(min_size=18, max_size=18))
def test_random_bytes_behind_a_good_head(rest: bytes) -> None:
    check(DATAGRAM[:2] + rest)


@settings(max_examples=500)
@given(st.lists(st.tuples(st.integers(0, UPDATE_SIZE - 1), st.integers(0, 255)), max_size=4))
def test_mutated_updates(changes: list[tuple[int, int]]) -> None:
    datagram = bytearray(DATAGRAM)
    for index, byte in changes:
        datagram[index] = byte
    accepted = check(bytes(datagram))
    if bytes(datagram) == DATAGRAM:
        assert accepted
    else:
        # The tag catches what changed, whether or not the fields are well-formed.
        with pytest.raises(WireError, match="tag"):
            Tagger(b"", "a", "b").check_untrusted(bytes(datagram))


@given(st.integers(0, 3 * UPDATE_SIZE))
def test_cut_and_extended_updates(length: int) -> None:
    assert check((DATAGRAM * 3)[:length]) == (length == UPDATE_SIZE)


@given(st.binary(max_size=64))
def test_tags_of_random_bytes(datagram: bytes) -> None:
    with pytest.raises(WireError, match="tag"):
        Tagger(b"key", "a", "b").check_untrusted(datagram)
