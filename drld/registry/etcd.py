"""A client of one etcd server: the JSON of its gateway (etcd 3.3 and later) over HTTP.

No client for trio is maintained, and the registry needs six calls. Answers are not trusted: each is
bounded in size and time. An answer in another form than etcd's API is a `RegistryError`, like every
failure here. Integers of 64 bits are strings in this JSON, and keys and values are base64.

This module is imported only if a registry is configured.
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import trio

from drld.errors import RegistryError
from drld.registry.credentials import read_password, read_trust
from drld.registry.http import Connection, HttpError, connect
from drld.registry.model.state import Event
from drld.spec import RegistrySpec

MAX_ANSWER_BYTES = 8_000_000
"""Bound of one answer, or of one line of a watch: a value is at most 1.5 MB, 2 MB in base64."""
MAX_READ_BYTES = 128_000_000
"""Bound of all values of a range."""
MAX_KEYS = 200_000
"""Bound of the keys of a range: more than all limits and members."""
PAGE = 500
"""Most keys that one read returns."""
CALL_TIMEOUT_S = 8.0
"""A server without a leader needs 7 s to say so."""
_COMPACTED = "required revision has been compacted"
_ABOUT = {
    "user name is empty": "registry.user",
    "authentication failed": "registry.user, registry.password_file",
    "authentication is not enabled": "registry.user",
    "permission denied": "registry.user",
}
"""etcd's errors about our identity, and the configuration keys that they concern."""
_CHANGE = "/kv/txn"
_PATHS = ("/v3", "/v3beta")
"""etcd 3.4 and later; etcd 3.3."""

Range = tuple[str, str]
"""First key, and the first key after it."""


class CompactedError(RegistryError):
    """The wanted history is compacted: read everything again."""


class _TooLargeError(RegistryError):
    pass


