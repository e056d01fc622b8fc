"""The front of requests: whatever a stranger sends, it is bounded, and is answered in HTTP.

The bytes of a client go to the front; alone, they are a query and JSON. What is taken for a request
is within its bounds, and asks the same if it is written down and read again.
"""

from __future__ import annotations

import functools
import json
import re
from random import Random

import trio
from trio.testing import MockClock

from drld.control.turns import Turns
from drld.errors import InputError
from drld.model import Enforcement
from drld.requests import descriptor, question
from drld.requests.caller import MAX_CALLER_BYTES, Client
from drld.requests.datapath import RequestDatapath
from drld.requests.front.app import make_app
from drld.requests.front.batch import BatchFront
from drld.requests.front.grpc_connection import grpc_handlers
from drld.requests.front.server import RequestConnections
from drld.requests.model import Request
from drld.requests.spec import RequestMatch
from tests.factories import limit_spec
from tests.fleets.requests import request_limit
from tests.fuzz.targets import api
from tests.fuzz.targets.base import Target

CALLER = "192.0.2.1"
STATUSES = {200, 400, 403, 404, 405, 413, 422, 429, 431, 501, 505}
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")


def check(data: bytes) -> bool:
    """The bytes of a client; alone, and what is behind the question mark or the head."""
    parts = data, data.partition(b"?")[2].partition(b" ")[0], data.partition(b"\r\n\r\n")[2]
    accepted = [read(part) for part in parts for read in (check_query, check_json)]
    datapath, connections = serving()
    answer, _ = trio.run(
        api.converse, data, 0, connections, Client(CALLER), clock=MockClock(autojump_threshold=0)
    )
    statuses = {int(status) for status in _STATUS.findall(answer)}
    assert statuses <= STATUSES, answer
    assert b"internal error" not in answer
    for limit_id in (1, 2):
        read = datapath.read(limit_id, 0)
        assert read.arrived_tokens >= read.forwarded_tokens + read.dropped_tokens
    return any(accepted)


def check_query(data: bytes) -> bool:
    """A query is refused, or asks within the bounds."""
    try:
        asked, refusal = question.of_query(data, CALLER)
    except InputError:
        return False
    assert refusal in question.REFUSALS
    check_request(asked)
    return True


def check_json(data: bytes) -> bool:
    """JSON is refused, or asks within the bounds."""
    try:
        asked, _ = question.of_json(data, CALLER)
    except InputError:
        return False
    assert 1 <= len(asked) <= question.MAX_CHECKS
    for each in asked:
        check_request(each)
    return True


def check_request(asked: Request) -> None:
    """All of it has bounds, and its own JSON asks it again."""
    pairs = asked.descriptor
    assert len(pairs) <= descriptor.MAX_PAIRS
    size = sum(len(name.encode()) + len(value.encode()) for name, value in pairs.items())
    assert size <= descriptor.MAX_BYTES
    assert 0 <= asked.cost <= question.MAX_AMOUNT
    assert asked.at_least is None or 1 <= asked.at_least <= asked.cost
    assert 1 <= len(asked.caller.encode()) <= MAX_CALLER_BYTES
    check = {
        "namespace": asked.namespace,
        "descriptor": dict(pairs),
        "cost": asked.cost,
        "caller": asked.caller,
        **({} if asked.size is None else {"bytes": asked.size}),
        **({} if asked.at_least is None else {"at_least": asked.at_least}),
        "charge": asked.charge,
    }
    assert question.of_json(json.dumps(check).encode(), "other") == ([asked], False)


@functools.cache
def serving() -> tuple[RequestDatapath, RequestConnections]:
    """One for all inputs: its limits are used up now and then, and fill again never."""
    datapath = RequestDatapath(Random(1), b"secret")
    of_plan = RequestMatch("api", {"plan": "free"})
    on_bytes = limit_spec("fair", id=2, name="bytes", match=of_plan)
    limits = (request_limit(), on_bytes)
    datapath.attach([(it, Enforcement(depth=it.policy.burst)) for it in limits], 0)
    turns = Turns()
    batch = BatchFront(datapath, lambda: 0, turns)
    grpc = grpc_handlers(datapath, lambda: 0, tuple)
    return datapath, RequestConnections(make_app(datapath, lambda: 0), turns, batch, grpc)


def seeds() -> list[bytes]:
    body = b'[{"namespace":"api","descriptor":{"plan":"free"},"cost":2,"bytes":9,"caller":"b"}]'
    return [
        b"GET /v1/check?namespace=api HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /v1/check?namespace=api&plan=free&cost=0&bytes=9&caller=b&refused=403 HTTP/1.1\r\n"
        b"Host: x\r\n\r\n",
        b"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body),
        body,
        body[1:-1],
        b'{"namespace":"api","cost":9,"at_least":2,"charge":false}',
        b"namespace=api&cost=0&bytes=9&charge=true",
        b"namespace=api&plan=%C3%A9&cost=3",
    ]


WORDS = (
    *(b"namespace", b"descriptor", b"cost", b"bytes", b"caller", b"refused", b"/v1/check"),
    *(b"at_least", b"charge", b"true"),
    *(b"%ff", b"%00", b"&", b"=", b"NaN", b"1e9", b"\\ud800", b'"', b"{", b"}", b"[", b"]"),
    *(b"GET ", b"POST ", b"\r\n", b"Content-Length: 5"),
)

TARGET = Target(check, seeds, words=WORDS, max_bytes=1500)
