"""The daemon behind its control socket, as drlctl's commands see it.

httpx is imported when a command talks to the daemon, not before: help, usage errors and shell
completion stay fast.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    import httpx

RUN_DIRECTORY = Path("/run/drld")
_TIMEOUT_S = 30.0


class Refused(click.ClickException):
    """The daemon cannot be reached, or refuses: one line on stderr, exit status 1."""

    exit_code = 1

    def show(self, file: IO[Any] | None = None) -> None:
        """Write the line."""
        click.echo(f"drlctl: {self.message}", file=file, err=file is None)


class Daemon:
    """A daemon that is asked only when a command needs to know something."""

    def __init__(self, given: str | None) -> None:
        self._given = given

    def get(self, path: str) -> Any:
        """Fetch one JSON value.

        Raises:
            Refused: the daemon cannot be reached, or refuses.
        """
        with self._client() as client:
            return self._value(client.get(path))

    def post(self, path: str, body: object = None) -> Any:
        """Ask for something to be done, with a JSON value; return what the daemon says.

        Raises:
            Refused: as `get`; its `problems` are those of a configuration that was refused.
        """
        with self._client() as client:
            return self._value(client.post(path, json=body))

    def lines(self, path: str) -> Generator[str, None, None]:
        """Yield the lines of a stream as they come, until the daemon ends it.

        Raises:
            Refused: as `get`.
        """
        with self._client(endless=True) as client, client.stream("GET", path) as response:
            if response.is_error:
                response.read()
                self._value(response)
            yield from response.iter_lines()

    @contextmanager
    def _client(self, *, endless: bool = False) -> Iterator[httpx.Client]:
        path = find_socket(self._given)
        _check_reachable(path)
        import httpx

        timeout = httpx.Timeout(_TIMEOUT_S, read=None if endless else _TIMEOUT_S)
        transport = httpx.HTTPTransport(
            uds=str(path), verify=False
        )  # no TLS in a file: load no certificates
        try:
            with httpx.Client(
                transport=transport, base_url="http://drld", timeout=timeout, trust_env=False
            ) as client:
                yield client
        except httpx.TimeoutException as error:
            raise Refused(f"the daemon at {path} does not answer") from error
        except httpx.HTTPError as error:
            raise Refused(f"the daemon at {path} closed the connection: {error}") from error

    @staticmethod
    def _value(response: httpx.Response) -> Any:
        try:
            value = response.json()
        except ValueError as error:
            raise Refused("the process that answers on the socket is not drld") from error
        if response.is_success:
            return value
        if isinstance(value, dict) and "problems" in value:
            raise Problems(value["problems"])
        reason = value.get("error") if isinstance(value, dict) else None
        raise Refused(f"the daemon refuses: {reason or json.dumps(value)}")


class Problems(Refused):
    """The daemon refuses a configuration: a line for each mistake in it."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(
            "the daemon keeps its configuration, for the file cannot be used:\n"
            + "\n".join(problems)
        )
        self.problems = problems


def _check_reachable(path: Path) -> None:
    """Find out what httpx would find out later, and say less clearly."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError as error:
            raise Refused(
                f"cannot reach a daemon at {path}: {error.strerror or error} "
                "(is drld running, and may you open its socket?)"
            ) from error


def find_socket(given: str | None) -> Path:
    """The control socket to use: the given one, else the only one there is.

    Raises:
        Refused: there is none.
        click.UsageError: there are several.
    """
    if given:
        return Path(given)
    try:
        found = sorted(path for path in RUN_DIRECTORY.iterdir() if path.is_socket())
    except OSError:
        found = []
    if len(found) > 1:
        listed = ", ".join(map(str, found))
        raise click.UsageError(f"several daemons run here; choose one with --socket: {listed}")
    if not found:
        raise Refused(f"no control socket in {RUN_DIRECTORY}: is drld running? (see also --socket)")
    return found[0]
