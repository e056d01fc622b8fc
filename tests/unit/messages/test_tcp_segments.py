"""Arrival times of messages, from the segments that a capture has."""

from __future__ import annotations

import struct

from drld.police.arrival_time import LATEST_NS
from testbed.messages.comparison import Comparison, Message, charged
from testbed.messages.tcp_segments import (
    SEQUENCES,
    Segment,
    arrivals,
    captured,
    of_equal_messages,
)

PORT, CLIENT = 4222, 55_000


def packet(payload: int, *, port: int = PORT, protocol: int = 6, sequence: int = 7) -> bytes:
    """IPv4 and TCP with 12 bytes of options, without checksums and without the payload's bytes."""
    ip = struct.pack("!BBHHHBBH8x", 0x45, 0, 52 + payload, 0, 0, 64, protocol, 0)
    return ip + struct.pack("!HHIIBB6x12x", CLIENT, port, sequence, 0, 8 << 4, 0)


def test_only_segments_with_payload_to_the_port_are_taken() -> None:
    packets = [
        (1, 52 + 10, packet(10)),
        (2, 52, packet(0)),
        (3, 52 + 10, packet(10, port=80)),
        (4, 52 + 10, packet(10, protocol=17)),
    ]
    assert [*captured(packets, PORT)] == [(CLIENT, Segment(1, 7, 10))]


def test_a_segment_that_is_sent_again_changes_nothing() -> None:
    sent = [Segment(10, 100, 5), Segment(20, 105, 5), Segment(30, 105, 5), Segment(40, 110, 5)]
    assert of_equal_messages(sent, 5) == [10, 20, 40]


def test_messages_that_are_merged_or_cut_arrive_with_their_last_byte() -> None:
    merged = [Segment(10, 0, 5), Segment(20, 5, 10), Segment(30, 15, 2), Segment(40, 17, 3)]
    assert of_equal_messages(merged, 5) == [10, 20, 20, 40]


def test_a_message_behind_a_hole_arrives_when_the_hole_is_filled() -> None:
    # The first segment that the capture has need not be the first of the stream.
    assert of_equal_messages([Segment(10, 5, 5), Segment(30, 0, 5)], 5) == [30, 30]


def test_sequence_numbers_wrap() -> None:
    sent = [Segment(10, SEQUENCES - 5, 5), Segment(20, 0, 5)]
    assert of_equal_messages(sent, 5) == [10, 20]
    assert of_equal_messages(sent[::-1], 5) == [10, 20]


def test_bytes_without_a_segment_do_not_count() -> None:
    assert arrivals([Segment(10, 0, 4), Segment(30, 8, 4)], 0, [4, 8, 12]) == [10, 10, 30]


def test_a_message_that_arrives_after_its_read_began_has_its_own_arrival() -> None:
    """A later turn charges it; one that waited too long is charged at the earliest time."""
    first, read_ns = 7, 10**9
    segments = [Segment(read_ns + 5, first, 10), Segment(read_ns + 9, first + 10, 10)]
    messages = [Message(10, read_ns, read_ns + 5), Message(20, read_ns, read_ns + 200)]
    found = Comparison(first, segments, segments, messages, 0, 0)
    assert found.differences() == [0, 191]
    assert (found.beyond(190), found.beyond(191)) == (1, 0)
    early = [it._replace(time_ns=it.time_ns - read_ns) for it in segments]
    assert charged(early, first, messages) == [read_ns - LATEST_NS] * 2
