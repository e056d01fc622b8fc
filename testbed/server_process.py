"""Programs that answer others, such as daemons and brokers: started, awaited, stopped, restarted.

`testbed.crew` has the processes of a run, which are watched and exchange lines with the testbed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import httpx

from testbed.errors import MeasurementError
from testbed.netns import within

T = TypeVar("T")

PATIENCE_S = 120.0
"""Longest wait for a start or an end: a host with more daemons than processors is slow."""
UNTIL_PARENT_ENDS = ("setpriv", "--pdeathsig", "TERM", "--")
"""A prefix of a command: the kernel ends the command with the thread that started it."""
_LOOK_S = 0.02
_LOG_END = 2000


class ServerProcess:
    """One program, with a log, which the same object may start again after its end."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        namespace: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare the program.

        Args:
            name: the program's name in errors.
            command: starts it.
            log: the file to which its output is appended.
            namespace: where it runs; None: in the caller's namespace.
            environment: its environment variables; None: those of this process.
        """
        self.name = name
        self.namespace = namespace
        inside = ("ip", "netns", "exec", namespace) if namespace else ()
        self.command = [*inside, *command]
        """The command that `launch` executes."""
        self._environment = environment
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """The output of the program, over all its starts."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    @property
    def runs(self) -> bool:
        """Whether the program was started, and was not stopped since."""
        return self._process is not None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process of the program, which was started."""
        assert self._process is not None, f"{self.name} is not started"
        return self._process

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self.process.pid

    def launch(self) -> None:
        """Start the program, and do not wait until it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command, env=self._environment, stdout=log, stderr=log
            )

    def ready(self, look: Callable[[], T | None]) -> T:
        """Wait until `look` returns something without an error of a connection; return that.

        Raises:
            MeasurementError: the program ended, or did not answer in time.
        """
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, httpx.TransportError):
                if (found := look()) is not None:
                    return found
            self.check()
            time.sleep(_LOOK_S)
        raise self._failure("does not answer")

    def within(self, function: Callable[[], T]) -> T:
        """The result of a function, called in the program's namespace."""
        return within(self.namespace, function) if self.namespace else function()

    def check(self) -> None:
        """Raise a MeasurementError if the program has ended by itself."""
        if (status := self.process.poll()) is not None:
            raise self._failure(f"ended with status {status}")

    def _failure(self, what: str) -> MeasurementError:
        return MeasurementError(f"{self.name} {what}: {self.log[-_LOG_END:]}")

    @contextmanager
    def serving(self, look: Callable[[], T | None]) -> Iterator[T]:
        """Start the program, and yield what `ready` returns; in the end stop the program."""
        self.launch()
        try:
            yield self.ready(look)
        finally:
            self.stop()

    def stop(self) -> None:
        """Ask the program to end, as an operator does, and kill it if it does not."""
        if self._process is not None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(PATIENCE_S)
        self.kill()

    def kill(self) -> None:
        """Kill the program, as a host does that loses power."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Stop the process: it reads and says nothing, and its connections stay."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def thaw(self) -> None:
        """Let a stopped process continue."""
        self.process.send_signal(signal.SIGCONT)
