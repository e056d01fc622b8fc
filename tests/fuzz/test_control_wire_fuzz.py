"""Whatever bytes arrive as a control message: a valid one or a `WireError`, and nothing else."""

from hypothesis import given, settings
from hypothesis import strategies as st

from drld.gossip.wire.control_codec import (
    CONTROL_TAG_SIZE,
    HEADER,
    MAX_CONTROL_SIZE,
    MAX_RUMOURS,
    Control,
    End,
    Hello,
    Kind,
    Rumour,
    State,
    decode_control_untrusted,
    encode_control,
)
from tests.examples import examples

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
def test_round_trip(message: Hello | Control, key_id: int, number: int) -> None:
    number = 0 if isinstance(message, Hello) else number
    datagram = encode_control(message, key_id, number) + bytes(CONTROL_TAG_SIZE)
    assert decode_control_untrusted(datagram) == (message, number)
    assert datagram[1] >> 6 == key_id


@settings(max_examples=examples(500))
@given(st.binary(max_size=MAX_CONTROL_SIZE + 1))
def test_random_bytes(datagram: bytes) -> None:
    check(datagram)


@settings(max_examples=examples(500))
@given(st.integers(1, 4), st.integers(0, MAX_RUMOURS), st.binary(max_size=MAX_CONTROL_SIZE))
def test_random_bytes_behind_a_good_head(kind: int, count: int, rest: bytes) -> None:
    check(bytes([0x10 | kind, 0, 0, count]) + bytes(HEADER.size - 4) + rest)


@settings(max_examples=examples(500))
@given(messages, st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 255)), max_size=4))
def test_mutated_messages(message: Hello | Control, changes: list[tuple[int, int]]) -> None:
    datagram = bytearray(encode_control(message, 0, 0) + bytes(CONTROL_TAG_SIZE))
    for index, byte in changes:
        datagram[index % len(datagram)] = byte
    check(bytes(datagram))
