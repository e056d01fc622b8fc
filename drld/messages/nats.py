"""NATS: the operations of a client (CONNECT, PUB, HPUB, SUB, UNSUB, PING, PONG), and of its server.

drld reads of PUB and HPUB only the fields that limits need: subject and sizes. Of other lines it
checks the operation; the server judges the rest.

A PING keeps its place: a client that flushes sends one behind its messages, and its PONG says that
the server has them all.

Dropped messages. NATS does not acknowledge single messages, so the client gets no answer. In
verbose mode it gets the +OK that each operation has. A request whose message is dropped gets no
reply, and ends with the client's own timeout.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from drld.errors import FrameError
from drld.messages.frame import (
    MAX_FRAME,
    MAX_HEAD,
    Client,
    Frame,
    Place,
    kept,
)
from drld.messages.topics import TopicCache

T = TypeVar("T")

USUAL_HEAD = 4096
"""The largest line that a nats-server takes by default, bytes (max_control_line)."""
MAX_INFO = 1 << 20
"""The largest line that a server may send, bytes."""

_LINE_END = b"\r\n"
_OTHERS = frozenset((b"SUB", b"UNSUB", b"PING", b"PONG", b"CONNECT"))
_MESSAGES = frozenset((b"PUB", b"HPUB"))
_OPERATIONS = _OTHERS | _MESSAGES
_HTTP = (b"GET", b"HEAD", b"POST")
_DELIVERIES = frozenset((b"MSG ", b"HMSG"))
_LONGEST = max(map(len, _OPERATIONS))
_KEEPS, _OVERTAKES = Place.KEEPS, Place.OVERTAKES
_make = Frame._make
_OWN = ("connect_urls", "ws_connect_urls", "ip", "tls_available")
"""The fields of INFO that drld sets: addresses by which a client could bypass drld, and TLS."""


class NatsReader:
    """Reads the frames of a client on their way to its server."""

    __slots__ = (
        *("_max_frame", "_needed", "_rest", "_searched", "_topics", "_verbose"),
        *("client", "offset"),
    )

    def __init__(self, max_frame: int = MAX_FRAME, topics: TopicCache | None = None) -> None:
        """See `ReaderFactory`."""
        self.client: Client | None = None
        self._topics = TopicCache(subject_of) if topics is None else topics
        self._max_frame = max_frame
        self._verbose = True
        """Whether each operation is acknowledged: the default of NATS."""
        self._rest = bytearray()
        """The beginning of a frame."""
        self._needed = 1
        """The number of bytes that `_rest` must have before another look at it can help."""
        self._searched = 0
        """The number of bytes of `_rest` that are known to have no end of a line."""
        self.offset = 0
        """See `Reader.offset`."""

    @property
    def held(self) -> int:
        """See `Reader.held`."""
        return len(self._rest)

    def forget(self) -> None:
        """See `Reader.forget`."""
        self._rest.clear()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """See `Reader.feed`."""
        if self._rest:
            data = self._joined(data)
        if not data:
            return
        start, size, offset, searched = 0, len(data), self.offset, self._searched
        self._searched, self._needed = 0, 1
        while start < size:
            line_end = data.find(b"\n", start + searched)
            searched = 0
            if line_end < 0 or line_end - start > MAX_HEAD:
                _check_line(data[start : start + MAX_HEAD + 1])
                self._searched = size - start
                break
            line = data[start : line_end - 1]
            if data[line_end - 1] != 13:
                raise _error("line", f"must end with CR LF (got {line[:40]!r} with LF alone)")
            line_end += 1
            words = line.split(b" ")
            # The form that clients write; two spaces stand where there is no reply subject.
            if words[0] == b"PUB" and 3 <= len(words) <= 4 and words[1] and b"\t" not in line:
                raw, digits = words[1], words[-1] or words[-2]
            else:
                words = _words(line)
                operation = words[0].upper()
                if operation not in _MESSAGES:
                    yield self._other(operation, data[start:line_end], offset + line_end)
                    start = line_end
                    continue
                raw, digits = _subject_and_size(operation, words)
            if not digits.isdigit() or len(digits) > 10:
                raise _error("PUB.size", f"must be a number of bytes (got {digits[:20]!r})")
            length = int(digits)
            end = line_end + length + 2
            if end - start > self._max_frame:
                raise self._too_large(end - start)
            subject = self._topics[raw]
            if end > size:
                self._needed = end - start
                break
            if data[end - 2 : end] != _LINE_END:
                raise _error("PUB.payload", f"must end with CR LF after {length} bytes")
            yield _make((data[start:end], offset + end, subject, _KEEPS, 0, b"", 0))
            start = end
        if start < size:
            self._rest += data[start:]
        self.offset = offset + start

    def forward(self, frame: Frame) -> bytes:
        """See `Reader.forward`."""
        return frame.data

    def drop(self, frame: Frame) -> bytes:  # noqa: ARG002 -- all are answered alike
        """See `Reader.drop`."""
        return b"+OK\r\n" if self._verbose else b""

    def _joined(self, data: bytes) -> bytes:
        """The bytes that are in no frame yet, and these; empty: these complete no frame."""
        rest = self._rest
        rest += data
        if len(rest) < self._needed:
            return b""
        # Only the first bytes of a line can show that it is no operation.
        checked = self._searched > _LONGEST and len(rest) <= MAX_HEAD
        if checked and rest.find(b"\n", self._searched) < 0:
            self._searched = len(rest)
            return b""
        data = bytes(rest)
        rest.clear()
        return data

    def _other(self, operation: bytes, line: bytes, end: int) -> Frame:
        """The frame of an operation that is no message."""
        if operation not in _OTHERS:
            _check_operation(operation)
        if operation == b"CONNECT":
            self._connect(line[len(operation) :])
        return Frame(line, end, None, _OVERTAKES if operation == b"PONG" else _KEEPS)

    def _too_large(self, size: int) -> FrameError:
        claim = f"must have at most {self._max_frame} bytes, the broker's max_frame (got {size})"
        return FrameError(f"PUB: {claim}", b"-ERR 'Maximum Payload Violation'\r\n")

    def _connect(self, text: bytes) -> None:
        # Servers take names in any case (Go's encoding/json), and the last of two.
        said = _object("CONNECT", text, str.casefold)
        name = kept(_field(said, "name", str, ""))
        user = kept(_field(said, "user", str, "")) or None
        self._verbose = _field(said, "verbose", bool, True)
        self.client = Client(name, user, _field(said, "protocol", int, 0), 0)


class NatsReturns:
    """Passes the stream from a server to its client (`drld.messages.frame.Returns`).

    It leaves out the answers to drld's pings, and the pings that drld answers. INFO loses the
    addresses of servers, by which a client could bypass drld. It says whether drld wants TLS, and
    no larger payload than drld takes. Its other fields pass, `ldm` among them: a client that a
    server in lame duck mode sends away connects to drld again.
    """

    __slots__ = (
        *("_left", "_max_payload", "_queue", "_rest", "_tls"),
        *("accepted", "asked", "assigned_id", "greeted", "held", "keep_alive_s", "pings"),
        "stands_in",
    )

    def __init__(self, max_frame: int = MAX_FRAME, *, tls: bool = False) -> None:
        """See `ReturnsFactory`."""
        self.greeted = False
        self.accepted = False
        self.held = 0
        self.pings = 0
        self.stands_in = False
        self.asked = 0
        # Servers of NATS set neither.
        self.assigned_id = ""
        self.keep_alive_s: int | None = None
        self._tls = tls
        self._max_payload = max_frame - min(USUAL_HEAD, max_frame // 2)
        self._queue: list[bytes] = []
        self._rest = b""
        """The beginning of a line, of which the client has no byte yet."""
        self._left = 0
        """The number of missing bytes of a payload."""

    def feed(self, data: bytes) -> bytes:
        """See `Returns.feed`."""
        work = self._rest + data if self._rest else data
        at, size, copied = self._left, len(work), 0
        out: list[bytes] = []
        if self._queue and 0 < at <= size:
            out = [work[:at], *self._answers()]
            copied = at
        while at < size:
            end = work.find(b"\n", at) + 1
            if not end:
                break
            operation = work[at : at + 4]
            if operation in _DELIVERIES:
                end = end + _size(work[at:end]) + 2
            elif operation == b"INFO":
                out += (work[copied:at], self._info(work[at + 4 : end]))
                copied = end
                self.greeted = True
            elif operation == b"PING" and self.stands_in:
                self.asked += 1
                out.append(work[copied:at])
                copied = end
            elif operation == b"PONG":
                self.accepted = True
                if self.pings:
                    self.pings -= 1
                    out.append(work[copied:at])
                    copied = end
            at = end
            if self._queue and self.greeted and at <= size:
                out += (work[copied:at], *self._answers())
                copied = at
        if at < size:
            self._left, self._rest = 0, work[at:]
            if size - at > MAX_INFO:
                raise FrameError(f"line: must have at most {MAX_INFO} bytes (got {size - at})")
            size = at
        else:
            self._left, self._rest = at - size, b""
        if not copied:
            return work if len(work) == size else work[:size]
        return b"".join((*out, work[copied:size]))

    def insert(self, data: bytes) -> bytes:
        """See `Returns.insert`."""
        if self.greeted and not self._left:
            return data
        self._queue.append(data)
        self.held += len(data)
        return b""

    def _answers(self) -> list[bytes]:
        """Take out the answers that wait."""
        answers, self._queue, self.held = self._queue, [], 0
        return answers

    def _info(self, text: bytes) -> bytes:
        said = _object("INFO", text)
        if said.get("tls_required") is True:
            claim = "must be false: drld connects to the server without TLS (got true)"
            raise FrameError(f"INFO.tls_required: {claim}")
        passed = {name: value for name, value in said.items() if name not in _OWN}
        if self._tls:
            passed["tls_required"] = True
        if isinstance(most := said.get("max_payload"), int):
            passed["max_payload"] = min(most, self._max_payload)
        if passed == said:
            return b"INFO" + text
        return b"INFO " + json.dumps(passed, separators=(",", ":")).encode() + b" \r\n"


def subject_of(raw: bytes) -> str:
    """Decode the subject of a message.

    Raises:
        FrameError: it is no text, or has control characters.
    """
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise _error("PUB.subject", f"must be UTF-8 ({error.reason} at {error.start})") from None
    if min(text, default="") <= " " or "\x7f" in text:
        raise _error("PUB.subject", f"must not contain control characters (got {text[:80]!r})")
    return text


def _size(line: bytes) -> int:
    """The size of the payload behind a line of the server, bytes."""
    digits = line[:-2].rpartition(b" ")[2]
    if not digits.isdigit() or len(digits) > 10 or not line.endswith(_LINE_END):
        raise FrameError(f"MSG.size: must be a number of bytes (got {digits[:20]!r})")
    return int(digits)


def _object(
    name: str, text: bytes, fold: Callable[[str], str] = lambda key: key
) -> dict[str, object]:
    """The JSON object of an operation; `fold` makes names alike that mean the same field."""
    try:
        said = json.loads(text, object_pairs_hook=lambda pairs: {fold(k): v for k, v in pairs})
    except (ValueError, RecursionError) as error:
        raise _error(name, f"must have an object in JSON ({error})") from None
    if not isinstance(said, dict):
        raise _error(name, f"must have an object in JSON (got {type(said).__name__})")
    return said


def _field(said: Mapping[str, object], name: str, type_: type[T], default: T) -> T:
    """The value of a field of CONNECT."""
    value = said.get(name)
    if value is None:
        return default
    if not isinstance(value, type_):
        raise _error(f"CONNECT.{name}", f"must be of type {type_.__name__} (got {value!r})")
    return value


def _words(line: bytes) -> list[bytes]:
    """The words of a line: an operation and its arguments."""
    words = [word for word in line.replace(b"\t", b" ").split(b" ") if word]
    if not words or not line.startswith(words[0]):
        raise _error("line", f"must begin with an operation (got {line[:40]!r})")
    return words


def _subject_and_size(operation: bytes, words: list[bytes]) -> tuple[bytes, bytes]:
    """The subject and the size of a message from its head."""
    has_headers = operation == b"HPUB"
    if not 3 <= len(words) - has_headers <= 4:
        claim = "must have a subject, a reply subject at most, and its sizes"
        raise _error(operation.decode(), f"{claim} (got {len(words) - 1} words)")
    if has_headers:
        size, whole = words[-2:]
        if not (size + whole).isdigit() or max(len(size), len(whole)) > 10:
            raise _error("HPUB.size", f"must be two numbers of bytes (got {size[:20]!r})")
        if int(size) > int(whole):
            claim = "must be at most that of headers and payload together"
            raise _error("HPUB.header_size", f"{claim} (got {int(size)} of {int(whole)})")
    return words[1], words[-1]


def _check_line(line: bytes) -> None:
    """Refuse a line whose beginning shows that it is no operation."""
    if len(line) > MAX_HEAD:
        raise _error("line", f"must have at most {MAX_HEAD} bytes (got more)")
    word = line[: _LONGEST + 1].replace(b"\t", b" ").split(b" ")[0].rstrip(b"\r").upper()
    if not any(name.startswith(word) for name in (*_OPERATIONS, *_HTTP)):
        _check_operation(word)


def _check_operation(word: bytes) -> None:
    """Refuse an operation that clients do not send."""
    if word in _HTTP:
        raise _error("client", "must speak NATS over TCP (got HTTP; WebSocket is not supported)")
    if word[:2] == b"\x16\x03":
        raise _error("client", "must wait for INFO before TLS (got a TLS handshake at once)")
    names = ", ".join(sorted(name.decode() for name in _OPERATIONS))
    raise _error("operation", f"must be one of {names} (got {word[:20]!r})")


def _error(field: str, claim: str) -> FrameError:
    """An error with the answer that NATS servers give."""
    return FrameError(f"{field}: {claim}", b"-ERR 'Parser Error'\r\n")