class Etcd:
    """A session with one server; an asynchronous context manager."""

    def __init__(self, endpoint: str, registry: RegistrySpec) -> None:
        """Read the configured certificates and password.

        Raises:
            RegistryError: a file is unreadable or invalid.
        """
        self.endpoint = endpoint
        self._user = registry.user
        self._password = read_password(registry)
        self._path = _PATHS[0]
        self._token: str | None = None
        self._tls = read_trust(registry) if endpoint.startswith("https:") else None
        self._idle: Connection | None = None

    async def __aenter__(self) -> Etcd:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._idle is not None:
            await self._idle.__aexit__()

    async def read(self, span: Range, revision: int = 0) -> tuple[list[Event], int]:
        """All values of a range, at one revision (0: the last); return them, and the revision.

        Raises:
            CompactedError: etcd has forgotten this revision.
            RegistryError: any other failure.
        """
        first, end = (key.encode() for key in span)
        found: list[Event] = []
        size = 0
        page = PAGE
        while True:
            request = {"key": _b64(first), "range_end": _b64(end), "limit": str(page)}
            if revision:
                request["revision"] = str(revision)
            try:
                answer = await self._call("/kv/range", request)
            except _TooLargeError:
                if page == 1:
                    raise
                page = max(1, page // 8)
                continue
            revision = revision or _revision(answer)
            pairs = _list(answer, "kvs")
            found += map(_item, pairs)
            size += sum(len(item.value or b"") for item in found[len(found) - len(pairs) :])
            if len(found) > MAX_KEYS or size > MAX_READ_BYTES:
                raise RegistryError(f"{self.endpoint}: more in {span[0]} than a fleet needs")
            if answer.get("more") is not True:
                return found, revision
            last = _bytes(pairs[-1], "key") if pairs else b""
            if last < first:
                raise RegistryError(f"{self.endpoint}: the answer is not etcd's: no next page")
            first = last + b"\0"

    async def get(self, key: str) -> Event | None:
        """The value of one key; None: it does not exist."""
        found, _ = await self.read((key, key + "\0"))
        return found[0] if found else None

    async def commit(
        self,
        changes: Mapping[str, bytes | None],
        where: Mapping[str, int] | None = None,
        lease: int = 0,
    ) -> int | None:
        """Change some keys at once, if the keys of `where` have these revisions.

        Args:
            changes: new values by key; None deletes the key.
            where: expected revisions by key; 0: the key does not exist.
            lease: the new values end with this lease; 0: they stay.

        Returns:
            The revision of the change; None: `where` does not hold, and nothing is changed.

        Raises:
            RegistryError: a failure; also if the lease does not exist.
        """
        answer = await self._call(
            _CHANGE,
            {
                "compare": [
                    {"key": _b64(key), "target": "MOD", "mod_revision": str(revision)}
                    for key, revision in (where or {}).items()
                ],
                "success": [_change(key, value, lease) for key, value in changes.items()],
            },
        )
        return _revision(answer) if answer.get("succeeded") is True else None

    async def grant(self, ttl_s: int) -> int:
        """Make a lease; return its id."""
        return _integer(await self._call("/lease/grant", {"TTL": str(ttl_s)}), "ID")

    async def keep_alive(self, lease: int) -> bool:
        """Renew a lease; return whether it still existed."""
        answer = await self._call("/lease/keepalive", {"ID": str(lease)})
        result = answer.get("result")
        return isinstance(result, dict) and _integer(result, "TTL") > 0

    async def watch(self, span: Range, revision: int, told: Callable[[list[Event]], None]) -> None:
        """Pass the changes of a range from a revision on to `told`, until a failure.

        A call has all changes of its revisions. The revision in etcd's header is no bound of them:
        of a long history it tells the first 1,000 revisions with the last one in the header.

        Raises:
            CompactedError: etcd has forgotten changes since that revision.
            RegistryError: any other failure.
        """
        create = {
            "key": _b64(span[0]),
            "range_end": _b64(span[1]),
            "start_revision": str(revision),
        }
        body = json.dumps({"create_request": create}).encode()
        try:
            async with await connect(self.endpoint, self._tls) as connection:
                with trio.move_on_after(CALL_TIMEOUT_S) as scope:
                    status = await connection.post(f"{self._path}/watch", body, self._headers)
                if scope.cancelled_caught:
                    raise RegistryError(f"{self.endpoint}: no answer in time")
                if status != 200:
                    raise self._refused(status, await self._body(connection))
                await self._tell(connection, told)
        except HttpError as error:
            raise RegistryError(f"{self.endpoint}: {_shown(error)}") from error

    async def _tell(self, connection: Connection, told: Callable[[list[Event]], None]) -> None:
        """Pass the events of a watch to `told`, until it ends."""
        data = b""
        while (piece := await connection.piece()) is not None:
            *lines, data = (data + piece).split(b"\n")
            for line in filter(None, lines):
                result = _json(line).get("result")
                if not isinstance(result, dict):
                    raise RegistryError(f"{self.endpoint}: the watch says {_shown(line)}")
                if result.get("canceled"):
                    if "compact_revision" in result:
                        raise CompactedError(f"{self.endpoint}: the history is compacted")
                    raise RegistryError(f"{self.endpoint}: the watch was cancelled")
                if events := [_event(event) for event in _list(result, "events")]:
                    told(events)
            if len(data) > MAX_ANSWER_BYTES:
                raise _TooLargeError(f"{self.endpoint}: more than {MAX_ANSWER_BYTES} bytes")
        raise RegistryError(f"{self.endpoint}: the watch has ended")

    async def _call(self, path: str, request: object) -> dict[str, Any]:
        body = json.dumps(request).encode()
        if self._user is not None and self._token is None:
            await self._authenticate()
        status, answer = await self._ask(path, body)
        if status == 401 and self._user is not None:
            await self._authenticate()
            status, answer = await self._ask(path, body)
        if status != 200:
            raise self._refused(status, answer)
        return _json(answer)

    async def _ask(self, path: str, body: bytes) -> tuple[int, bytes]:
        status, answer = await self._ask_once(path, body)
        if status == 404 and not answer.startswith(b"{") and self._path == _PATHS[0]:
            self._path = _PATHS[1]
            status, answer = await self._ask_once(path, body)
        return status, answer

    async def _ask_once(self, path: str, body: bytes) -> tuple[int, bytes]:
        with trio.move_on_after(CALL_TIMEOUT_S):
            kept, self._idle = self._idle, None
            try:
                if kept is not None:
                    try:
                        return await self._ask_over(kept, path, body)
                    except HttpError:
                        # The server may have closed the idle connection. It may also have made a
                        # change: asked again, it would say that another client was faster.
                        if path == _CHANGE:
                            raise
                return await self._ask_over(await connect(self.endpoint, self._tls), path, body)
            except HttpError as error:
                raise RegistryError(f"{self.endpoint}: {_shown(error)}") from error
        raise RegistryError(f"{self.endpoint}: no answer in time")

    async def _ask_over(self, connection: Connection, path: str, body: bytes) -> tuple[int, bytes]:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(connection)
            status = await connection.post(f"{self._path}{path}", body, self._headers)
            answer = await self._body(connection)
            if connection.idle:
                stack.pop_all()
                self._idle = connection
        return status, answer

    async def _body(self, connection: Connection) -> bytes:
        data = bytearray()
        while (piece := await connection.piece()) is not None:
            data += piece
            if len(data) > MAX_ANSWER_BYTES:
                raise _TooLargeError(f"{self.endpoint}: more than {MAX_ANSWER_BYTES} bytes")
        return bytes(data)

    @property
    def _headers(self) -> list[tuple[str, str]]:
        return [] if self._token is None else [("authorization", self._token)]

    async def _authenticate(self) -> None:
        self._token = None  # etcd refuses an expired token even here.
        request = {"name": self._user, "password": self._password}
        status, answer = await self._ask("/auth/authenticate", json.dumps(request).encode())
        token = _json(answer).get("token") if status == 200 else None
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise self._refused(status, answer)
        self._token = token

    def _refused(self, status: int, answer: bytes) -> RegistryError:
        said: object = None
        if answer.startswith(b"{"):
            value = _json(answer)
            said = value.get("message") or value.get("error")
        reason = said if isinstance(said, str) else f"HTTP status {status}"
        kind = CompactedError if _COMPACTED in reason else RegistryError
        about = next((f" ({keys})" for said, keys in _ABOUT.items() if said in reason), "")
        return kind(f"{self.endpoint}: {_shown(reason)}{about}")


def _change(key: str, value: bytes | None, lease: int) -> dict[str, object]:
    if value is None:
        return {"request_delete_range": {"key": _b64(key)}}
    put = {"key": _b64(key), "value": _b64(value)}
    if lease:
        put["lease"] = str(lease)
    return {"request_put": put}


def _json(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RegistryError(f"the answer is not etcd's: {_shown(data)}") from error
    if not isinstance(value, dict):
        raise RegistryError(f"the answer is not etcd's: {_shown(data)}")
    return value


def _event(event: object) -> Event:
    if not isinstance(event, dict):
        raise RegistryError("the answer is not etcd's: an event is no object")
    item = _item(event.get("kv"))
    return item._replace(value=None) if event.get("type") == "DELETE" else item


def _item(pair: object) -> Event:
    if not isinstance(pair, dict):
        raise RegistryError("the answer is not etcd's: a key is no object")
    # A key of another program may have any bytes.
    key = _bytes(pair, "key").decode(errors="backslashreplace")
    return Event(key, _bytes(pair, "value"), _integer(pair, "mod_revision"))


def _bytes(pair: object, name: str) -> bytes:
    value = pair.get(name, "") if isinstance(pair, dict) else None
    try:
        return base64.b64decode(value if isinstance(value, str) else b"?", validate=True)
    except ValueError as error:
        raise RegistryError(f"the answer is not etcd's: {name}: {_shown(value)}") from error


def _list(answer: Mapping[str, object], name: str) -> list[object]:
    value = answer.get(name) or []
    if not isinstance(value, list):
        raise RegistryError(f"the answer is not etcd's: {name}: {_shown(value)}")
    return value


def _revision(answer: Mapping[str, object]) -> int:
    header = answer.get("header")
    if not isinstance(header, dict):
        raise RegistryError("the answer is not etcd's: no header")
    return _integer(header, "revision")


def _integer(answer: Mapping[str, object], name: str) -> int:
    """A number from 0 to 2**63 - 1; 0 if it is missing."""
    value = answer.get(name, 0)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 19:
        value = int(value)
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise RegistryError(f"the answer is not etcd's: {name}: {_shown(value)}")
    return value


def _shown(value: object) -> str:
    """An untrusted text, shortened and printable."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return "".join(c if c.isprintable() else "?" for c in text[:200])


def _b64(value: str | bytes) -> str:
    return base64.b64encode(value.encode() if isinstance(value, str) else value).decode()
