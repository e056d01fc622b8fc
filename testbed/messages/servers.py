"""Real brokers as processes: a mosquitto and a nats-server, with nothing kept on disk."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from testbed.programs import environment, program
from testbed.server_process import ServerProcess

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


class Server(ServerProcess):
    """One broker."""

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
        super().__init__(
            name,
            [program(name), *arguments],
            directory / f"{name}-{self.port}.log",
            namespace=namespace,
            environment=environment(name),
        )

    def start(self) -> None:
        """Start it, and wait until it accepts connections.

        Raises:
            MeasurementError: it does not.
        """
        self.launch()
        connect = partial(socket.create_connection, (self.host, self.port))
        self.ready(partial(self.within, connect)).close()


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
