"""What the service manager is told, over a socket of the test's."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from drld.model import NS_PER_S
from drld.notify import Watchdog, notify


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
    notify("READY=1")
    assert told(manager) == ["READY=1"]


def test_a_manager_that_is_gone_is_nothing_to_die_of(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/nonexistent/notify")
    notify("READY=1")
    monkeypatch.delenv("NOTIFY_SOCKET")
    notify("READY=1")
    assert told(manager) == []


def test_a_watchdog_is_told_four_times_in_its_time(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "20000000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    watchdog = Watchdog()
    for tenth in range(100):
        watchdog.alive(NS_PER_S + tenth * NS_PER_S // 10)
    assert told(manager) == ["WATCHDOG=1", "WATCHDOG=1"]


@pytest.mark.parametrize(("period", "pid"), [(None, None), ("20000000", "1"), ("soon", None)])
def test_without_a_watchdog_nothing_is_told(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch, period: str | None, pid: str | None
) -> None:
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    if period is not None:
        monkeypatch.setenv("WATCHDOG_USEC", period)
    if pid is not None:
        monkeypatch.setenv("WATCHDOG_PID", pid)
    Watchdog().alive(NS_PER_S)
    assert told(manager) == []
