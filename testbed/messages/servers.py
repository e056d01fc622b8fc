"""Real brokers as processes: a mosquitto and a nats-server, with nothing kept on disk."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.errors import MeasurementError
from testbed.netns import within
from testbed.programs import environment, program

_PATIENCE_S = 60.0
MOSQUITTO = """
listener {port} {host}
allow_anonymous true
persistence false
user root
log_type error
log_type warning
log_type notice
# Nothing is lost at the broker.
max_queued_messages 0
max_inflight_messages 0
"""
"""Its configuration; what is appended to it may say otherwise."""


class Server:
    """One broker: started, killed, stopped for a while, restarted at the same address."""

    def __init__(
        self,
        name: str,
        arguments: list[str],
        directory: Path,
        address: tuple[str, int],
        namespace: str | None,
    ) -> None:
        """`address`: where it listens; `namespace`: where it runs (None: the caller's)."""
        self.host, self.port = address
        self.namespace = namespace
        self._name = name
        self._arguments = arguments
        self._log = directory / f"{name}-{self.port}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """The output of the broker."""
        return self._log.read_text(errors="replace")

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """Its process; it runs."""
        assert self._process is not None
        return self._process

    def start(self) -> None:
        """Start it, and wait until it accepts connections.

        Raises:
            MeasurementError: it does not.
        """
        inside = ("ip", "netns", "exec", self.namespace) if self.namespace else ()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*inside, program(self._name), *self._arguments],
                env=environment(self._name),
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + _PATIENCE_S
        while not self._accepts():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise MeasurementError(f"{self._name} does not listen: {self.log}")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.02)

    def _accepts(self) -> bool:
        def connect() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex((self.host, self.port)) == 0

        return within(self.namespace, connect) if self.namespace else connect()

    def stop(self) -> None:
        """Stop it, as an operator does: it keeps what it is to keep."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it, as a host that loses power does."""
        self._end(signal.SIGKILL)

    def _end(self, by: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(by)
            self._process.wait(_PATIENCE_S)
            self._process = None

    def freeze(self) -> None:
        """It says and reads nothing any more."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def thaw(self) -> None:
        """It goes on."""
        self.process.send_signal(signal.SIGCONT)


@contextmanager
def mosquitto(
    directory: Path,
    port: int,
    configuration: str = "",
    *,
    host: str = "127.0.0.1",
    namespace: str | None = None,
) -> Iterator[Server]:
    """A mosquitto at an address of IPv4, with these lines added to its configuration."""
    file = directory / f"mosquitto-{port}.conf"
    file.write_text(MOSQUITTO.format(port=port, host=host) + configuration)
    arguments = ["-c", str(file)]
    with _running(Server("mosquitto", arguments, directory, (host, port), namespace)) as server:
        yield server


@contextmanager
def nats_server(
    directory: Path,
    port: int,
    *options: str,
    host: str = "127.0.0.1",
    namespace: str | None = None,
) -> Iterator[Server]:
    """A nats-server at an address of IPv4, with these options."""
    arguments = ["--addr", host, "--port", str(port), *options]
    with _running(Server("nats-server", arguments, directory, (host, port), namespace)) as server:
        yield server


@contextmanager
def _running(server: Server) -> Iterator[Server]:
    server.start()
    try:
        yield server
    finally:
        server.kill()
