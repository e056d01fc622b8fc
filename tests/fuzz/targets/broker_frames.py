"""Properties of frames in any broker's protocol, whatever a client or a broker sends."""

from __future__ import annotations

from collections.abc import Callable

from drld.errors import FrameError
from drld.messages.frame import MAX_FRAME, Frame, Reader
from drld.messages.protocols import PROTOCOLS

Cut = Callable[[bytes], list[bytes]]
"""Cuts a stream into whole frames, in another way than drld does."""


def read(reader: Reader, data: bytes, piece: int = 0) -> tuple[list[Frame], FrameError | None]:
    """The frames of a stream that comes in pieces (0: at once), and its error."""
    frames: list[Frame] = []
    try:
        for start in range(0, len(data), piece or max(len(data), 1)):
            frames += reader.feed(data[start : start + (piece or len(data))])
    except FrameError as error:
        return frames, error
    end = frames[-1].end if frames else 0
    assert reader.held == len(data) - end
    return frames, None


def check_client(protocol: str, data: bytes) -> bool:
    """The stream of a client; return whether it is valid and has a message.

    The first byte says in pieces of how many bytes it comes, and each bit of the second which of
    eight messages is dropped.
    """
    piece, pattern, stream = data[0], data[1], data[2:]
    make = PROTOCOLS[protocol].reader
    frames, error = read(make(MAX_FRAME), stream)
    in_pieces, other = read(make(MAX_FRAME), stream, piece)
    assert in_pieces == frames
    assert (other is None) == (error is None)
    end = 0
    for frame in frames:
        assert frame.data == stream[end : frame.end]
        assert not frame.answer
        end = frame.end
    _check_drops(protocol, frames, pattern, piece, stream)
    return error is None and any(frame.topic is not None for frame in frames)


def _check_drops(
    protocol: str, frames: list[Frame], pattern: int, piece: int, stream: bytes
) -> None:
    """The broker reads of what is forwarded what the client meant."""
    reader, kept, sent = PROTOCOLS[protocol].reader(MAX_FRAME), [], bytearray()
    number = 0
    try:
        for start in range(0, len(stream), piece or max(len(stream), 1)):
            for frame in reader.feed(stream[start : start + (piece or len(stream))]):
                if frame.topic is not None:
                    number += 1
                    if pattern >> number % 8 & 1:
                        reader.drop(frame)
                        continue
                if frame.data:
                    kept.append(frame.topic_text)
                    sent += reader.forward(frame)
                else:
                    assert frame.answer
    except FrameError:
        pass
    told, error = read(PROTOCOLS[protocol].reader(2 * MAX_FRAME), bytes(sent))
    assert error is None
    assert [frame.topic_text for frame in told] == kept
    if not pattern:
        assert [frame.data for frame in told] == [frame.data for frame in frames]


def check_broker(
    protocol: str,
    data: bytes,
    mark: Callable[[int], bytes],
    cut: Cut,
    answer: bytes,
) -> bool:
    """The stream of a broker, with frames of drld's own in it after each piece, and without the
    answers to drld's pings (`answer` is how one begins); return whether the broker has greeted."""
    piece, stream = data[0] or max(len(data), 1), data[1:]
    returns = PROTOCOLS[protocol].returns()
    plain = PROTOCOLS[protocol].returns()
    out, same, marks = bytearray(), bytearray(), []
    try:
        for number, start in enumerate(range(0, len(stream), piece)):
            marks.append(mark(number))
            before = returns.held
            now = returns.insert(marks[-1])
            assert now in (b"", marks[-1])
            assert returns.held == (before if now else before + len(marks[-1]))
            out += now
            part = stream[start : start + piece]
            same += plain.feed(part)
            out += returns.feed(part)
    except FrameError:
        return False
    assert returns.greeted == plain.greeted
    _check_pings(protocol, stream, piece, cut(bytes(same)), answer)
    if returns.greeted:
        out += returns.insert(mark(len(marks)))
    inserted = {*marks, mark(len(marks))}
    if not inserted & {*cut(bytes(same))}:
        pieces = cut(bytes(out))
        found = [frame for frame in pieces if frame in inserted]
        assert found == sorted(found)
        assert b"".join(frame for frame in pieces if frame not in inserted) == bytes(same)
    return returns.greeted


def _check_pings(
    protocol: str, stream: bytes, piece: int, passed: list[bytes], answer: bytes
) -> None:
    """The client gets all but the answers to drld's pings, and both verdicts are the same."""
    returns, whole = PROTOCOLS[protocol].returns(), PROTOCOLS[protocol].returns()
    returns.pings, out = 2, bytearray()
    try:
        for start in range(0, len(stream), piece):
            out += returns.feed(stream[start : start + piece])
    except FrameError:
        return
    whole.feed(stream)
    assert (returns.accepted, returns.keep_alive_s) == (whole.accepted, whole.keep_alive_s)
    *frames, rest = passed
    answers = [place for place, frame in enumerate(frames) if frame.startswith(answer)][:2]
    if rest == answer and len(answers) < 2:
        rest = b""  # It may be a part of another answer.
    assert returns.pings == 2 - len(answers)
    expected = [frame for place, frame in enumerate(frames) if place not in answers]
    assert bytes(out) == b"".join((*expected, rest))
