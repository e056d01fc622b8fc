"""A daemon in front of a real mosquitto: how it stops, starts again, and dies."""

from __future__ import annotations

import array
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from testbed.messages.servers import Server, mosquitto
from testbed.netns import within
from tests.brokers.raw_mqtt import connect, publish

from .daemon_host import DaemonHost
from .preloaded import ROOT
from .topology import DEADLINE_S, Topology, wait_for

PORT, SERVER = 18_831, 18_841
_PASSED_ON = """
import os, sys
os.dup2(int(sys.argv.pop(1)), 3)
os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))
from drld.daemon.command_line import main
raise SystemExit(main())
"""
"""The work of systemd between fork and exec."""


@pytest.fixture
def server(topology: Topology, tmp_path: Path) -> Iterator[Server]:
    with mosquitto(tmp_path, SERVER, namespace=topology.names["limiter"]) as running:
        yield running


class BrokerHost(DaemonHost):
    """A daemon in front of a broker, and a service manager that keeps its sockets."""

    def __init__(self, namespace: str, directory: Path) -> None:
        super().__init__(namespace, directory, "front")
        self.kept: list[int] = []

    def front(self, rate: str, burst: str) -> None:
        """Write the configuration."""
        self.config.write_text(
            f"""
            [limiter]
            name = "front"
            listen = "127.0.0.1:7946"
            control = "{self.socket}"
            [[broker]]
            name = "mqtt"
            protocol = "mqtt"
            listen = "127.0.0.1:{PORT}"
            server = "127.0.0.1:{SERVER}"
            [[limit]]
            id = 1
            name = "limited"
            unit = "messages"
            rate = "{rate}"
            burst = "{burst}"
            match = {{ broker = "mqtt", topic = "limited/#" }}
            """
        )

    def start_with(self, kept: int) -> None:
        """Start it as systemd does, with a listening socket."""
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *("ip", "netns", "exec", self.namespace, sys.executable, "-c", _PASSED_ON),
                    *(str(kept), "--config", str(self.config)),
                ],
                cwd=ROOT,
                env={**os.environ, "NOTIFY_SOCKET": str(self._notify_path)},
                stdout=log,
                stderr=log,
                pass_fds=[kept],
            )

    def wait_for_state(self, state: str) -> bool:
        """See `DaemonHost`; it keeps the sockets that it gets."""
        self._notify.settimeout(DEADLINE_S)
        while True:
            said, notes, _, _ = self._notify.recvmsg(4096, socket.CMSG_SPACE(64))
            for level, kind, data in notes:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    found = array.array("i")
                    found.frombytes(data)
                    self.kept += found
            self.states.append(said.decode())
            if state in said.decode().splitlines():
                return True


@pytest.fixture
def daemon(topology: Topology, tmp_path: Path) -> Iterator[BrokerHost]:
    host = BrokerHost(topology.names["limiter"], tmp_path)
    yield host
    host.close()
    for fd in host.kept:
        os.close(fd)


class Subscriber:
    """Hears all messages, straight at the broker."""

    def __init__(self, namespace: str) -> None:
        self.sock = dial(namespace, SERVER)
        self.sock.sendall(connect("subscriber") + b"\x82\x06\0\x01\0\x01#\x01")
        self.payloads: list[bytes] = []
        self._data = b""
        self._task = threading.Thread(target=self._hear, daemon=True)
        self._task.start()

    def _hear(self) -> None:
        while data := self.sock.recv(65_536):
            self._data += data
            while len(self._data) > 1 and len(self._data) >= 2 + self._data[1]:
                kind, body = self._data[0], self._data[2 : 2 + self._data[1]]
                self._data = self._data[2 + len(body) :]
                if kind >> 4 == 3:
                    at = 2 + int.from_bytes(body[:2], "big")
                    if kind & 6:
                        self.sock.sendall(b"\x40\x02" + body[at : at + 2])
                        at += 2
                    self.payloads.append(body[at:])

    def close(self) -> None:
        self.sock.shutdown(socket.SHUT_RDWR)
        self._task.join()
        self.sock.close()

    def wait(self, count: int) -> list[bytes]:
        """The payloads, once there are so many."""
        return wait_for(lambda: self.payloads, lambda got: len(got) >= count)


@pytest.fixture
def subscriber(server: Server, topology: Topology) -> Iterator[Subscriber]:
    """The subscriber at the broker itself; it ends with the test."""
    with closing(Subscriber(topology.names["limiter"])) as subscribed:
        yield subscribed


def dial(namespace: str, port: int) -> socket.socket:
    """A connection to an address of loopback."""
    sock = within(namespace, lambda: socket.create_connection(("127.0.0.1", port)))
    sock.settimeout(DEADLINE_S)
    return sock


