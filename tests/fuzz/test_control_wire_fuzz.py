"""Whatever bytes arrive as a control message: a valid one or a `WireError`, and nothing else."""

from hypothesis import given, settings
from hypothesis import strategies as st

from drld.gossip.wire.control_codec import (
    MAX_CONTROL_SIZE,
    MAX_RUMOURS,
    Control,
    End,
    Hello,
    Kind,
    Rumour,
    State,
)
from drld.gossip.wire.message import HEADER, LONG_TAG_SIZE, VERSION
from tests.examples import examples
from tests.wire import decode_control_untrusted, encode_control

from .targets.control_wire import check

U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
lives = st.integers(1, 2**64 - 1)
messages = st.one_of(
    st.builds(
        Hello,
        mine=st.builds(End, lives, st.integers(1, 2**32 - 1)),
        yours=st.builds(End, U64, U32),
        nonce=lives,
        echo=U64,
    ),
    st.builds(
        Control,
        kind=st.sampled_from([Kind.PROBE, Kind.ACK, Kind.PROBE_REQUEST]),
        sequence=U32,
        target=U64,
        digest=U64,
        rumours=st.lists(
            st.builds(Rumour, U64, U64, U32, st.sampled_from(State)), max_size=MAX_RUMOURS
        ).map(tuple),
    ),
)


@given(messages, st.integers(0, 3), U32)
def test_a_message_is_read_as_it_was_written(
    message: Hello | Control, key_id: int, number: int
) -> None:
    number = 0 if isinstance(message, Hello) else number
    content = encode_control(message, key_id, number)
    assert decode_control_untrusted(content) == (message, number)
    assert content[1] >> 6 == key_id


@settings(max_examples=examples(500))
@given(st.binary(max_size=MAX_CONTROL_SIZE + 1))
def test_random_bytes_are_read_or_refused(datagram: bytes) -> None:
    check(datagram)


@settings(max_examples=examples(500))
@given(
    st.integers(1, 4),
    st.one_of(
        st.binary(max_size=MAX_CONTROL_SIZE),
        # As long as messages are.
        st.sampled_from([40, *range(20, 20 + 21 * (MAX_RUMOURS + 2), 21)]).flatmap(
            lambda size: st.binary(min_size=size, max_size=size)
        ),
    ),
)
def test_random_bytes_behind_a_good_head_are_read_or_refused(kind: int, rest: bytes) -> None:
    head = bytes([VERSION << 4 | kind]) + bytes(HEADER.size - 1)
    check(head + rest + bytes(LONG_TAG_SIZE))


@settings(max_examples=examples(500))
@given(messages, st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 255)), max_size=4))
def test_mutated_messages_are_read_or_refused(
    message: Hello | Control, changes: list[tuple[int, int]]
) -> None:
    datagram = bytearray(encode_control(message) + bytes(LONG_TAG_SIZE))
    for index, byte in changes:
        datagram[index % len(datagram)] = byte
    check(bytes(datagram))
