"""The client's side of one connection: the bytes to send, and the events from the limiter.

It does no I/O, so that blocking sockets, asyncio and trio share it. The caller sends the bytes that
its methods return, and gives it the bytes that it receives.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from drld.client.protocol import check_codec
from drld.client.protocol.frame import MAX_ANSWER_BYTES, Frames, Kind, frame
from drld.client.protocol.greeting import WELCOME_BYTES, hello, read_welcome
from drld.client.protocol.limit_table import LimitTable, read_table
from drld.client.protocol.model import Answer, Question
from drld.errors import InputError, WireError

Event: TypeAlias = "tuple[int, Answer] | LimitTable"
"""An answer with the number of its question, or the limits."""
_NUMBERS = 1 << 32


class Conversation:
    """The state of one connection."""

    def __init__(self) -> None:
        self._frames = Frames(MAX_ANSWER_BYTES)
        self._welcome: bytes | None = b""
        """The received part of the limiter's greeting; None: it is complete."""
        self._next = 0

    @staticmethod
    def greeting(process: int) -> bytes:
        """Return the first bytes to send; questions may follow at once."""
        return hello(process)

    def limits(self) -> bytes:
        """Return the bytes that ask for the limits."""
        return frame(Kind.ASK_LIMITS, 0, b"")

    def ask(self, questions: Iterable[Question]) -> tuple[bytes, list[int | Answer]]:
        """Ask these questions in one frame.

        Returns:
            The bytes to send; and for each question its number, or its answer if it cannot be
            asked.
        """
        written, numbers = [], list[int | Answer]()
        for question in questions:
            number = self._next
            try:
                text = check_codec.text_of(question)
                written.append((check_codec.record_of(number, question, text), text))
            except InputError as error:
                numbers.append(Answer(False, 0, error=str(error)))
                continue
            self._next = (number + 1) % _NUMBERS
            numbers.append(number)
        return check_codec.check_frames(written) if written else b"", numbers

    def receive(self, data: bytes) -> list[Event]:
        """Return the events in these bytes.

        Raises:
            WireError: the bytes are not the limiter's; the connection is of no use any more.
        """
        if self._welcome is not None:
            missing = WELCOME_BYTES - len(self._welcome)
            self._welcome += data[:missing]
            data = data[missing:]
            if len(self._welcome) < WELCOME_BYTES:
                return []
            read_welcome(self._welcome)
            self._welcome = None
        events: list[Event] = []
        for kind, count, body in self._frames.feed(data):
            if kind is Kind.ANSWERS:
                events += check_codec.read_answers(count, body)
            elif kind is Kind.LIMITS:
                events.append(read_table(body))
            else:
                raise WireError("kind", f"a limiter sends no frame of the kind {kind}")
        return events
