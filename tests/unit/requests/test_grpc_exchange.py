"""The gRPC server without I/O, against h2's client: statuses, flow control, bounds, and the end."""

from __future__ import annotations

import pytest
from h2.events import StreamReset
from h2.settings import SettingCodes

from drld.requests.grpc import bounds
from drld.requests.grpc.call import Status

from .grpc_peer import FAILS, STREAM, UNARY, Client2, framed


@pytest.fixture
def client() -> Client2:
    return Client2()


def test_a_call_is_answered(client: Client2) -> None:
    stream = client.call(b"hi", x_forwarded_for="10.0.0.1")
    headers, data = client.of(stream)
    assert headers == {":status": "200", "content-type": "application/grpc", "grpc-status": "0"}
    assert data == framed(b"hime,10.0.0.1")
    assert client.status(stream) == "0"


def test_many_calls_at_once_are_answered_in_their_order(client: Client2) -> None:
    streams = []
    for number in range(bounds.MAX_CALLS):
        streams.append(client.begin())
        client.http.send_data(streams[-1], framed(b"%d" % number), end_stream=True)
    client.flush()
    assert [client.of(it)[1] for it in streams] == [
        framed(b"%dme" % number) for number in range(bounds.MAX_CALLS)
    ]


def test_a_call_may_come_byte_by_byte() -> None:
    client = Client2()
    client.begin()
    client.http.send_data(1, framed(b"hi"), end_stream=True)
    for byte in client.http.data_to_send():
        client.server.receive(bytes([byte]), 0)
    client.answer()
    assert client.of(1)[1] == framed(b"hime")


def test_a_stream_answers_each_message_until_its_end(client: Client2) -> None:
    stream = client.begin(STREAM)
    for message in (b"a", b"b"):
        client.http.send_data(stream, framed(message))
        client.flush()
        assert client.of(stream)[1].endswith(framed(message + b"me"))
    client.later(bounds.CALL_S - 1)
    client.http.send_data(stream, framed(b"c") + framed(b"d"), end_stream=True)
    client.flush()
    assert client.of(stream)[1].endswith(framed(b"cme") + framed(b"dme"))
    assert client.status(stream) == "0"
    empty = client.begin(STREAM)
    client.http.end_stream(empty)
    client.flush()
    assert client.status(empty) == "0"


def test_an_error_is_told_in_ascii(client: Client2) -> None:
    headers, _ = client.of(client.call(path=FAILS))
    assert headers["grpc-status"] == "5"
    assert headers["grpc-message"] == "there is 0 %25 of %C3%A9"


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"--method": "GET"}, "405"), ({"content_type": "text/plain"}, "415")],
)
def test_a_request_that_is_no_grpc_gets_a_status_of_http(
    client: Client2, headers: dict[str, str], status: str
) -> None:
    found, data = client.of(client.call(b"hi", UNARY, **headers))
    assert found[":status"] == status
    assert "grpc-status" not in found
    assert data == b""
    assert client.answered == 0


@pytest.mark.parametrize(
    ("sent", "headers", "status"),
    [
        (framed(b"compressed", compressed=True), {}, Status.INTERNAL),
        (framed(b"hi", compressed=True), {"grpc_encoding": "gzip"}, Status.UNIMPLEMENTED),
        (b"\0" + (bounds.MAX_MESSAGE_BYTES + 1).to_bytes(4, "big"), {}, Status.RESOURCE_EXHAUSTED),
        (framed(b"hi") * 2, {}, Status.UNIMPLEMENTED),
        (b"", {}, Status.UNIMPLEMENTED),
        (framed(b"hi")[:-1], {}, Status.INTERNAL),
        (b"\0\0", {}, Status.INTERNAL),
        (framed(b"hi"), {"grpc_timeout": "5"}, Status.INTERNAL),
        (framed(b"hi"), {"grpc_timeout": "123456789S"}, Status.INTERNAL),
        (framed(b"hi"), {"grpc_timeout": "0n"}, Status.DEADLINE_EXCEEDED),
        (framed(b"hi"), {"--path": "/a.B/Other"}, Status.UNIMPLEMENTED),
    ],
)
def test_a_call_that_cannot_be_answered_gets_a_status(
    client: Client2, sent: bytes, headers: dict[str, str], status: Status
) -> None:
    for ends in (True, False):
        stream = client.begin(UNARY, **headers)
        client.send(stream, sent, ends)
        client.later(0)
        if not ends and status is not Status.RESOURCE_EXHAUSTED and not headers and len(sent) < 14:
            continue  # More may come.
        assert client.status(stream) == str(status.value)
        if not ends:
            # The rest need not be sent.
            assert any(isinstance(it, StreamReset) for it in client.events)
    assert client.answered == 0
    assert client.of(client.call())[1] == framed(b"hime")


def test_a_compressed_message_is_answered_with_what_is_taken(client: Client2) -> None:
    stream = client.begin(grpc_encoding="gzip")
    client.http.send_data(stream, framed(b"hi", compressed=True), end_stream=True)
    client.flush()
    assert client.of(stream)[0]["grpc-accept-encoding"] == "identity"


def test_a_call_must_be_complete_in_time(client: Client2) -> None:
    late, soon = client.begin(), client.begin(grpc_timeout="1500m")
    client.http.send_data(late, b"\0")
    client.flush()
    assert client.server.deadline == 1.5
    client.later(1.5)
    assert client.status(soon) == "4"
    assert client.server.deadline == bounds.CALL_S
    client.later(bounds.CALL_S)
    assert client.status(late) == "4"
    assert client.ended_by() is None


def test_a_stream_must_go_on_in_time(client: Client2) -> None:
    stream = client.begin(STREAM)
    client.http.send_data(stream, framed(b"a"))
    client.flush()
    client.later(bounds.CALL_S)
    assert client.status(stream) == "4"


def test_a_call_that_its_client_takes_back_costs_nothing(client: Client2) -> None:
    for path in (UNARY, STREAM, b"/other"):
        stream = client.begin(path)
        client.http.send_data(stream, framed(b"a"), end_stream=path != STREAM)
        client.http.reset_stream(stream)
        client.flush()
    assert client.answered == 0
    assert client.of(client.call())[1] == framed(b"hime")


def test_an_answer_goes_out_as_the_client_takes_it() -> None:
    client = Client2(window=4)
    stream = client.call(b"x" * 100)
    assert len(client.of(stream)[1]) == 4
    client.http.increment_flow_control_window(50, stream)
    client.flush()
    assert len(client.of(stream)[1]) == 54
    client.http.increment_flow_control_window(53, stream)
    client.flush()
    assert client.of(stream)[1] == framed(b"x" * 100 + b"me")
    assert client.status(stream) == "0"
    # It may be taken back meanwhile, and the window may open at the same time.
    other = client.call(b"x" * 100)
    client.http.increment_flow_control_window(50, other)
    client.http.reset_stream(other)
    client.flush()
    assert client.server.deadline == bounds.IDLE_S


def test_settings_open_windows_too() -> None:
    client = Client2(window=0)
    stream = client.call(b"x" * 20_000)
    assert client.of(stream)[1] == b""
    client.http.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 30_000})
    client.flush()
    assert len(client.of(stream)[1]) == 20_007
