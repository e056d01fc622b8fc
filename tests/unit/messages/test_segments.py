"""Examples of the table of segments, and of the SYN that says where it begins."""

from __future__ import annotations

import struct

import pytest

from drld.messages import segments as table
from drld.messages.saved_syn import initial_sequence
from drld.messages.segments import WINDOW, Segments, Tally
from drld.police.arrival_time import LATEST_NS

READ_NS = LATEST_NS


def begun(first: int = 0) -> Segments:
    return Segments(first, Tally())


def test_fifty_messages_in_one_segment_arrive_with_it() -> None:
    segments = begun()
    segments.add(0, 500, 7)
    assert [segments.arrival(10 * n, READ_NS) for n in range(1, 51)] == [7] * 50
    assert len(segments) == 0


def test_one_message_in_fifty_segments_arrives_with_the_last() -> None:
    segments = begun()
    for number in range(50):
        segments.add(10 * number, 10, number)
    assert segments.arrival(491, READ_NS) == 49


def test_a_hole_moves_the_times_of_what_is_behind_it() -> None:
    segments = begun()
    segments.add(0, 10, 1)
    segments.add(20, 10, 2)
    segments.add(10, 10, 9)
    assert [segments.arrival(end, READ_NS) for end in (10, 20, 30)] == [1, 9, 9]


def test_repeated_segments_move_no_time() -> None:
    segments = begun()
    segments.add(0, 10, 1)
    segments.add(0, 30, 5)
    segments.add(5, 40, 8)
    assert [segments.arrival(end, READ_NS) for end in (10, 30, 45)] == [1, 5, 8]


def test_sequence_numbers_wrap() -> None:
    segments = begun(2**32 - 5)
    segments.add(2**32 - 5, 10, 1)
    segments.add(5, 10, 2)
    assert [segments.arrival(end, READ_NS) for end in (5, 6, 11)] == [1, 1, 2]
    offset = 11
    for number in range(20):  # five times around
        segments.add((offset - 5) % 2**32, WINDOW, 3 + number)
        offset += WINDOW
        assert segments.arrival(offset, READ_NS) == 3 + number


def test_a_message_is_charged_at_most_a_quarter_of_a_second_before_it_is_read() -> None:
    segments = begun()
    segments.add(0, 30, 5)
    assert segments.arrival(10, LATEST_NS + 4) == 5
    assert segments.arrival(20, LATEST_NS + 6) == 6


def test_a_message_that_came_during_the_turn_counts_when_the_next_one_asks_again() -> None:
    tally = Tally()
    segments = Segments(0, tally)
    segments.add(0, 10, 5)
    assert segments.arrival(10, 4) == 5
    assert (tally.stamped, tally.unstamped) == (0, 0)
    assert segments.arrival(10, 6) == 5
    assert (tally.stamped, tally.unstamped) == (1, 0)


def test_bytes_without_a_record_count_when_they_are_read() -> None:
    tally = Tally()
    segments = Segments(0, tally)
    segments.add(10, 10, 5)
    segments.add(30, 10, 90)
    assert [segments.arrival(end, 80) for end in (10, 20)] == [80, 80]
    assert segments.arrival(30, 85) == 85
    assert segments.arrival(40, 95) == 90
    assert (tally.stamped, tally.unstamped) == (2, 2)


def test_a_connection_whose_beginning_is_not_known_has_no_times() -> None:
    tally = Tally()
    segments = Segments(None, tally)
    segments.add(0, 10, 5)
    assert segments.arrival(10, 80) == 80
    assert (tally.stamped, tally.unstamped) == (0, 1)


def test_messages_of_one_record_count_alike() -> None:
    tally = Tally()
    segments = Segments(None, tally)
    assert [segments.arrival(10, 80) for _ in range(3)] == [80] * 3
    assert (tally.stamped, tally.unstamped) == (0, 3)


def test_segments_of_the_turn_are_asked_for_once() -> None:
    asked = []

    def refresh() -> None:
        asked.append(len(segments))
        segments.add(0, 10, 5)

    segments = Segments(0, Tally(), refresh)
    assert segments.arrival(10, 80) == 5
    assert segments.arrival(10, 80) == 5
    assert asked == [0]
    assert segments.arrival(20, 80) == 80
    assert asked == [0, 0]


