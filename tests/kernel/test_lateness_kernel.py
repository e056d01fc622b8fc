"""`python -m testbed.messages stamps`: it shows what it says, and nothing stays behind."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from testbed import netns
from testbed.attempts import ATTEMPTS
from testbed.harness.progress import Progress
from testbed.messages.lateness import HEADER, Stream, compare, rows

pytestmark = pytest.mark.realtime


async def measured(stream: Stream) -> tuple[dict[str, Any], dict[str, Any]]:
    """The stream with the filter and without stamps; again while the host makes messages older than
    they may be charged."""
    with Path(os.devnull).open("w", encoding="ascii") as silence:
        for _ in range(ATTEMPTS):
            result = await compare(stream, ("socket", "read"), 1, Progress(silence))
            stamped, read = result["runs"]
            if stamped["waited"] <= stamped["beyond"]:
                break
    assert [len(row) for row in rows(result)] == [len(HEADER)] * 2
    return stamped, read


async def test_conforming_messages_do_not_wait_because_the_daemon_was_stopped() -> None:
    stream = Stream(
        connections=100, messages=2000, rate=1000, burst=15, load=0.9, hogs=0, stops=True
    )
    stamped, read = await measured(stream)
    assert stamped["waited"] <= stamped["beyond"]
    assert read["waited"] > 0.01 * 2000
    for run in (stamped, read):
        assert run["arrived"] == run["sent"] == 2000
        assert run["stops"] == 1
    assert stamped["unstamped"] == read["stamped"] == 0
    assert stamped["stamped"] >= 2000
    assert read["unstamped"] >= 2000
    assert netns.own() == []
