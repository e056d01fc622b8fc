"""Round trips through the update codecs and the tag."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from drld.gossip.fabrics.mesh_update import MeshUpdate
from drld.gossip.fabrics.pushsum_update import MAX_WEIGHT, PushsumUpdate
from drld.gossip.fabrics.tree_ranks import Role
from drld.gossip.fabrics.tree_update import MAX_MEMBERS
from drld.gossip.wire.datagram_tag import MAX_KEY_SIZE
from drld.gossip.wire.update_codec import MAX_UPDATES, MAX_VALUE, size, to_float32
from drld.model import Quantity, Update

from .. import wire
from ..tags import tagger

limits, sequences = st.integers(1, 65535), st.integers(0, 2**32 - 1)
quantities = st.sampled_from(Quantity)
alone = quantities.filter(lambda it: it is not Quantity.BACKLOG)
"""Quantities that a limit shares alone; push-sum carries no others."""
positive = st.floats(0, MAX_VALUE)
BY_FABRIC = (
    st.builds(
        wire.mesh, limits, sequences, positive, quantities,
        hears=st.booleans(), whole=st.booleans(), rest=st.none() | positive,
    ),
    st.builds(
        wire.pushsum, limits, sequences, st.floats(-MAX_VALUE, MAX_VALUE),
        # Float32 rounds less to zero, which would say that the receiver is not heard.
        st.just(0.0) | st.floats(2.0**-126, MAX_WEIGHT), alone, epoch=st.integers(0, 15),
    ),
    st.builds(
        wire.tree, limits, sequences, st.sampled_from(Role), positive,
        st.integers(0, MAX_MEMBERS), quantity=quantities,
    ),
)  # fmt: skip
updates: st.SearchStrategy[Update] = st.one_of(*BY_FABRIC)
bodies: st.SearchStrategy[list[Update]] = st.one_of(
    *(st.lists(each, min_size=1, max_size=MAX_UPDATES) for each in BY_FABRIC)
)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
keys = st.binary(max_size=MAX_KEY_SIZE)


def rounded(update: Update) -> Update:
    """An update as it arrives."""
    update = replace(update, value=to_float32(update.value))
    if isinstance(update, MeshUpdate) and update.rest is not None:
        return replace(update, rest=to_float32(update.rest))
    if isinstance(update, PushsumUpdate):
        return replace(update, weight=to_float32(update.weight))
    return update


@given(sent=bodies, key=keys, sender=names, receiver=names)
def test_an_update_is_read_as_it_was_written(
    sent: list[Update], key: bytes, sender: str, receiver: str
) -> None:
    codec = wire.CODECS[type(sent[0])]
    datagram = tagger(key, sender, receiver).seal(codec.encode(sent, 0))
    assert len(datagram) == size(len(sent))
    tagger(key, sender, receiver).check_untrusted(datagram)
    assert codec.decode_untrusted(datagram[:-4]) == [rounded(update) for update in sent]


@given(updates)
def test_encoding_again_changes_nothing(update: Update) -> None:
    assert wire.encode(wire.carried(update)) == wire.encode(update)


@given(st.floats(-MAX_VALUE, MAX_VALUE))
def test_rounding_errs_by_half_a_unit_in_the_last_place(number: float) -> None:
    assert abs(to_float32(number) - number) <= max(abs(number) * 2**-24, 2**-150)
