"""The daemon behind its control socket, as drlctl's commands see it."""

from __future__ import annotations

import http.client
import json
import os
import socket
import stat
import struct
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, unquote

import click

from drld import __version__

RUN_DIRECTORY = Path("/run/drld")
_TIMEOUT_S = 30.0
_LOOK_S = 0.5
"""A daemon that does not answer for so long has a control socket, too: its operator must choose."""
_COMPARED = 1000
"""Limits whose names are compared with a name that the daemon does not know."""
_SILENT = "the daemon at {} does not answer"
_UNKNOWN = "; the change may be in force: check with drlctl before you try again"
_STRANGER = "the process that answers on the socket is not drld"


class Refused(click.ClickException):
    """The daemon cannot be reached, or a file or value is refused: exit status 1."""

    exit_code = 1

    def show(self, file: IO[Any] | None = None) -> None:
        """Write the line."""
        click.echo(f"drlctl: {self.message}", file=file, err=file is None)


class NotFound(Refused):
    """The daemon has no such limit."""


class Daemon:
    """The daemon; a connection is made for each question."""

    def __init__(self, given: str | None, timeout_s: float = _TIMEOUT_S) -> None:
        """`given` is the socket's path; `timeout_s` bounds each wait for the daemon."""
        self._given = given
        self._timeout_s = timeout_s
        self.answered = False
        """Whether it has answered a question."""

    def get(self, path: str) -> Any:
        """Get one JSON value.

        Raises:
            Refused: the daemon cannot be reached, or refuses.
        """
        with self._asked("GET", path) as response:
            return self._value(path, response)

    def post(self, path: str, body: object = None) -> Any:
        """Post a JSON value, and return the daemon's answer.

        Raises:
            Refused: as `get`; its `problems` are those of a configuration that was refused.
        """
        with self._asked("POST", path, json.dumps(body).encode()) as response:
            return self._value(path, response)

    def lines(self, path: str) -> Generator[str, None, None]:
        """Yield the lines of a stream as they come, until the daemon ends it.

        Raises:
            Refused: as `get`.
        """
        with self._asked("GET", path, endless=True) as response:
            if response.status != http.HTTPStatus.OK:
                self._value(path, response)
            rest = b""
            # `readline` would take a lost connection for the end.
            while piece := response.read1():
                *lines, rest = (rest + piece).split(b"\n")
                yield from (line.decode() for line in lines)

    def _value(self, path: str, response: http.client.HTTPResponse) -> Any:
        try:
            return _value(response)
        except NotFound as error:
            if error.message.endswith(": Not Found") and path != "/v1/status":
                raise self.unreadable(f"the daemon does not know {path}") from None
            raise NotFound(error.message + self._similar(path)) from None

    def unreadable(self, why: str) -> Refused:
        """The refusal of an answer that drlctl does not understand."""
        try:
            theirs = self.get("/v1/status")["version"]
        except (Refused, LookupError, TypeError):
            theirs = __version__
        if theirs != __version__:
            why = f"the daemon is drld {theirs}, and drlctl {__version__}: use its own drlctl"
        return Refused(f"cannot read the answer: {why}")

    def _similar(self, path: str) -> str:
        """The name of a limit that the operator may have meant by the limit of this path."""
        import difflib

        _, _, limit = path.partition("/v1/limits/")
        wanted = unquote(limit.partition("/")[0].partition("?")[0])
        known = [it["name"] for it in self.get(f"/v1/limits?count={_COMPARED}")] if wanted else []
        close = [] if wanted in known else difflib.get_close_matches(wanted, known, n=1)
        return f'; did you mean "{close[0]}"?' if close else ""

    @contextmanager
    def _asked(
        self, method: str, path: str, body: bytes | None = None, *, endless: bool = False
    ) -> Iterator[http.client.HTTPResponse]:
        """The daemon's answer, as long as the context lasts."""
        control = find_socket(self._given)
        unknown = "" if method == "GET" else _UNKNOWN
        with _connected(control, self._timeout_s) as sock:
            connection = http.client.HTTPConnection("drld")
            connection.sock = sock
            try:
                connection.request(method, path, body)
                with connection.getresponse() as response:
                    self.answered = True
                    if endless:
                        sock.settimeout(None)
                    yield response
            except TimeoutError as error:
                raise Refused(_SILENT.format(control) + unknown) from error
            except (OSError, http.client.IncompleteRead) as error:
                reason = f"the daemon at {control} closed the connection: {error}"
                raise Refused(reason + unknown) from error
            except http.client.HTTPException as error:
                raise Refused(_STRANGER) from error


