"""Arrival times from the socket filter: every way in which bytes reach a connection."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from drld.ebpf.bpf import Program
from drld.messages.front import stamps as filtered
from drld.messages.front.arrival import SOURCES, stamps
from drld.messages.front.coarse_stamps import KERNEL, READ
from drld.messages.front.stamps import SocketStamps

from .stamped_stream import (
    MESSAGE,
    SERVERS,
    acknowledged,
    arrivals,
    check,
    client,
    listening,
    received,
    send_apart,
)
from .topology import Topology, wait_for

TCP_FASTOPEN = 23
FIRST_WINDOW = 10
"""Segments that TCP sends at once (RFC 6928)."""
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def source() -> Iterator[SocketStamps]:
    made = SocketStamps()
    yield made
    made.stop()


@pytest.fixture
def opened() -> Iterator[contextlib.ExitStack]:
    """Closes the sockets of a test."""
    with contextlib.ExitStack() as stack:
        yield stack


@contextlib.contextmanager
def sysctls(topology: Topology, role: str, values: Mapping[str, int]) -> Iterator[None]:
    """Settings of a namespace under net/ipv4, while entered."""

    def put(wanted: Mapping[str, int]) -> dict[str, int]:
        paths = {name: Path("/proc/sys/net/ipv4") / name for name in wanted}
        before = {name: int(path.read_text()) for name, path in paths.items()}
        for name, path in paths.items():
            path.write_text(str(wanted[name]))
        return before

    before = topology.within(role, lambda: put(values))
    try:
        yield
    finally:
        topology.within(role, lambda: put(before))


@pytest.mark.parametrize("server", SERVERS.values(), ids=SERVERS)
def test_messages_that_waited_have_their_own_times(
    topology: Topology, source: SocketStamps, opened: contextlib.ExitStack, server: str
) -> None:
    """Before the connection is accepted, after that, and during the turn that reads them."""
    listener = opened.enter_context(listening(topology, source, server))
    sender = opened.enter_context(client(topology, server))
    sender.connect(listener.getsockname()[:2])
    sent = send_apart(sender, 5)
    connection = opened.enter_context(listener.accept()[0])
    segments = source.of(connection)
    sent += send_apart(sender, 5)
    source.drain()
    sent += send_apart(sender, 5)
    read_ns = time.monotonic_ns()
    received(source, connection, segments, 15 * MESSAGE)
    check(sent, arrivals(segments, 15, read_ns), read_ns)
    assert (source.tally.stamped, source.tally.unstamped, source.lost) == (15, 0, 0)
    assert len(segments) == 0
    source.close(connection)


@pytest.mark.parametrize("server", [*SERVERS.values(), "::"], ids=[*SERVERS, "both"])
@pytest.mark.parametrize("case", ["last acknowledgement", "fast open", "cookies"])
def test_data_before_the_connection_is_accepted_has_its_time(
    topology: Topology,
    source: SocketStamps,
    opened: contextlib.ExitStack,
    server: str,
    case: str,
) -> None:
    """The data comes while the kernel knows only the listening socket."""
    # Fast Open without cookies of its own: of clients, of servers.
    opened.enter_context(sysctls(topology, "source", {"tcp_fastopen": 0x1 | 0x4}))
    opened.enter_context(sysctls(topology, "sink", {"tcp_fastopen": 0x2 | 0x200}))
    if case == "cookies":
        opened.enter_context(sysctls(topology, "sink", {"tcp_syncookies": 2}))
    listener = opened.enter_context(listening(topology, source, server))
    address = (SERVERS["IPv4"] if server == "::" else server, listener.getsockname()[1])
    sender = opened.enter_context(client(topology, address[0]))
    before_ns = time.monotonic_ns()
    if case == "fast open":
        listener.setsockopt(socket.IPPROTO_TCP, TCP_FASTOPEN, 5)
        sender.sendto(bytes(MESSAGE), socket.MSG_FASTOPEN, address)
    else:
        # The last acknowledgement waits for data.
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 1)
        sender.connect(address)
        sender.send(bytes(MESSAGE))
    acknowledged(sender)
    sent = [(before_ns, time.monotonic_ns())]
    connection = opened.enter_context(listener.accept()[0])
    segments = source.of(connection)
    assert len(segments) == 1
    sent += send_apart(sender, 2)
    read_ns = time.monotonic_ns()
    received(source, connection, segments, 3 * MESSAGE)
    check(sent, arrivals(segments, 3, read_ns), read_ns)
    assert (source.tally.stamped, source.tally.unstamped) == (3, 0)


def test_a_full_ring_charges_messages_when_they_are_read(
    topology: Topology, opened: contextlib.ExitStack
) -> None:
    source = SocketStamps(ring_bytes=4096)
    opened.callback(source.stop)
    room = 4096 // 32 - 1
    listener = opened.enter_context(listening(topology, source, SERVERS["IPv4"]))
    sender = opened.enter_context(client(topology, SERVERS["IPv4"]))
    sender.connect(listener.getsockname())
    connection = opened.enter_context(listener.accept()[0])
    segments = source.of(connection)
    count = room + 20
    sent = send_apart(sender, count, FIRST_WINDOW)
    assert source.lost >= 20
    received(source, connection, segments, count * MESSAGE)
    read_ns = time.monotonic_ns()
    times = arrivals(segments, count, read_ns)
    stamped = source.tally.stamped  # fewer than there is room for if TCP has repeated some
    assert 0 < stamped <= room
    check(sent[:stamped], times[:stamped], read_ns)
    assert times[stamped:] == [read_ns] * (count - stamped)
    assert source.tally.unstamped == count - stamped
    sent = send_apart(sender, 3)
    received(source, connection, segments, 3 * MESSAGE)
    read_ns = time.monotonic_ns()
    check(sent, arrivals(segments, 3, read_ns, count), read_ns)
    assert (source.tally.stamped, source.tally.unstamped) == (stamped + 3, count - stamped)


def test_large_segments_of_loopback_have_their_times(
    source: SocketStamps, opened: contextlib.ExitStack, topology: Topology
) -> None:
    """The segments come in one piece of up to 64 KiB, and without checksums."""
    size = 1 << 20
    listener = opened.enter_context(listening(topology, source, "127.0.0.1"))
    sender = topology.within("sink", socket.socket)
    opened.enter_context(sender).connect(listener.getsockname())
    connection = opened.enter_context(listener.accept()[0])
    segments = source.of(connection)
    sender.setblocking(False)
    sent = read = 0
    times = []
    began_ns = time.monotonic_ns()
    while read < size:
        with contextlib.suppress(BlockingIOError):
            sent += sender.send(bytes(size - sent))
        read_ns = time.monotonic_ns()
        read += source.receive(connection, segments, bytearray(size))
        times.append(segments.arrival(read, read_ns))
    assert times == sorted(times)
    assert began_ns <= times[0] <= times[-1] <= time.monotonic_ns()
    assert source.tally.unstamped == 0
    assert len(segments) == 0


def test_urgent_bytes_stay_in_the_stream(
    topology: Topology, source: SocketStamps, opened: contextlib.ExitStack
) -> None:
    listener = opened.enter_context(listening(topology, source, SERVERS["IPv4"]))
    sender = opened.enter_context(client(topology, SERVERS["IPv4"]))
    sender.connect(listener.getsockname())
    connection = opened.enter_context(listener.accept()[0])
    segments = source.of(connection)
    sender.send(b"a" * (MESSAGE - 1))
    sender.send(b"!", socket.MSG_OOB)
    sent = send_apart(sender, 1)
    read_ns = time.monotonic_ns()
    assert received(source, connection, segments, 2 * MESSAGE) == b"a" * 9 + b"!" + b"\1" * MESSAGE
    check(sent, arrivals(segments, 2, read_ns)[1:], read_ns)
    assert source.tally.unstamped == 0


def test_a_connection_reset_before_it_is_accepted_is_survived(
    topology: Topology, source: SocketStamps, opened: contextlib.ExitStack
) -> None:
    listener = opened.enter_context(listening(topology, source, SERVERS["IPv4"]))
    sender = client(topology, SERVERS["IPv4"])
    sender.connect(listener.getsockname())
    send_apart(sender, 1)
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("=ii", 1, 0))
    sender.close()
    connection = opened.enter_context(listener.accept()[0])
    segments = source.of(connection)
    assert segments.arrival(MESSAGE, 7) == 7
    source.close(connection)


def test_connections_that_no_process_accepts_are_forgotten(
    topology: Topology,
    source: SocketStamps,
    opened: contextlib.ExitStack,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The connection that waits for the longest time loses its times first."""
    monkeypatch.setattr(filtered, "_MOST_EARLY", 4)
    monkeypatch.setattr(filtered, "_MOST_OPENINGS", 2)
    listener = opened.enter_context(listening(topology, source, SERVERS["IPv4"]))
    for _ in range(3):
        sender = opened.enter_context(client(topology, SERVERS["IPv4"]))
        sender.connect(listener.getsockname())
        send_apart(sender, 2)
    kept = []
    for _ in range(3):
        connection = opened.enter_context(listener.accept()[0])
        kept.append(len(source.of(connection)))
    assert kept == [0, 2, 2]