@pytest.mark.parametrize("ahead", [WINDOW + 1, 2**31 - 1, -10, -(2**31)])
def test_segments_out_of_any_window_are_not_kept(ahead: int) -> None:
    segments = begun(77)
    segments.add((77 + ahead) % 2**32, 10, 1)
    assert len(segments) == 0


def test_a_full_table_adds_segments_to_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MOST", 3)
    segments = begun()
    for number in range(5):
        segments.add(10 * number, 10, number)
    segments.add(60, 10, 6)
    assert len(segments) == 3
    assert [segments.arrival(end, READ_NS) for end in (10, 20, 30, 50)] == [0, 1, 4, 4]
    assert segments.arrival(70, READ_NS) == READ_NS


def test_the_connections_of_a_source_share_room_and_a_part_stays_free() -> None:
    room, crowd = 1000, 20
    tally = Tally(room)
    floods = [Segments(0, tally) for _ in range(crowd)]
    for number in range(1000):
        for flood in floods:
            flood.add(number, 1, number)
    assert sum(map(len, floods)) < room
    other = Segments(0, tally)
    for number in range(3):
        other.add(10 * number, 10, number)
    assert [other.arrival(end, READ_NS) for end in (10, 20, 30)] == [0, 1, 2]
    # What is beyond the room has the time of the last, and none is lost.
    assert floods[0].arrival(1000, READ_NS) == 999
    for flood in floods[1:]:
        flood.forget()
        flood.add(1000, 1, 5)
    assert tally.free == room
    assert [len(flood) for flood in floods] == [0] * crowd


def test_each_connection_keeps_a_segment_when_there_is_no_room() -> None:
    tally = Tally(2)
    crowd = [Segments(0, tally) for _ in range(10)]
    for number in range(5):
        for segments in crowd:
            segments.add(number, 1, number)
    assert sum(map(len, crowd)) <= 2 + len(crowd)
    assert [segments.arrival(5, READ_NS) for segments in crowd] == [4] * len(crowd)
    assert tally.free == 2


def test_a_source_that_knows_only_reads_appends_them() -> None:
    tally = Tally()
    segments = Segments(None, tally)
    segments.append(10, 3)
    segments.append(10, None)
    segments.append(10, 90)
    assert [segments.arrival(end, 80 + end) for end in (10, 20, 30)] == [3, 100, 100]
    assert (tally.stamped, tally.unstamped) == (2, 1)


TCP = struct.pack("!HHIIBBHHH", 5000, 1883, 0xFFFFFFF0, 0, 5 << 4, 2, 1000, 0, 0)
IPV4 = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 40, 0, 0, 64, 6, 0, bytes(4), bytes(4))
IPV6 = struct.pack("!IHBB16s16s", 6 << 28, 20, 6, 64, bytes(16), bytes(16))


@pytest.mark.parametrize(
    "headers",
    [
        IPV4 + TCP,
        b"\x46" + IPV4[1:] + bytes(4) + TCP,
        IPV6 + TCP,
        IPV6[:6] + b"\0" + IPV6[7:] + bytes([60, 0, *bytes(6), 6, 1, *bytes(14)]) + TCP,
    ],
)
def test_a_syn_shows_the_initial_sequence_number(headers: bytes) -> None:
    assert initial_sequence(headers) == 0xFFFFFFF0
    assert initial_sequence(headers[:-1]) is None


@pytest.mark.parametrize(
    "headers",
    [
        b"",
        b"\x44" + IPV4[1:] + TCP,
        b"\x55" + IPV4[1:] + TCP,
        IPV4[:9] + b"\x11" + IPV4[10:] + TCP,
        IPV6[:6] + b"\x11" + IPV6[7:] + TCP,
        IPV6[:6] + b"\0" + IPV6[7:] + b"\0",
    ],
)
def test_other_headers_have_none(headers: bytes) -> None:
    assert initial_sequence(headers) is None
