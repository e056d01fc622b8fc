"""The batch protocol: whatever a stranger sends, only frames of answers come back, and it ends.

The same bytes go to a client as a limiter's, who takes them or ends the connection.
"""

from __future__ import annotations

import trio
from trio.testing import MockClock

from drld.client.protocol import greeting
from drld.client.protocol.check_codec import answer_frame, answer_record
from drld.client.protocol.conversation import Conversation
from drld.client.protocol.frame import Kind, frame
from drld.client.protocol.limit_table import LimitTable, table_frame
from drld.client.protocol.model import Answer, Question
from drld.requests.caller import Client
from tests.fuzz.targets import api, requests
from tests.fuzz.targets.base import Target, unless_refused

REASONS = {"length", "count", "reserved", "kind", "value", "version"}


def check(data: bytes) -> bool:
    """The bytes of a client, and of a limiter, both after the greeting.

    The first byte says in pieces of how many bytes a client sends the rest; 0 is all at once.
    """
    datapath, connections = requests.serving()
    answer, _ = trio.run(
        api.converse,
        greeting.hello(1) + data[1:],
        data[0] if data else 0,
        connections,
        Client(requests.CALLER),
        clock=MockClock(autojump_threshold=0),
    )
    events = Conversation().receive(answer)
    for event in events:
        if not isinstance(event, LimitTable):
            _, answered = event
            assert isinstance(answered, Answer)
            assert not (answered.admitted and answered.error)
    for limit_id in (1, 2):
        read = datapath.read(limit_id, 0)
        assert read.arrived_tokens >= read.forwarded_tokens + read.dropped_tokens
    conversation = Conversation()
    conversation.receive(greeting.welcome(greeting.VERSION))
    told = unless_refused(lambda: conversation.receive(data), REASONS)
    return bool(events) or bool(told)


def seeds() -> list[bytes]:
    asked = [
        Question("api"),
        Question("api", {"plan": "free"}, 3, "bob", 9),
        Question("api", {"a": "b", "c": "d"}, 0, at_least=0, charge=True),
    ]
    checks, _ = Conversation().ask(asked)
    named = answer_record(1, 3, b"api", granted=1, remaining=2.0), b"api"
    limits = frame(Kind.ASK_LIMITS, 0, b"")
    return [
        b"\0" + checks,
        b"\x07" + checks + limits + checks,
        answer_frame([named, named]),
        table_frame((), 1),
    ]


WORDS = (b"\xff", b"api", b"plan", b"free", b"\x00\x00\x00\x01", b"\x00\x01", b"\xff\xff\xff\xff")

TARGET = Target(check, seeds, words=WORDS, max_bytes=1500)
