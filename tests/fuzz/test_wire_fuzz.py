"""Whatever bytes arrive: a valid update or a `WireError`, and nothing else."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drld.errors import WireError
from drld.gossip.fabrics.tree_ranks import Role
from drld.gossip.wire.update_codec import MAX_UPDATES, TAG_SIZE, UPDATE_SIZE, size

from ..examples import examples
from ..tags import tagger
from ..wire import encode, mesh, pushsum, tree
from .targets.wire import check, check_updates

DATAGRAMS = [
    tagger(b"", "a", "b").seal(encode(update))
    for update in (mesh(1, 2, 4.0), pushsum(1, 2, 4.0, 5.0), tree(1, 2, Role.PARENT, 4.0, 5))
]
datagrams = st.sampled_from(DATAGRAMS)


@settings(max_examples=examples(500))
@given(
    st.one_of(
        st.binary(max_size=64), *(st.binary(min_size=size(n), max_size=size(n)) for n in (1, 2))
    )
)
def test_random_bytes_are_opened_or_refused(datagram: bytes) -> None:
    check(datagram)


@settings(max_examples=examples(500))
@given(datagrams, st.binary(min_size=19, max_size=19))
def test_random_bytes_behind_a_good_head_are_opened_or_refused(
    datagram: bytes, rest: bytes
) -> None:
    check(datagram[:1] + rest)


@given(
    datagrams, st.lists(st.binary(min_size=14, max_size=14), min_size=1, max_size=MAX_UPDATES + 1)
)
def test_random_bodies_behind_good_heads_are_read_or_refused(
    datagram: bytes, rests: list[bytes]
) -> None:
    check(b"".join(datagram[:2] + rest for rest in rests) + bytes(4))


@settings(max_examples=examples(500))
@given(datagrams, st.lists(st.tuples(st.integers(0, size(1) - 1), st.integers(0, 255)), max_size=4))
def test_mutated_updates_are_read_or_refused(good: bytes, changes: list[tuple[int, int]]) -> None:
    datagram = bytearray(good)
    for index, byte in changes:
        datagram[index] = byte
    accepted = check_updates(bytes(datagram), TAG_SIZE)
    if bytes(datagram) == good:
        assert accepted
    else:
        # The tag catches what changed, whether or not the fields are well-formed.
        with pytest.raises(WireError, match="tag"):
            tagger(b"", "a", "b").check_untrusted(bytes(datagram))


@given(datagrams, st.integers(0, size(MAX_UPDATES + 2)))
def test_cut_and_extended_updates_are_read_or_refused(datagram: bytes, length: int) -> None:
    bodies, rest = divmod(length - 4, UPDATE_SIZE)
    many = datagram[:UPDATE_SIZE] * (MAX_UPDATES + 3)
    assert check_updates(many[:length], TAG_SIZE) == (rest == 0 and 1 <= bodies <= MAX_UPDATES)


@given(st.binary(max_size=64))
def test_tags_of_random_bytes_are_refused(datagram: bytes) -> None:
    with pytest.raises(WireError, match="tag"):
        tagger(b"key", "a", "b").check_untrusted(datagram)