def accepted(namespace: str, client_id: str) -> socket.socket:
    """A client that the broker has accepted, through drld."""
    sock = dial(namespace, PORT)
    sock.sendall(connect(client_id))
    assert sock.recv(4) == b"\x20\x02\0\0"
    return sock


def waiting(daemon: BrokerHost) -> int:
    """Frames' bytes that wait."""
    return int(daemon.get("/v1/status")["datapath"]["counters"]["broker_held_bytes"])


def test_messages_that_wait_at_a_stop_are_delivered(
    subscriber: Subscriber, daemon: BrokerHost, topology: Topology
) -> None:
    namespace = topology.names["limiter"]
    daemon.front("20/s", "1msg")
    daemon.start()
    with ExitStack() as stack:
        client = stack.enter_context(accepted(namespace, "one"))
        client.sendall(b"".join(publish("limited/a", b"%d" % n, 1, n + 1) for n in range(40)))
        wait_for(lambda: waiting(daemon), bool)
        assert daemon.stop() == 0
        assert subscriber.wait(40) == [b"%d" % n for n in range(40)]
        # Its client has all acknowledgements, and then the end.
        acknowledged = b""
        while data := client.recv(4096):
            acknowledged += data
        assert len(acknowledged) == 40 * 4


def test_a_stop_publishes_no_will_of_a_client_that_is_there(
    subscriber: Subscriber, daemon: BrokerHost, topology: Topology
) -> None:
    namespace = topology.names["limiter"]
    daemon.front("1000/s", "100msg")
    daemon.start()
    with ExitStack() as stack:
        with dial(namespace, PORT) as client:
            client.sendall(connect("one", will="will"))
            assert client.recv(4) == b"\x20\x02\0\0"
            daemon.signal(signal.SIGTERM)
            assert client.recv(4) == b""
        assert daemon.wait() == 0
        assert "handed back" not in daemon.log
        # The broker has seen the end of the client, and publishes in order.
        straight = stack.enter_context(dial(namespace, SERVER))
        straight.sendall(connect("marker") + publish("marker", b"marker"))
        assert subscriber.wait(1) == [b"marker"]


def test_a_new_daemon_takes_over_the_sockets_without_refusing_a_client(
    server: Server, daemon: BrokerHost, topology: Topology
) -> None:
    """Clients connect all the time: while it stops, while none runs, and while the next starts."""
    namespace = topology.names["limiter"]
    daemon.front("1000/s", "100msg")
    daemon.start()
    assert len(daemon.kept) == 1
    done, served, failures = threading.Event(), [0], list[str]()

    def clients() -> None:
        while not done.is_set():
            try:
                with dial(namespace, PORT) as sock:
                    sock.sendall(connect(f"client{served[0]}"))
                    answer = sock.recv(4)
                    # It may have come in the last moment of a daemon, and is ended in order then.
                    assert answer in (b"\x20\x02\0\0", b""), answer
                    served[0] += bool(answer)
            except OSError as error:
                failures.append(str(error))

    def more() -> None:
        """Return when further clients have been served."""
        least = served[0] + 20
        wait_for(lambda: served[0], lambda count: count > least)

    task = threading.Thread(target=clients)
    task.start()
    try:
        for end in (signal.SIGTERM, signal.SIGKILL):
            more()
            daemon.signal(end)
            daemon.wait()
            daemon.start_with(daemon.kept[0])
            assert daemon.wait_for_state("READY=1"), daemon.log
        more()
    finally:
        done.set()
        task.join()
    # A daemon that is killed resets its connections; none is refused.
    assert [it for it in failures if "refused" in it] == []
    assert len(failures) <= 2, failures
    assert len(daemon.kept) == 1, "what was passed is kept already"


def test_messages_acknowledged_before_a_kill_have_arrived(
    subscriber: Subscriber, daemon: BrokerHost, topology: Topology
) -> None:
    namespace = topology.names["limiter"]
    daemon.front("200/s", "10msg")
    daemon.start()
    with ExitStack() as stack:
        client = stack.enter_context(accepted(namespace, "one"))
        client.sendall(b"".join(publish("limited/a", b"%d" % n, 1, n + 1) for n in range(400)))
        acknowledged = b""
        while len(acknowledged) < 50 * 4:
            acknowledged += client.recv(4096)
        daemon.kill()
        with suppress(ConnectionResetError):
            while data := client.recv(4096):
                acknowledged += data
        count = len(acknowledged) // 4
        assert 50 <= count < 400
        assert subscriber.wait(count)[:count] == [b"%d" % n for n in range(count)]
