"""Questions and answers in frames of the batch protocol: fixed records first, then all texts.

    question: number 4 | cost 4 | at least 4 | size 4 | flags 2 | text 2
    answer:   number 4 | granted 4 | retry 4, ms | reset 4, ms | remaining 8 | flags 2 | text 2

`text` is a length. The texts come after the last record, in the order of the records. That of a
question has its namespace, its caller, and the names and values of its pairs, with a byte 0xff
between two: UTF-8 has no such byte. That of an answer names the limit, or the mistake. A time that
is not known is 0xffffffff; a longer one than can be written is one less.

Records of one size are read by one call, and texts are cut and compared without being read: in
Python that is several times as fast as records of many sizes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any

from drld.client.protocol.frame import MAX_BODY_BYTES, MAX_CHECKS, Kind, frame
from drld.client.protocol.model import Answer, Question
from drld.errors import InputError, WireError

QUESTION = struct.Struct(">IIIIHH")
ANSWER = struct.Struct(">IIIIdHH")
SEPARATOR = b"\xff"
MAX_TEXT_BYTES = 2048
"""The most bytes of a question's text: more than a limiter takes, so that its answer names the
mistake."""
_MAX_AMOUNT = 2**32 - 1
_UNKNOWN = 2**32 - 1
_MAX_MS = _UNKNOWN - 1

# Flags of a question.
AT_LEAST, SIZE, CHARGE = 1, 2, 4
_OF_QUESTION = AT_LEAST | SIZE | CHARGE
# Flags of an answer.
ADMITTED, REMAINING, ERROR = 1, 2, 4
_OF_ANSWER = ADMITTED | REMAINING | ERROR


def text_of(question: Question) -> bytes:
    """Return the text of a question: all of it but its amounts.

    Raises:
        InputError: the question cannot be written.
    """
    parts = [question.namespace, question.caller]
    try:
        for pair in question.descriptor.items():
            parts += pair
        text = SEPARATOR.join([part.encode() for part in parts])
    except UnicodeEncodeError:
        raise InputError("a question must be text in UTF-8") from None
    except AttributeError:
        raise InputError("namespace, caller and descriptor must be texts") from None
    if len(text) > MAX_TEXT_BYTES:
        raise InputError(f"a question must have {MAX_TEXT_BYTES} bytes of text at most")
    return text


def parts_of(text: bytes) -> list[str]:
    """Return the namespace, the caller, and names and values by turns.

    Raises:
        InputError: the bytes are no such text.
    """
    try:
        parts = [part.decode() for part in text.split(SEPARATOR)]
    except UnicodeDecodeError:
        raise InputError("a question must be text in UTF-8") from None
    if len(parts) % 2:
        raise InputError("a question must have a namespace, a caller, and pairs")
    return parts


def record_of(number: int, question: Question, text: bytes) -> bytes:
    """Return a question's record; the answer has the same number.

    Raises:
        InputError: an amount cannot be written.
    """
    flags = CHARGE if question.charge else 0
    at_least, size = question.at_least, question.size
    if at_least is None:
        at_least = 0
    else:
        flags |= AT_LEAST
    if size is None:
        size = 0
    else:
        flags |= SIZE
    try:
        return QUESTION.pack(number, question.cost, at_least, size, flags, len(text))
    except struct.error:
        raise InputError(f"an amount must be a whole number from 0 to {_MAX_AMOUNT}") from None


def check_frames(written: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return the frames with these questions, as many as the bounds require.

    Args:
        written: the record and the text of each question.
    """
    frames, first, length = [], 0, 0
    for number, (_, text) in enumerate(written):
        longer = length + QUESTION.size + len(text)
        if number - first == MAX_CHECKS or longer > MAX_BODY_BYTES:
            frames.append(_frame(Kind.CHECKS, written[first:number]))
            first, longer = number, QUESTION.size + len(text)
        length = longer
    frames.append(_frame(Kind.CHECKS, written[first:]))
    return b"".join(frames)


def read_checks(count: int, body: bytes) -> Iterator[tuple[tuple[int, ...], bytes]]:
    """Return the questions of a frame: number, cost, at least, size, flags and length; and the
    text.

    Raises:
        WireError: the lengths do not fit each other.
    """
    return _records(QUESTION, count, body)


def answer_record(
    number: int,
    flags: int,
    text: bytes,
    *,
    granted: int = 0,
    retry_ns: int | None = None,
    reset_ns: int | None = None,
    remaining: float = 0.0,
) -> bytes:
    """Return an answer's record; times in ns."""
    retry_ms = reset_ms = _UNKNOWN
    if retry_ns is not None:
        retry_ms = min(-(-retry_ns // 1_000_000), _MAX_MS)
    if reset_ns is not None:
        reset_ms = -(-reset_ns // 1_000_000)
        reset_ms = reset_ms if reset_ms < _MAX_MS else _MAX_MS
    return ANSWER.pack(number, granted, retry_ms, reset_ms, remaining, flags, len(text))


def answer_frame(written: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return a frame of answers.

    Args:
        written: the record and the text of each answer.
    """
    return _frame(Kind.ANSWERS, written)


def read_answers(count: int, body: bytes) -> Iterator[tuple[int, Answer]]:
    """Return the answers of a frame, by the numbers of their questions.

    Raises:
        WireError: the bytes are no such frame.
    """
    for record, text in _records(ANSWER, count, body):
        number, granted, retry_ms, reset_ms, remaining, flags, _ = record
        if flags & ~_OF_ANSWER or not 0 <= remaining < math.inf:
            raise WireError(
                "value", "an answer has unknown flags, or a remainder that is no amount"
            )
        named = _named(text)
        error = flags & ERROR
        yield (
            number,
            Answer(
                flags & ADMITTED != 0,
                granted,
                None if error else named,
                remaining if flags & REMAINING else None,
                None if reset_ms == _UNKNOWN else reset_ms / 1000,
                None if retry_ms == _UNKNOWN else retry_ms / 1000,
                named or "the question has a mistake" if error else None,
            ),
        )


def check_flags(flags: int) -> None:
    """Refuse flags that this version does not know.

    Raises:
        InputError: a question has other flags.
    """
    if flags & ~_OF_QUESTION:
        raise InputError("the question has flags that this limiter does not know")


def _frame(kind: Kind, written: Sequence[tuple[bytes, bytes]]) -> bytes:
    body = b"".join([record for record, _ in written] + [text for _, text in written])
    return frame(kind, len(written), body)


def _records(
    record: struct.Struct, count: int, body: bytes
) -> Iterator[tuple[tuple[Any, ...], bytes]]:
    """Return the records of a body, each with its text; the last field is the text's length."""
    at = count * record.size
    if not count or at > len(body):
        raise WireError("length", f"{len(body)} bytes are no {count} records")
    records = list(record.iter_unpack(body[:at]))
    ends = list(accumulate([values[-1] for values in records], initial=at))
    if ends[-1] != len(body):
        raise WireError("length", "the texts have other lengths than the records say")
    return zip(records, [body[begin:end] for begin, end in pairwise(ends)], strict=True)


@lru_cache(256)
def _named(text: bytes) -> str | None:
    """Return the name of a limit, or an error; there are few, and each comes often."""
    return text.decode(errors="replace") or None
