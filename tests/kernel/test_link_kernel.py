"""Emulated links on a real kernel: delay, loss, rate, and honesty about failure."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio

from testbed import netns
from testbed.errors import MeasurementError
from testbed.link import DelayLineLinks, Links
from testbed.linkcheck import LINK, Check, Line, check, line

from .topology import DEADLINE_S

MakeLinks = Callable[[], Links]

DELAY_NS = 5_000_000


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    assert netns.own() == []
    assert not netns.state_directory().exists()


@pytest.fixture
def workspace() -> Iterator[Path]:
    with netns.workspace() as directory:
        yield directory


async def checked(make_links: MakeLinks, packets_per_s: int, loss: float = 0.0) -> Check:
    with netns.workspace():
        return await check(make_links(), packets_per_s, 1.0, DELAY_NS, loss)


async def test_packets_arrive_and_never_early(make_links: MakeLinks) -> None:
    found = await checked(make_links, 500)
    assert found.received == found.sent == 500
    # Arrival times are cut off to a microsecond, and the two clocks may be slewed.
    assert found.least_ms > DELAY_NS / 1e6 - 0.05


async def test_a_delay_line_accounts_for_its_packets() -> None:
    found = await checked(DelayLineLinks, 500)
    assert found.report is not None
    assert found.report.packets == 500
    assert found.report.lost == found.report.overflow == 0
    assert found.report.stamped_share == 1


async def test_as_many_packets_are_lost_as_the_seed_says() -> None:
    found = await checked(DelayLineLinks, 1000, loss=0.2)
    rng = Random(0)
    lost = sum(rng.random() < 0.2 for _ in range(1000))
    assert found.sent == 1000
    assert found.report is not None
    assert found.report.lost == lost
    assert found.received == 1000 - lost


def send_packets(wired: Line, count: int) -> None:
    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stream:
            for _ in range(count):
                stream.sendto(bytes(100), (wired.address, 9))

    netns.within(wired.source, send)


async def test_a_delay_line_that_was_stopped_reports_a_problem(workspace: Path) -> None:
    links = DelayLineLinks()
    async with line(links, DELAY_NS) as wired:
        (delay_line,) = wired.crew.children
        os.kill(delay_line.pid, signal.SIGSTOP)
        try:
            send_packets(wired, 20)
            # Not a wait for something to happen: this is how late the packets will be.
            overdue_ns = time.monotonic_ns() + DELAY_NS + 100_000_000
            while time.monotonic_ns() < overdue_ns:
                await trio.sleep(0.01)
        finally:
            os.kill(delay_line.pid, signal.SIGCONT)
        report = await links.stop()
        assert report is not None
        assert "could not keep up: 100.0%" in str(report.problem())


async def test_a_delay_line_that_dies_is_reported(workspace: Path) -> None:
    links = DelayLineLinks()
    with trio.fail_after(DEADLINE_S):
        async with line(links, DELAY_NS) as wired:
            (delay_line,) = wired.crew.children
            delay_line.process.kill()
            with pytest.raises(MeasurementError, match="delay line ended in the middle"):
                await delay_line.watch()


async def test_rates_come_and_go(workspace: Path, make_links: MakeLinks) -> None:
    def qdiscs() -> list[dict[str, Any]]:
        shown = netns.run(
            ["tc", "-j", "-netns", netns.namespace("wan"), "qdisc", "show", "dev", LINK]
        )
        return [qdisc for qdisc in json.loads(shown) if qdisc["kind"] == "tbf"]

    links = make_links()
    async with line(links, DELAY_NS):
        assert qdiscs() == []
        for rate in (250_000, 500_000):
            links.set_rate(LINK, rate, None)
            (tbf,) = qdiscs()
            assert tbf["options"]["rate"] == rate
        links.set_rate(LINK, None, None)
        assert qdiscs() == []
        links.set_rate(LINK, None, None)
