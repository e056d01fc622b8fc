"""The processes of a run: started in their namespaces, watched, and ended.

No process survives the testbed: the kernel signals children when their parent dies (setpriv
--pdeathsig), and `dismiss` ends them by id, with SIGTERM first. The main thread starts them, as
that signal is tied to the starting thread.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from testbed.errors import HostError, MeasurementError

_ROOT = Path(__file__).resolve().parent.parent
_GRACE_S = 5.0
_REPLY_TIMEOUT_S = 15.0
_LOG_LINES = 12
_LAST_WORDS_S = 1.0
_MAX_LINE = 64 * 1024 * 1024


class Child:
    """One process; a testbed child also answers JSON lines (`testbed.child`)."""

    def __init__(self, name: str, command: list[str], log: Path) -> None:
        """Start the process; its standard error goes to `log`."""
        self.name = name
        self._log = log
        with log.open("wb") as stderr:
            try:
                process = subprocess.Popen(
                    ["setpriv", "--pdeathsig", "TERM", *command],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    cwd=_ROOT,
                    start_new_session=True,
                )
            except OSError as error:
                raise HostError(f"cannot start {name}: {error}") from error
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self.pid = process.pid
        self._stdin = trio.lowlevel.FdStream(os.dup(process.stdin.fileno()))
        self._stdout = trio.lowlevel.FdStream(os.dup(process.stdout.fileno()))
        process.stdin.close()
        process.stdout.close()
        self._killed = False
        self._unread = bytearray()
        self._reading = trio.Lock()

    async def send(self, message: object) -> None:
        """Write one JSON line to the process."""
        try:
            await self._stdin.send_all(json.dumps(message).encode() + b"\n")
        except trio.BrokenResourceError:
            raise await self.failure("does not listen") from None

    async def receive(self, timeout_s: float = _REPLY_TIMEOUT_S) -> dict[str, Any]:
        """Read one JSON line of the process.

        Raises:
            MeasurementError: the process reports an error, ends, or is silent for `timeout_s`.
        """
        with trio.move_on_after(timeout_s):
            line = await self._read_line()
            if line is None:
                raise await self.failure("ended early")
            message: dict[str, Any] = json.loads(line)
            if "error" in message:
                raise MeasurementError(f"{self.name}: {message['error']}")
            return message
        raise await self.failure(f"said nothing for {timeout_s:g} s")

    async def _read_line(self) -> bytes | None:
        async with self._reading:
            while (end := self._unread.find(b"\n")) < 0:
                received = await self._stdout.receive_some(1 << 20)
                if not received or len(self._unread) > _MAX_LINE:
                    return None
                self._unread += received
            line = bytes(self._unread[:end])
            del self._unread[: end + 1]
            return line

    async def failure(self, what: str) -> MeasurementError:
        """An error that quotes the process's last line on the pipe, or the end of its log."""
        await self._ended(_LAST_WORDS_S)
        state = self.process.poll()
        with trio.move_on_after(_LAST_WORDS_S):
            while (line := await self._read_line()) is not None:
                if b'"error"' in line:
                    return MeasurementError(f"{self.name}: {json.loads(line)['error']}")
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        ending = "" if state is None else f" (exit status {state})"
        quoted = "".join(f"\n    {line}" for line in lines[-_LOG_LINES:])
        return MeasurementError(f"{self.name} {what}{ending}{quoted}")

    async def _ended(self, timeout_s: float) -> bool:
        """Wait for the end of the process; False if it still runs after `timeout_s`."""
        if self.process.poll() is not None:
            return True
        descriptor = os.pidfd_open(self.pid)
        try:
            with trio.move_on_after(timeout_s):
                await trio.lowlevel.wait_readable(descriptor)
        finally:
            os.close(descriptor)
        return self.process.poll() is not None

    async def watch(self) -> None:
        """Wait until cancelled, or until `kill`.

        Raises:
            MeasurementError: the process ended in any other way.
        """
        await self._ended(float("inf"))
        if not self._killed:
            raise await self.failure("ended in the middle of the run")

    def kill(self) -> None:
        """End the process at once, as planned."""
        self._killed = True
        self.process.kill()

    def terminate(self) -> None:
        """Ask the process to end."""
        if self.process.poll() is None:
            self.process.terminate()

    async def reap(self, grace_s: float) -> None:
        """Wait for the end of the process; kill it after `grace_s`."""
        if not await self._ended(grace_s):
            self.process.kill()
            await self._ended(_GRACE_S)
        with contextlib.suppress(trio.BrokenResourceError):
            await self._stdin.aclose()
        await self._stdout.aclose()


class Crew:
    """All processes of one run."""

    def __init__(self, logs: Path) -> None:
        """`logs`: an existing directory for their standard errors."""
        self.children: list[Child] = []
        self._logs = logs

    def start(self, name: str, namespace: str, command: list[str]) -> Child:
        """Start a program in a namespace."""
        log = self._logs / f"{name}.log"
        child = Child(name, ["ip", "netns", "exec", namespace, *command], log)
        self.children.append(child)
        return child

    async def start_module(
        self, name: str, namespace: str, module: str, job: object, *arguments: str
    ) -> Child:
        """Start one of the testbed's own programs and hand it its job."""
        command = [sys.executable, "-m", f"testbed.{module}", *arguments]
        child = self.start(name, namespace, command)
        await child.send(job)
        return child

    async def dismiss(self, some: Iterable[Child] | None = None) -> None:
        """End these processes, or all of them, those started last first."""
        leaving = list(self.children if some is None else some)
        with trio.CancelScope(shield=True):
            for child in reversed(leaving):
                child.terminate()
            deadline = trio.current_time() + _GRACE_S
            for child in reversed(leaving):
                await child.reap(max(deadline - trio.current_time(), 0.0))
                self.children.remove(child)


@asynccontextmanager
async def crew(logs: Path) -> AsyncIterator[Crew]:
    """A crew whose processes are ended on exit, also after errors."""
    members = Crew(logs)
    try:
        yield members
    finally:
        await members.dismiss()


@asynccontextmanager
async def worker(
    name: str, module: str, job: object, log: Path, grace_s: float
) -> AsyncIterator[Child]:
    """A program of the testbed that has its job; it is asked to end, and killed after `grace_s`.

    Raises:
        MeasurementError: it does not take its job.
    """
    child = Child(name, [sys.executable, "-m", module], log)
    try:
        await child.send(job)
        yield child
    finally:
        child.terminate()
        with trio.CancelScope(shield=True):
            await child.reap(grace_s)
