"""Round trips through the update codec and the tag."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from drld.gossip.wire.datagram_tag import MAX_KEY_SIZE
from drld.gossip.wire.update_codec import (
    MAX_UPDATES,
    MAX_VALUE,
    MAX_WEIGHT,
    decode_untrusted,
    encode,
    size,
    to_float32,
)
from drld.model import Quantity, Update

from ..tags import tagger

updates = st.builds(
    Update,
    limit_id=st.integers(1, 65535),
    sequence=st.integers(0, 2**32 - 1),
    quantity=st.sampled_from(Quantity),
    epoch=st.integers(0, 15),
    value=st.floats(-MAX_VALUE, MAX_VALUE),
    weight=st.floats(0, MAX_WEIGHT),
)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
keys = st.binary(max_size=MAX_KEY_SIZE)


@given(
    sent=st.lists(updates, min_size=1, max_size=MAX_UPDATES), key=keys, sender=names, receiver=names
)
def test_round_trip(sent: list[Update], key: bytes, sender: str, receiver: str) -> None:
    datagram = tagger(key, sender, receiver).seal(b"".join(map(encode, sent)))
    assert len(datagram) == size(len(sent))
    tagger(key, sender, receiver).check_untrusted(datagram)
    assert decode_untrusted(datagram) == [
        replace(update, value=to_float32(update.value), weight=to_float32(update.weight))
        for update in sent
    ]


@given(updates)
def test_encoding_again_changes_nothing(update: Update) -> None:
    body = encode(update)
    (decoded,) = decode_untrusted(body + bytes(4))
    assert encode(decoded) == body


@given(st.floats(-MAX_VALUE, MAX_VALUE))
def test_rounding_errs_by_half_a_unit_in_the_last_place(number: float) -> None:
    assert abs(to_float32(number) - number) <= max(abs(number) * 2**-24, 2**-150)
