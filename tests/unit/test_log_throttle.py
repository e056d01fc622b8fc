"""Complaints that would be one a packet."""

from __future__ import annotations

import logging

import pytest
import trio

from drld.daemon.log_throttle import PERIOD_S, ThrottledLog

log = logging.getLogger("drld.test")


async def test_one_line_a_period_with_the_number_of_all(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    throttled = ThrottledLog(log)
    for _ in range(2):
        for number in range(1000):
            throttled.warn(f"full {number}")
        await trio.sleep(PERIOD_S)
    throttled.warn("full")
    await trio.sleep(PERIOD_S)
    throttled.warn("full")
    assert [entry.getMessage() for entry in caplog.records] == [
        "full 0",
        "full 0 (and 999 times before)",
        "full (and 999 times before)",
        "full",
    ]
