"""Times of the socket filter beside those of a packet capture, or of a trace of the kernel.

Some kernels refuse the trace; `scripts/test-vm` runs this file on one that does not.
"""

from __future__ import annotations

import statistics

import pytest

from drld.errors import DatapathError
from testbed import netns
from testbed.attempts import undisturbed
from testbed.messages.capture import Stream, compare
from testbed.messages.comparison import charged
from testbed.messages.tcp_segments import SEQUENCES
from testbed.messages.tracer import Tracer

CLOSE_NS = 100_000
CLOCKS_NS = 1_000
"""Error of the offset between the two clocks of filter and capture; the trace has the filter's."""
ORACLE = {False: "capture", True: "trace"}


def can_trace() -> bool:
    try:
        Tracer(4, 100).close()
    except DatapathError:
        return False
    return True


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Compare with every oracle that this kernel allows."""
    metafunc.parametrize("traced", [False, True] if can_trace() else [False], ids=ORACLE.get)


@pytest.mark.parametrize("ipv6", [False, True], ids=["IPv4", "IPv6"])
async def test_a_stream_with_losses_has_the_times_of_its_oracle(ipv6: bool, traced: bool) -> None:
    """Segments and bytes are the same. A segment's time is that of the oracle or soon after: both
    are taken in one turn of the kernel, which no other process interrupts."""
    stream = Stream(2000, ipv6, lost=0.05, held_up=0.05, traced=traced)
    found = await undisturbed(lambda: compare(stream))
    assert found.same_segments()
    assert found.out_of_order() > 0
    assert found.first + found.messages[-1].end > SEQUENCES
    assert (len(found.messages), found.unstamped, found.missed) == (2000, 0, 0)
    times = [message.arrived_ns for message in found.messages]
    assert times == charged(found.recorded, found.first, found.messages)
    differences = found.differences()
    assert min(differences) >= (0 if traced else -CLOCKS_NS)
    assert statistics.median(differences) <= CLOSE_NS
    assert netns.own() == []