def test_a_socket_that_is_given_back_has_no_filter(
    topology: Topology, source: SocketStamps, opened: contextlib.ExitStack
) -> None:
    listener = opened.enter_context(listening(topology, source, SERVERS["IPv4"]))
    source.unwatch(listener)
    sender = opened.enter_context(client(topology, SERVERS["IPv4"]))
    sender.connect(listener.getsockname())
    send_apart(sender, 1)
    connection = opened.enter_context(listener.accept()[0])
    assert len(source.of(connection)) == 0


@pytest.mark.parametrize("server", SERVERS.values(), ids=SERVERS)
def test_the_kernels_stamps_are_those_of_the_last_segment(
    topology: Topology, opened: contextlib.ExitStack, server: str
) -> None:
    source = stamps(KERNEL)
    opened.callback(source.stop)
    listener = opened.enter_context(listening(topology, source, server))
    sender = opened.enter_context(client(topology, server))
    sender.connect(listener.getsockname()[:2])
    connection = opened.enter_context(listener.accept()[0])
    segments = source.of(connection)
    read = 0

    def stamped() -> int:
        """The kernel begins to stamp a moment after the first socket has asked for it."""
        nonlocal read
        send_apart(sender, 1)
        source.drain()
        received(source, connection, segments, MESSAGE)
        read += 1
        arrivals(segments, 1, time.monotonic_ns(), read - 1)
        return source.tally.stamped

    assert wait_for(stamped, bool)
    sent = send_apart(sender, 4)
    source.drain()
    received(source, connection, segments, 4 * MESSAGE)
    read_ns = time.monotonic_ns()
    times = arrivals(segments, 4, read_ns, read)
    assert len(set(times)) == 1
    check(sent[-1:], times[-1:], read_ns)


