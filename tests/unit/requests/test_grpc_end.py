"""The end of a gRPC connection: idle ones, calls that stay, a daemon that stops."""

from __future__ import annotations

import pytest
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated, StreamReset
from h2.exceptions import TooManyStreamsError

from drld.requests.grpc import bounds
from drld.requests.grpc.call import Status

from .grpc_peer import STAYS, Client2, framed, kinds_of


@pytest.fixture
def client() -> Client2:
    return Client2()


def test_an_idle_connection_ends_gently(client: Client2) -> None:
    assert client.server.deadline == bounds.CALL_S
    client.call()
    client.now = 100.0
    client.call()
    assert client.server.deadline == 100 + bounds.IDLE_S
    client.later(bounds.IDLE_S)
    first = next(it for it in client.events if isinstance(it, ConnectionTerminated))
    assert (first.error_code, first.last_stream_id) == (ErrorCodes.NO_ERROR, 2**31 - 1)
    assert not client.server.over
    client.later(bounds.DRAIN_S)
    assert client.server.over


def test_a_call_that_stays_ends_with_the_connection(client: Client2) -> None:
    stream = client.call(path=STAYS)
    assert client.of(stream)[1] == framed(b"hime")
    # It takes no part in the bounds on calls that wait for an answer, and is no reason to stay.
    client.later(bounds.CALL_S + bounds.ANSWER_S)
    assert client.server.deadline == bounds.IDLE_S
    client.now = 100.0
    assert client.status(client.call()) == "0"
    assert client.server.deadline == 100.0 + bounds.IDLE_S
    data = client.http.data_to_send()
    client.server.expire(100.0 + bounds.IDLE_S)
    assert kinds_of(out := client.server.output()) == [
        ("GoAwayFrame", 0), ("DataFrame", stream), ("HeadersFrame", stream)
    ]  # fmt: skip
    assert framed(b"bye") in out
    assert not client.server._calls
    # One that comes after that is told both at once.
    again = client.begin(path=STAYS)
    client.http.send_data(again, framed(b""), end_stream=True)
    client.server.receive(data + client.http.data_to_send(), 400.1)
    asked = client.server.next(400.1)
    assert asked is not None
    client.server.reply(asked, b"hello", 400.1)
    assert kinds_of(client.server.output())[-1] == ("HeadersFrame", again)
    client.server.expire(100.0 + bounds.IDLE_S + bounds.DRAIN_S)
    assert client.server.over


def test_calls_that_stay_end_by_their_deadline_or_their_client_and_have_their_bound() -> None:
    client = Client2()
    timed = client.call(path=STAYS, grpc_timeout="9S")
    client.later(9.0)
    assert client.status(timed) == str(int(Status.DEADLINE_EXCEEDED))
    taken_back = client.call(path=STAYS)
    client.http.reset_stream(taken_back)
    client.flush()
    assert not client.server._calls
    assert client.server._staying == 0
    for _ in range(bounds.MAX_CALLS):
        client.call(path=STAYS)
    assert client.server._staying == bounds.MAX_CALLS
    client.http.remote_settings.max_concurrent_streams = 1000
    with pytest.raises(TooManyStreamsError):
        client.call(path=STAYS)


def test_an_answer_of_a_call_that_stays_is_taken_in_time() -> None:
    client = Client2(window=3)
    stream = client.call(path=STAYS)
    assert client.server.deadline == bounds.ANSWER_S
    client.http.increment_flow_control_window(100, stream)
    client.flush()
    assert client.of(stream)[1] == framed(b"hime")
    assert client.server.deadline == bounds.IDLE_S
    other = client.call(path=STAYS)
    client.later(bounds.ANSWER_S)
    assert any(isinstance(it, StreamReset) and it.stream_id == other for it in client.events)
    assert client.server._staying == 1


def test_open_calls_are_answered_when_the_daemon_stops() -> None:
    client = Client2()
    client.begin()
    client.http.send_data(1, framed(b"hi")[:3])
    # What the client sends before it has read the GOAWAY is answered too.
    client.begin()
    client.http.send_data(3, framed(b"ho"), end_stream=True)
    client.http.send_data(1, framed(b"hi")[3:], end_stream=True)
    sent = client.http.data_to_send()
    client.server.receive(sent[:60], 0)
    client.server.drain(0)
    client.server.drain(0)
    client.server.expire(bounds.DRAIN_S)
    assert not client.server.over
    client.server.receive(sent[60:], 0)
    while (asked := client.server.next(0)) is not None:
        client.server.reply(asked, b"yes", 0)
    kinds = kinds_of(client.server.output())
    assert ("GoAwayFrame", 0) in kinds
    assert [it for it in kinds if it[0] == "DataFrame"] == [("DataFrame", 3), ("DataFrame", 1)]
    client.server.expire(bounds.DRAIN_S)
    assert client.server.over


def test_a_client_that_says_goodbye_ends_the_connection(client: Client2) -> None:
    client.http.close_connection()
    client.flush()
    assert client.server.over
