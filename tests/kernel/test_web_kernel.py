"""Web servers and clients in whole runs on a real kernel."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed import netns, topology
from testbed.errors import MeasurementError
from testbed.experiment_file import build
from testbed.harness.progress import Progress
from testbed.link import Links
from testbed.run import RunOptions, run_once
from tests.testbed_factories import document, web

MakeLinks = Callable[[], Links]

SLOW = {"rate": "2mbit", "burst": "20kB"}


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    assert netns.own() == []


async def run(
    make_links: MakeLinks, allocator: str, datapath: str, **changes: Any
) -> dict[str, Any]:
    small = build(document(seconds=3, **changes), "small.toml")
    options = RunOptions(datapath, make_links, once=True)
    with Path(os.devnull).open("w", encoding="ascii") as silence:
        return await run_once(small, allocator, 1, options, Progress(silence))


async def test_an_open_loop_sends_the_same_requests_under_any_limiter(
    make_links: MakeLinks,
) -> None:
    sites = [web(limiter=limiter, requests=50) for limiter in ("l1", "l2")]
    asked = {}
    for rate in ("2mbit", "50mbit"):
        limit = {"rate": rate, "burst": "20kB"}
        found = await run(make_links, "ctb", "tbf", limit=limit, flows=[], web=sites)
        # Each site's in the order of its own: two that start together may change places.
        asked[rate] = sorted(found["web"]["requests"], key=lambda row: row[0])
        assert sum(site["requests"] for site in found["web"]["sites"]) == len(asked[rate]) > 200
        assert set(found["share"]) == {"l1", "l2"}
        assert min(found["share"].values()) > 0
    slow, fast = asked.values()
    assert [row[:3:2] for row in slow] == [row[:3:2] for row in fast]
    # 100 requests/s of 3 kB are more than 2 Mbit/s, and far less than 50.
    assert sum(row[4] is None for row in fast) < sum(row[4] is None for row in slow)
    for _, start, size, received, end in fast:
        if end is not None:
            assert received == size
            assert end - start >= 0.04  # two round trips: SYN, request


async def test_a_closed_loop_moves_with_its_demand(make_links: MakeLinks) -> None:
    sites = [web(limiter=limiter, concurrent=2, rtt="10ms") for limiter in ("l1", "l2")]
    for site in sites:
        del site["requests"]
    found = await run(
        make_links, "fps", "auto", limit=SLOW, flows=[], web=sites,
        demand=[{"at": "1600ms", "web": ["w2"], "concurrent": 0}],
    )  # fmt: skip
    first, second = (site["goodput_series_bps"] for site in found["web"]["sites"])
    assert min(sum(first[:8]), sum(second[:8]), sum(first[8:])) > 0
    assert sum(second[9:]) == 0
    assert found["jain"] is None
    assert found["bulk_goodput_bps"] == 0
    assert 0 < found["web"]["goodput_bps"] < found["aggregate_bps"]
    # No client has two requests at a time.
    for time_s in (0.5, 1.0, 2.0):
        running = [row for row in found["web"]["requests"] if row[1] < time_s < (row[4] or 1e9)]
        assert sum(row[0] == 0 for row in running) <= 2


async def test_a_server_that_does_not_agree_on_sack_fails_the_run(
    make_links: MakeLinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(topology._SYSCTLS, "net/ipv4/tcp_sack", "0")
    with pytest.raises(MeasurementError, match="selective acknowledgements were not agreed on"):
        await run(make_links, "ctb", "tbf", flows=[], web=[web()])
