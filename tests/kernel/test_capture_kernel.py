"""Times of the socket filter beside those of a packet capture of the same stream."""

from __future__ import annotations

import statistics

import pytest

from testbed import netns
from testbed.attempts import undisturbed
from testbed.messages.capture import Stream, compare
from testbed.messages.comparison import SEQUENCES, arrivals

pytestmark = pytest.mark.kernel

CLOSE_NS = 100_000
CLOCKS_NS = 1_000
"""Error of the offset between the two clocks."""


@pytest.mark.parametrize("ipv6", [False, True], ids=["IPv4", "IPv6"])
async def test_a_stream_with_losses_has_the_times_of_its_capture(ipv6: bool) -> None:
    """Segments and bytes are the same. A segment's time is that of the capture or soon after: both
    are taken in one turn of the kernel, which no other process interrupts."""
    stream = Stream(2000, ipv6, lost=0.05, held_up=0.05)
    found = await undisturbed(lambda: compare(stream))
    assert found.same_segments()
    assert found.out_of_order() > 0
    assert found.first + found.messages[-1].end > SEQUENCES
    assert (len(found.messages), found.unstamped, found.missed) == (2000, 0, 0)
    times = [message.arrived_ns for message in found.messages]
    assert times == arrivals(found.recorded, found.first, found.messages)
    differences = found.differences()
    assert min(differences) >= -CLOCKS_NS
    assert statistics.median(differences) <= CLOSE_NS
    assert netns.own() == []