def test_without_stamps_messages_count_when_they_are_read() -> None:
    source = stamps(READ)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        source.watch(listener)
        with socket.create_connection(listener.getsockname()) as sender:
            connection, _ = listener.accept()
            with connection:
                segments = source.of(connection)
                sender.send(bytes(MESSAGE))
                source.drain()
                received(source, connection, segments, MESSAGE)
                assert arrivals(segments, 1, 77) == [77]
    assert (source.source, source.tally.unstamped, source.lost) == (READ, 1, 0)


CHILD = """
import json, socket, sys, time
from drld.messages.front.arrival import stamps
from drld.errors import DatapathError
try:
    source = stamps(sys.argv[1])
except DatapathError as error:
    print(json.dumps({"error": str(error)}), flush=True)
    sys.exit()
listener = socket.create_server(("127.0.0.1", 0))
source.watch(listener)
sender = socket.create_connection(listener.getsockname())
sender.send(b"x")
connection, _ = listener.accept()
segments = source.of(connection)
source.receive(connection, segments, bytearray(1))
segments.arrival(1, time.monotonic_ns())
print(json.dumps({
    "source": source.source, "reason": source.reason, "stamped": source.tally.stamped,
    "program": source._program.identity() if source.source == "socket" else None,
}), flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def child(capabilities: str, wanted: str) -> Iterator[dict[str, object]]:
    """The report of a process with these capabilities; it is killed at the end."""
    limits = ["--bounding-set", capabilities, "--inh-caps", capabilities]
    command = ["setpriv", *limits, sys.executable, "-c", CHILD, wanted]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.kill()


def test_one_capability_is_enough_and_nothing_stays_of_a_killed_process(
    source: SocketStamps,  # it has compiled the filter
) -> None:
    with child("-all,+bpf", "auto") as said:
        assert (said["source"], said["stamped"]) == ("socket", 1)
        program = said["program"]
        assert isinstance(program, int)
        Program.from_id(program).close()

    def there() -> bool:
        with contextlib.suppress(FileNotFoundError):
            Program.from_id(program).close()
            return True
        return False

    assert not wait_for(there, lambda found: not found)


def test_without_the_capability_the_kernels_stamps_serve_and_the_log_has_the_reason(
    source: SocketStamps,
) -> None:
    with child("-all", "auto") as said:
        assert said["source"] == KERNEL
        assert "(no socket timestamps: the kernel refuses the BPF map" in str(said["reason"])
    with child("-all", "socket") as said:
        assert "the kernel refuses the BPF map" in str(said["error"])


def test_the_sources_are_tried_in_their_order() -> None:
    assert SOURCES == ("auto", "socket", KERNEL, READ)
    chosen = stamps("auto")
    chosen.stop()
    assert chosen.source == "socket"