def _connected(path: Path, timeout_s: float) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # If the daemon's backlog is full, a non-blocking connect() fails at once (unix(7)).
        whole = int(timeout_s)
        bound = struct.pack("ll", whole, int((timeout_s - whole) * 1e6))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, bound)
        sock.connect(str(path))
        sock.settimeout(timeout_s)
    except BlockingIOError as error:
        sock.close()
        raise Refused(_SILENT.format(path)) from error
    except OSError as error:
        sock.close()
        raise Refused(
            f"cannot reach a daemon at {path}: {error.strerror or error} "
            "(is drld running, and may you open its socket?)"
        ) from error
    return sock


def _value(response: http.client.HTTPResponse) -> Any:
    try:
        value = json.load(response)
    except ValueError as error:
        raise Refused(_STRANGER) from error
    if response.status == http.HTTPStatus.OK:
        return value
    if isinstance(value, dict) and "problems" in value:
        raise Problems(value["problems"])
    reason = value.get("error") if isinstance(value, dict) else None
    kind = NotFound if response.status == http.HTTPStatus.NOT_FOUND else Refused
    raise kind(f"the daemon refuses: {reason or json.dumps(value)}")


class Problems(Refused):
    """The daemon refuses a configuration: a line for each mistake in it."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(
            "the daemon keeps its configuration, because the file cannot be used:\n"
            + "\n".join(problems)
        )
        self.problems = problems


def limit_path(limit: str, rest: str = "") -> str:
    """The path of a limit in the control API, or of `rest` below it.

    Raises:
        click.UsageError: the name is empty.
        NotFound: no limit can have this name.
    """
    if not limit:
        raise click.UsageError("a limit's name or id must have a character (got '')")
    if "/" in limit:  # It would separate the parts of a path, even if quoted.
        raise NotFound(f"no limit is named {limit!r}: names have no slash")
    return f"/v1/limits/{quote(limit, safe='')}" + (rest and f"/{rest}")


def find_socket(given: str | None) -> Path:
    """The control socket to use: the given one, else the only one there is.

    Raises:
        Refused: no socket exists.
        click.UsageError: several sockets exist.
    """
    if given:
        return Path(given)
    own = os.environ.get("XDG_RUNTIME_DIR")
    # The user of $XDG_RUNTIME_DIR may have started a daemon.
    folders = [RUN_DIRECTORY, *([Path(own, "drld")] if own else [])]
    found = [path for folder in folders for path in _sockets(folder)]
    if len(found) > 1:
        found = [path for path in found if _may_be_control(path)] or found
    if len(found) > 1:
        listed = ", ".join(map(str, found))
        raise click.UsageError(f"several daemons run here; choose one with --socket: {listed}")
    if not found:
        searched = " or ".join(map(str, folders))
        raise Refused(f"no control socket in {searched}: is drld running? (see also --socket)")
    return found[0]


def _may_be_control(path: Path) -> bool:
    """Whether a daemon may answer there: none does where a killed daemon left a socket."""
    try:
        Daemon(str(path), _LOOK_S).get("/v1/status")
    except Refused as error:
        return not isinstance(error.__cause__, ConnectionRefusedError)
    return True


def _sockets(directory: Path) -> list[Path]:
    """The sockets that may be for control: all users may open those for requests and messages."""
    try:
        return sorted(
            path
            for path in directory.iterdir()
            if path.is_socket() and not path.stat().st_mode & stat.S_IWOTH
        )
    except OSError:
        return []
