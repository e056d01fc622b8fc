"""Frames of NATS: cut, checked, dropped, and what a server says on the way back."""

from __future__ import annotations

import json

import pytest

from drld.errors import FrameError
from drld.messages.frame import MAX_HEAD, Client, Frame, Place
from drld.messages.nats import MAX_INFO, NatsReader, NatsReturns
from drld.messages.topics import Topic
from tests.fuzz.targets.broker_frames import read
from tests.fuzz.targets.nats import CONNECT, INFO

BOUND = 1000
PUB = b"PUB a.b 3\r\nabc\r\n"
HPUB = b"HPUB a.b 12 15\r\nNATS/1.0\r\n\r\nabc\r\n"
MSG = b"MSG a.b 1 3\r\nx\r\n\r\n"
OK = b"+OK\r\n"


def one(data: bytes, reader: NatsReader | None = None) -> Frame:
    (frame,) = (reader or NatsReader(BOUND)).feed(data)
    return frame


def refusal(data: bytes, reader: NatsReader | None = None) -> FrameError:
    with pytest.raises(FrameError) as caught:
        list((reader or NatsReader(BOUND)).feed(data))
    return caught.value


def test_a_client_says_what_it_is() -> None:
    reader = NatsReader()
    frame = one(CONNECT, reader)
    assert frame == Frame(CONNECT, len(CONNECT), None, Place.KEEPS)
    assert reader.client == Client("client", "u", 1, 0)
    one(b"CONNECT {}\r\n", reader)
    assert reader.client == Client("", None, 0, 0)


@pytest.mark.parametrize(
    "said",
    [
        b'{"USER":"u","Name":"n"}',
        b'{"user":"other","User":"u","name":"n"}',
        b'{"User":"other","user":"u","NAME":"other","Name":"n"}',
        '{"u\u017fer":"u","name":"n"}'.encode(),
    ],
)
def test_names_of_fields_are_those_that_the_server_takes(said: bytes) -> None:
    """Go's encoding/json takes any case, and the last of two. Limits trust the user name."""
    reader = NatsReader()
    one(b"CONNECT " + said + b"\r\n", reader)
    assert reader.client == Client("n", "u", 0, 0)


@pytest.mark.parametrize(
    "data",
    [
        PUB,
        HPUB,
        b"pub a.b 0\r\n\r\n",
        b"PUB a.b reply.to 3\r\n\r\n\r\r\n",
        b"PUB\ta.b \t reply 3\r\nabc\r\n",
        b"hPuB a.b reply 12 12\r\nNATS/1.0\r\n\r\n\r\n",
        b"PUB  a.b 3 \r\nabc\r\n",
    ],
)
def test_a_message_has_its_subject(data: bytes) -> None:
    frames = list(NatsReader(BOUND).feed(data + data))
    ends = len(data), 2 * len(data)
    assert frames == [Frame(data, end, Topic("a.b"), Place.KEEPS) for end in ends]


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b"PONG\r\n", Place.OVERTAKES),
        *((data, Place.KEEPS) for data in (b"PING\r\n", b"SUB a.* q 1\r\n", b"UNSUB 1\r\n")),
        (b"sub\ta 1\r\n", Place.KEEPS),
    ],
)
def test_answers_to_the_server_overtake_messages(data: bytes, place: Place) -> None:
    assert one(data) == Frame(data, len(data), None, place)


def test_subjects_are_text() -> None:
    assert one("PUB städte.ulm 0\r\n\r\n".encode()).topic_text == "städte.ulm"


