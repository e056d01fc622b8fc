"""Messages to the service manager, which the test plays with a socket of its own."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from drld.daemon.notify import Manager
from drld.model import NS_PER_S


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(path)
        sock.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        monkeypatch.delenv("WATCHDOG_PID", raising=False)
        yield sock


def told(manager: socket.socket) -> list[str]:
    messages = []
    while True:
        try:
            messages.append(manager.recv(4096).decode())
        except BlockingIOError:
            return messages


def test_a_state_is_one_datagram(manager: socket.socket) -> None:
    Manager().tell_ready()
    assert told(manager) == ["READY=1"]


def test_a_missing_service_manager_is_survived(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/nonexistent/notify")
    Manager().tell_ready()
    monkeypatch.delenv("NOTIFY_SOCKET")
    Manager().tell_ready()
    assert told(manager) == []


def test_a_service_manager_that_reads_nothing_delays_nothing(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Policing must not stop when the service manager does: its queue is a few messages long."""
    monkeypatch.setenv("WATCHDOG_USEC", "4")
    queue = int(Path("/proc/sys/net/unix/max_dgram_qlen").read_text())
    said = Manager()

    def speak() -> None:
        for tick in range(2 * queue + 10):
            said.alive(1000 * tick)
        said.tell_ready()

    thread = threading.Thread(target=speak, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    taken = told(manager)
    assert set(taken) == {"WATCHDOG=1"}
    # What it is to know it hears as soon as it listens again, once.
    said.alive(0)
    assert told(manager) == ["WATCHDOG=1", "READY=1"]


def test_a_watchdog_hears_four_times_in_its_period(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "20000000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    watchdog = Manager()
    for tenth in range(100):
        watchdog.alive(NS_PER_S + tenth * NS_PER_S // 10)
    assert told(manager) == ["WATCHDOG=1", "WATCHDOG=1"]


@pytest.mark.parametrize(("period", "pid"), [(None, None), ("20000000", "1"), ("soon", None)])
def test_without_a_watchdog_nothing_is_sent(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch, period: str | None, pid: str | None
) -> None:
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    if period is not None:
        monkeypatch.setenv("WATCHDOG_USEC", period)
    if pid is not None:
        monkeypatch.setenv("WATCHDOG_PID", pid)
    Manager().alive(NS_PER_S)
    assert told(manager) == []


def test_a_socket_is_kept_under_its_name(manager: socket.socket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert Manager.keep("127.0.0.1_1883", listener)
        said, notes, _, _ = manager.recvmsg(4096, socket.CMSG_SPACE(4))
        assert said == b"FDSTORE=1\nFDNAME=127.0.0.1_1883"
        ((level, kind, data),) = notes
        assert (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
        with socket.socket(fileno=int.from_bytes(data, sys.byteorder)) as kept:
            assert kept.getsockname() == listener.getsockname()


def test_without_a_manager_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert not Manager.keep("name", listener)


def test_sockets_of_another_process_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that a parent has not removed name descriptors that are something else here."""
    monkeypatch.setenv("LISTEN_FDS", "1")
    monkeypatch.setenv("LISTEN_PID", str(os.getpid() + 1))
    assert Manager.inherited() == []
    assert "LISTEN_FDS" not in os.environ
