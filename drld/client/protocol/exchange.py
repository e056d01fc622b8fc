"""One call of a client: questions that are asked at once, and their answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from drld.client.protocol.availability import Availability
from drld.client.protocol.conversation import Conversation, Event
from drld.client.protocol.limit_table import LimitTable
from drld.client.protocol.model import Answer, Question

CHUNK = 1024
"""The most questions that a client asks at once. The answers to twice as many fit the buffers of a
socket, so neither side waits until the other reads."""


def chunks(questions: Sequence[Question]) -> list[Sequence[Question]]:
    """Return the questions in parts of at most `CHUNK`."""
    return [questions[begin : begin + CHUNK] for begin in range(0, len(questions), CHUNK)]


class Exchange:
    """The questions of one call."""

    def __init__(
        self,
        conversation: Conversation,
        availability: Availability,
        questions: Sequence[Question],
        now_ns: int,
    ) -> None:
        """Ask the questions on this connection."""
        self._availability = availability
        self.data, self._numbers = conversation.ask(questions)
        """The bytes to send."""
        self._answers: dict[int, Answer] = {}
        self.missing = {number for number in self._numbers if isinstance(number, int)}
        """The numbers of the questions without an answer."""
        if availability.wants_limits(now_ns):
            self.data = conversation.limits() + self.data

    def receive(self, events: Iterable[Event]) -> None:
        """Take events of the connection; answers to other calls are ignored."""
        for event in events:
            if isinstance(event, LimitTable):
                self._availability.learn(event)
            elif event[0] in self.missing:
                self.missing.remove(event[0])
                self._answers[event[0]] = event[1]

    def answers(self) -> list[Answer]:
        """Return the answers in the order of the questions, once none is missing."""
        return [it if isinstance(it, Answer) else self._answers[it] for it in self._numbers]