@pytest.mark.parametrize(
    ("data", "claim"),
    [
        (b"GET / HTTP/1.1\r\n", "client: must speak NATS over TCP"),
        (b"G", None),
        (b"\x16\x03\x01\x02\0", "client: must wait for INFO before TLS"),
        (b"INFO {}\r\n", "operation: must be one of CONNECT, HPUB, PING"),
        (b"MSG a 1 3\r\n", "operation: must be one of"),
        (b"SUBMARINE", "operation: must be one of"),
        (b"\r\n", "line: must begin with an operation"),
        (b" PING\r\n", "line: must begin with an operation"),
        (b"PING\n", "line: must end with CR LF"),
        (b"PUB a 1\nx\r\n", "line: must end with CR LF"),
        (b"PUB a\r\n", "PUB: must have a subject"),
        (b"PUB a b c 1\r\n", "PUB: must have a subject"),
        (b"HPUB a 1\r\n", "HPUB: must have a subject"),
        (b"PUB a x\r\n", "PUB.size: must be a number of bytes"),
        (b"PUB a -1\r\n", "PUB.size: must be a number of bytes"),
        (b"PUB a 1_0\r\n", "PUB.size: must be a number of bytes"),
        (b"PUB a 00000000001\r\n", "PUB.size: must be a number of bytes"),
        (b"HPUB a 13 12\r\n", "HPUB.header_size: must be at most"),
        (b"HPUB a x 12\r\n", "HPUB.size: must be two numbers"),
        (b"PUB a 1\r\nxyz", "PUB.payload: must end with CR LF after 1 bytes"),
        (b"PUB a 1\r\n\r\n\n", "PUB.payload: must end with CR LF after 1 bytes"),
        (b"PUB \xff 0\r\n", "PUB.subject: must be UTF-8"),
        (b"PUB a\x0bb 0\r\n", "PUB.subject: must not contain control characters"),
        (b"PUB a\rb 0\r\n", "PUB.subject: must not contain control characters"),
        (b"PUB a\x7fb 0\r\n", "PUB.subject: must not contain control characters"),
        (b"CONNECT\r\n", "CONNECT: must have an object in JSON"),
        (b"CONNECT []\r\n", "CONNECT: must have an object in JSON (got list)"),
        (b"CONNECT " + b"[" * 60_000 + b"\r\n", "CONNECT: must have an object in JSON"),
        (b'CONNECT {"name":1}\r\n', "CONNECT.name: must be of type str (got 1)"),
        (b'CONNECT {"verbose":"x"}\r\n', "CONNECT.verbose: must be of type bool"),
        (b"CONNECT " + b"x" * MAX_HEAD, f"line: must have at most {MAX_HEAD} bytes"),
        (b"SUB " + b"x" * MAX_HEAD + b"\r\n", f"line: must have at most {MAX_HEAD} bytes"),
    ],
)
def test_malformed_operations_are_refused(data: bytes, claim: str | None) -> None:
    if claim is None:
        assert list(NatsReader().feed(data)) == []
    else:
        error = refusal(data)
        assert claim in str(error)
        assert error.answer == b"-ERR 'Parser Error'\r\n"


def test_messages_are_bounded_before_their_bytes_are_there() -> None:
    head = b"PUB a 986\r\n"
    fits = head + b"x" * 986 + b"\r\n"
    assert len(fits) == BOUND - 1
    assert one(fits).data == fits
    error = refusal(b"PUB a 988\r\n")
    claim = f"PUB: must have at most {BOUND} bytes, the broker's max_frame"
    assert str(error) == f"{claim} (got {BOUND + 1})"
    assert error.answer == b"-ERR 'Maximum Payload Violation'\r\n"


def test_a_long_line_may_come_in_pieces() -> None:
    line = b'CONNECT {"name":"' + b"x" * (MAX_HEAD - 30) + b'"}\r\n'
    reader = NatsReader()
    frames, error = read(reader, line, 1000)
    assert ([frame.data for frame in frames], error) == ([line], None)
    frames, error = read(reader, b"PING " + b" " * MAX_HEAD, 1000)
    assert frames == []
    assert "line: must have at most" in str(error)


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (b"", OK),
        (b"CONNECT {}\r\n", OK),
        (b'CONNECT {"verbose":true}\r\n', OK),
        (b'CONNECT {"verbose":false}\r\n', b""),
    ],
)
def test_a_dropped_message_has_no_answer_but_in_verbose_mode(said: bytes, answer: bytes) -> None:
    reader = NatsReader(BOUND)
    *_, message = reader.feed(said + b"PUB a reply 0\r\n\r\n")
    assert reader.drop(message) == answer


def said(data: bytes) -> dict[str, object]:
    assert data.startswith(b"INFO ")
    assert data.endswith(b" \r\n")
    found = json.loads(data[5:])
    assert isinstance(found, dict)
    return found


def test_a_server_leads_no_client_past_drld() -> None:
    told = {"server_id": "x", "max_payload": 9, "ldm": True, "nonce": "n", "auth_required": True}
    ways = {"connect_urls": ["a:1"], "ws_connect_urls": ["a:2"], "ip": "nats://a:1"}
    info = b"INFO " + json.dumps({**told, **ways}).encode() + b"\r\n"
    assert said(NatsReturns().feed(info)) == told
    assert said(NatsReturns(tls=True).feed(info)) == {**told, "tls_required": True}


