"""HPACK's tables under blocks that repeat themselves: what is remembered means what hpack says."""

from __future__ import annotations

from hpack import Decoder, Encoder
from hypothesis import given
from hypothesis import strategies as st

from drld.requests.grpc.http2 import Headers, Http2

COMMON: tuple[Headers, ...] = (
    ((b":status", b"200"), (b"content-type", b"application/grpc")),
    ((b"grpc-status", b"0"),),
)
OTHER: tuple[Headers, ...] = (
    ((b"grpc-status", b"3"),),
    ((b"grpc-message", b"x" * 30), (b"grpc-status", b"0")),
    ((b"user-agent", b"y" * 90),),
)
SIZES = (0, 40, 100, 4096)
steps = st.lists(st.sampled_from((*COMMON, *COMMON, *OTHER, *SIZES)), max_size=40)


def http2() -> Http2:
    return Http2(100, 8192, COMMON)


@given(steps)
def test_what_is_sent_is_read_as_it_was_meant(steps: list[Headers | int]) -> None:
    encoder, reader = http2().encoder, Decoder()
    for step in steps:
        if isinstance(step, int):
            if step != encoder.header_table_size:
                encoder.header_table_size = step
        else:
            assert tuple(reader.decode(encoder.encode(list(step)), raw=True)) == step


@given(steps)
def test_what_is_read_is_what_hpack_reads(steps: list[Headers | int]) -> None:
    writer, ours, theirs = Encoder(), http2().decoder, Decoder()
    for step in steps:
        if isinstance(step, int):
            if step != writer.header_table_size:
                writer.header_table_size = step
        else:
            block = writer.encode(step)
            assert list(ours.decode(block, raw=True)) == theirs.decode(block, raw=True)
            assert ours.header_table.dynamic_entries == theirs.header_table.dynamic_entries


def test_a_block_that_repeats_itself_is_read_once() -> None:
    writer, reader = Encoder(), http2().decoder
    blocks = [writer.encode(COMMON[0]) for _ in range(4)]
    assert blocks[1] == blocks[2]
    for block in blocks[:2]:
        reader.decode(block, raw=True)
    reader.header_table.dynamic_entries.clear()
    # hpack would find the entry of the table gone.
    assert tuple(reader.decode(blocks[2], raw=True)) == COMMON[0]
