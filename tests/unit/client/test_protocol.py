"""The batch protocol without I/O: what is written is read, and nothing else is."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drld.client.protocol import check_codec, greeting
from drld.client.protocol.check_codec import ADMITTED, ERROR, REMAINING
from drld.client.protocol.conversation import Conversation
from drld.client.protocol.frame import HEAD, MAX_BODY_BYTES, MAX_CHECKS, Frames, Kind, frame
from drld.client.protocol.limit_table import LimitInfo, LimitTable, key_text, table_frame
from drld.client.protocol.long_value import shortened
from drld.client.protocol.model import Answer, Question
from drld.errors import InputError, WireError

AMOUNTS = st.integers(0, 2**32 - 1)
QUESTIONS = st.builds(
    Question,
    st.text(max_size=9),
    st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
    AMOUNTS,
    st.text(max_size=9),
    st.none() | AMOUNTS,
    st.none() | AMOUNTS,
    st.booleans(),
)
INFO = LimitInfo(
    "api", "api", {"plan": "free"}, "share", True, "requests", 10**6, 100, 1, 10**8, 10**7, None,
    ("user",), 10**9, {key_text(["bigco"]): (5, 60)},
)  # fmt: skip


def overridden(overrides: str) -> bytes:
    """A table with these overrides."""
    limit = json.dumps({**asdict(INFO), "overrides": "it"}).replace('"it"', overrides)
    return f'{{"processes": 1, "limits": [{limit}]}}'.encode()


def greeted() -> Conversation:
    made = Conversation()
    assert made.receive(greeting.welcome(greeting.VERSION)) == []
    return made


@given(st.lists(QUESTIONS, min_size=1, max_size=5), st.integers(1, 50))
def test_questions_are_read_as_they_were_asked(questions: list[Question], piece: int) -> None:
    sent, numbers = Conversation().ask(questions)
    assert numbers == [*range(len(questions))]
    frames, found = Frames(MAX_BODY_BYTES), list[tuple[tuple[int, ...], bytes]]()
    for begin in range(0, len(sent), piece):
        for kind, count, body in frames.feed(sent[begin : begin + piece]):
            assert kind is Kind.CHECKS
            found += check_codec.read_checks(count, body)
    assert not frames.partial
    for question, (record, text) in zip(questions, found, strict=True):
        _, cost, at_least, size, flags, _ = record
        check_codec.check_flags(flags)
        namespace, caller, *pairs = check_codec.parts_of(text)
        assert question == Question(
            namespace,
            dict(zip(pairs[::2], pairs[1::2], strict=True)),
            cost,
            caller,
            size if flags & check_codec.SIZE else None,
            at_least if flags & check_codec.AT_LEAST else None,
            bool(flags & check_codec.CHARGE),
        )


@given(
    st.lists(
        st.tuples(
            st.booleans(),
            AMOUNTS,
            st.none() | st.integers(0, 2**32 - 2),
            st.none() | st.integers(0, 2**32 - 2),
            st.none() | st.floats(0, allow_nan=False, allow_infinity=False),
            st.text(max_size=9),
        ),
        min_size=1,
        max_size=5,
    ),
    st.integers(1, 50),
)
def test_answers_are_read_as_they_were_given(given: list[tuple], piece: int) -> None:  # type: ignore[type-arg]  # mixed
    written = []
    for number, (admitted, granted, retry_ms, reset_ms, left, name) in enumerate(given):
        record = check_codec.answer_record(
            number,
            (ADMITTED if admitted else 0) | (0 if left is None else REMAINING),
            name.encode(),
            granted=granted,
            retry_ns=None if retry_ms is None else retry_ms * 10**6,
            reset_ns=None if reset_ms is None else reset_ms * 10**6,
            remaining=left or 0.0,
        )
        written.append((record, name.encode()))
    sent, conversation, events = check_codec.answer_frame(written), greeted(), []
    for begin in range(0, len(sent), piece):
        events += conversation.receive(sent[begin : begin + piece])
    assert events == [
        (
            number,
            Answer(
                admitted,
                granted,
                name or None,
                left,
                None if reset_ms is None else reset_ms / 1000,
                None if retry_ms is None else retry_ms / 1000,
            ),
        )
        for number, (admitted, granted, retry_ms, reset_ms, left, name) in enumerate(given)
    ]


def test_times_are_rounded_up_and_bounded() -> None:
    def read(retry_ns: int) -> float | None:
        record = check_codec.answer_record(1, 0, b"", retry_ns=retry_ns)
        ((_, answer),) = check_codec.read_answers(1, record)
        return answer.retry_after_s

    assert read(1) == 0.001
    assert read(0) == 0
    assert read(10**30) == (2**32 - 2) / 1000


def test_an_error_is_the_answer_to_one_question() -> None:
    text = b"namespace: is required, as a text"
    record = check_codec.answer_record(7, ERROR, text)
    assert greeted().receive(check_codec.answer_frame([(record, text)])) == [
        (7, Answer(False, 0, error=text.decode()))
    ]


def test_the_client_itself_answers_questions_that_do_not_fit() -> None:
    questions = [
        Question("\ud800"),
        Question("api"),
        Question("api", cost=-1),
        Question("api", {"a": "x" * 2048}),
        Question("api", None),  # type: ignore[arg-type]  # as applications without types ask
    ]
    sent, numbers = Conversation().ask(questions)
    assert [it if isinstance(it, int) else it.error for it in numbers] == [
        "a question must be text in UTF-8",
        0,
        "an amount must be a whole number from 0 to 4294967295",
        "a question must have 2048 bytes of text at most",
        "namespace, caller and descriptor must be texts",
    ]
    assert len([*Frames(MAX_BODY_BYTES).feed(sent)]) == 1
    assert Conversation().ask(questions[:1])[0] == b""


@pytest.mark.parametrize(("size", "frames"), [(1, 2), (2000, 35)])
def test_many_questions_are_several_frames_within_the_bounds(size: int, frames: int) -> None:
    number = MAX_CHECKS + 1 if size == 1 else 4400
    sent, numbers = Conversation().ask([Question("a" * size)] * number)
    found = [*Frames(MAX_BODY_BYTES).feed(sent)]
    assert sum(count for _, count, _ in found) == len(numbers) == number
    assert len(found) == frames


def test_the_table_of_limits_is_read_as_it_was_written() -> None:
    table = LimitTable((INFO, replace(INFO, overrides=None)), 3)
    assert greeted().receive(table_frame(table.limits, 3)) == [table]
    assert INFO.covers("api", {"plan": "free", "user": "bob"})
    token = "x" * 65
    long = replace(INFO, where={"plan": shortened(token)})
    assert long.covers("api", {"plan": token, "user": "bob"})
    assert not long.covers("api", {"plan": f"{token}x", "user": "bob"})
    assert not INFO.covers("api", {"plan": "free"})
    assert not INFO.covers("api", {"user": "bob"})
    assert not INFO.covers("other", {"plan": "free", "user": "bob"})


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (HEAD.pack(MAX_BODY_BYTES + 1, 1, 0, 1), "length"),
        (HEAD.pack(0, 1, 0, MAX_CHECKS + 1), "count"),
        (HEAD.pack(0, 1, 1, 0), "reserved"),
        (frame(Kind.CHECKS, 0, b"").replace(b"\x01", b"\x09"), "kind"),
    ],
)
def test_a_stream_without_frames_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(WireError, match=f"^{reason}: "):
        [*Frames(MAX_BODY_BYTES).feed(data)]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        struct.pack(">IIIIHH", 1, 1, 0, 0, 0, 3) + b"ab",
        struct.pack(">IIIIHH", 1, 1, 0, 0, 0, 3) + b"abcd",
    ],
)
def test_records_and_texts_that_do_not_fit_are_refused(body: bytes) -> None:
    with pytest.raises(WireError, match=r"^length: "):
        check_codec.read_checks(1, body)


@pytest.mark.parametrize("text", [b"", b"api", b"api\xff\xffname", b"\x80\xff", b"a\xffb\xff\xc0"])
def test_a_text_without_namespace_and_pairs_is_refused(text: bytes) -> None:
    with pytest.raises(InputError, match=r"^a question must"):
        check_codec.parts_of(text)


def test_flags_of_the_future_are_refused() -> None:
    with pytest.raises(InputError, match="flags that this limiter does not know"):
        check_codec.check_flags(8)
    with pytest.raises(WireError, match=r"^value: "):
        [*check_codec.read_answers(1, check_codec.answer_record(1, 8, b""))]


@pytest.mark.parametrize("remaining", [math.inf, math.nan, -0.5])
def test_a_remainder_that_is_no_amount_is_refused(remaining: float) -> None:
    """Middleware could not write it into a field."""
    record = check_codec.answer_record(1, REMAINING, b"", remaining=remaining)
    with pytest.raises(WireError, match=r"^value: "):
        [*check_codec.read_answers(1, record)]


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"{}", b'{"limits":[],"processes":"1"}', b'{"limits":[1],"processes":1}',
        b'{"limits":[{"name":1}],"processes":1}', overridden("[]"), overridden('{"[]": [1, "1"]}'),
        overridden('{"[]": 1}'), overridden('{"[]": [1, 2, 3]}'), overridden('{"[]": [-1, 1]}'),
        b'{"limits":{},"processes":-1}',
    ],
)  # fmt: skip
def test_an_invalid_table_of_limits_is_refused(body: bytes) -> None:
    with pytest.raises(WireError, match=r"^value: "):
        greeted().receive(frame(Kind.LIMITS, 0, body))


@pytest.mark.parametrize("key", ["item", "quota", "window_s", "rate", "share_rate", "burst"])
@pytest.mark.parametrize("number", ["Infinity", "NaN", "1e400", "-1", str(2**63), "1" * 400])
def test_a_table_with_an_endless_number_is_refused(key: str, number: str) -> None:
    limit = json.dumps({**asdict(INFO), key: "it"}).replace('"it"', number)
    body = f'{{"processes": 1, "limits": [{limit}]}}'.encode()
    with pytest.raises(WireError, match=r"^value: "):
        greeted().receive(frame(Kind.LIMITS, 0, body))


def test_the_greeting_finds_a_common_version() -> None:
    hello = greeting.hello(2**64 - 1)
    assert greeting.read_hello(hello) == (greeting.VERSION, 2**64 - 1)
    later = greeting.MAGIC + bytes([2, 3]) + bytes(8)
    assert greeting.read_hello(later) == (0, 0)
    for wrong in (hello[:-1], b"\x01" + hello[1:], greeting.MAGIC + bytes([3, 2]) + bytes(8)):
        with pytest.raises(WireError):
            greeting.read_hello(wrong)
    with pytest.raises(WireError, match="no version in common"):
        Conversation().receive(greeting.welcome(0))
    with pytest.raises(WireError, match="no limiter answers here"):
        Conversation().receive(b"HTTP/1.1 400 Bad Request\r\n")
    with pytest.raises(WireError, match="sends no frame of the kind"):
        greeted().receive(frame(Kind.CHECKS, 0, b""))