@pytest.mark.parametrize(
    ("most", "max_frame", "told"),
    [(1 << 20, 2 << 20, 1 << 20), (8 << 20, 2 << 20, (2 << 20) - 4096), (9999, 1024, 512)],
)
def test_a_server_promises_no_larger_payload_than_drld_takes(
    most: int, max_frame: int, told: int
) -> None:
    info = b'INFO {"max_payload":%d} \r\n' % most
    assert said(NatsReturns(max_frame).feed(info)) == {"max_payload": told}
    frame = b"PUB %b %d\r\n%b\r\n" % (b"s" * 300, told, b"x" * told)
    assert len([*NatsReader(max_frame).feed(frame)]) == 1


def test_an_info_that_needs_no_change_is_passed_as_it_is() -> None:
    info = b'INFO { "server_id" : "x" }\r\n'
    assert NatsReturns().feed(info) == info


def test_a_server_may_say_it_again_later() -> None:
    returns = NatsReturns()
    first = returns.feed(INFO)
    assert "connect_urls" not in said(first)
    assert returns.feed(MSG + INFO + MSG) == MSG + first + MSG
    inside = b"MSG a 1 %d\r\n%b\r\n" % (len(INFO), INFO)
    assert returns.feed(inside) == inside


@pytest.mark.parametrize("piece", [1, 2, 5, 1000])
def test_answers_stand_between_the_servers_operations(piece: int) -> None:
    returns, stream, out = NatsReturns(), INFO + MSG + OK, b""
    before = returns.greeted
    assert returns.insert(OK) == b""
    for start in range(0, len(stream), piece):
        out += returns.feed(stream[start : start + piece])
    assert (before, returns.greeted) == (False, True)
    assert returns.held == 0
    info = NatsReturns().feed(INFO)
    assert out == info + OK + MSG + OK
    assert returns.feed(MSG[:-3]) == MSG[:-3]
    assert returns.insert(OK) == b""
    assert returns.held == len(OK)
    assert returns.feed(MSG[-3:] + MSG) == MSG[-3:] + OK + MSG
    assert returns.feed(b"+O") == b""
    assert returns.insert(b"-ERR 'x'\r\n") == b"-ERR 'x'\r\n"
    assert returns.feed(b"K\r\n") == OK


@pytest.mark.parametrize("piece", [1, 3, 1000])
def test_the_servers_pings_are_left_out_while_drld_answers_them(piece: int) -> None:
    returns = NatsReturns()
    inside = b"MSG a.b 1 6\r\nPING\r\n\r\n"
    stream = b"PING\r\n" + inside + b"PING\r\n" + OK
    returns.stands_in = True
    out = [returns.feed(stream[start : start + piece]) for start in range(0, len(stream), piece)]
    assert (b"".join(out), returns.asked) == (inside + OK, 2)
    returns.stands_in = False
    assert (returns.feed(stream), returns.asked) == (stream, 2)


@pytest.mark.parametrize(
    ("data", "claim"),
    [
        (b'INFO {"tls_required":true}\r\n', "INFO.tls_required: must be false"),
        (b"INFO x\r\n", "INFO: must have an object"),
        (b"MSG a 1 x\r\n", "MSG.size: must be a number"),
        (b"MSG a 1 3\n", "MSG.size: must be a number"),
        (b"x" * 2_000_000, "line: must have at most"),
    ],
)
def test_a_server_that_speaks_something_else_is_found_out(data: bytes, claim: str) -> None:
    with pytest.raises(FrameError, match=claim):
        NatsReturns().feed(data)


def test_names_are_kept_short_and_without_zero_bytes() -> None:
    """A client without a name is known by a zero byte and its address."""
    names = ["x" * 256, "x" * 257, "y" * 30_000, "\x00127.0.0.1", "\ud800" * 300]
    found = []
    for name in names:
        reader = NatsReader()
        said = json.dumps({"name": name, "user": name})
        one(f"CONNECT {said}\r\n".encode(), reader)
        assert reader.client is not None
        assert reader.client.id == reader.client.user
        found.append(reader.client.id)
    assert found[0] == names[0]
    assert len({*found}) == len(found)
    assert max(map(len, found)) == 256
    assert [it.startswith("\0digest ") for it in found] == [False, True, True, True, True]


def test_a_line_of_the_server_has_a_bound() -> None:
    returns = NatsReturns()
    assert returns.feed(b"-ERR " + b"x" * (MAX_INFO - 5)) == b""
    with pytest.raises(FrameError, match=f"line: must have at most {MAX_INFO} bytes"):
        returns.feed(b"x")
