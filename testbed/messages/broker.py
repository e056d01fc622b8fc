"""A model of a broker: two servers, one queue, and a sub-bucket that messages must pass.

A burst is read at once: it takes a server for `WAKE_NS` and for `MESSAGE_NS` a message. With these,
6,000 publishers of 10 single messages a second saturate two servers, and batches of ten carry 100
thousand messages a second, as in the paper (2021, figure 4 and section VI-C). A message leaves when
it has been processed and has its token; the bucket is charged at its arrival (section V-B).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from drld.messages.hold import Hold
from drld.model import Enforcement
from testbed.messages.arrivals import Burst

ITEM = 1_000_000
"""Tokens of a message."""
SERVERS = 2
WAKE_NS = 14_500
MESSAGE_NS = 18_500


class Delays(NamedTuple):
    """Delays of the messages of one broker, ns, in the order of their arrival."""

    arrived: list[int]
    access: list[int]
    """The delays by the bucket alone."""
    total: list[int]
    """From the arrival until it leaves."""


def carry(bursts: Iterable[Burst], rate: int, depth: int) -> Delays:
    """What happens to these bursts at a broker with the sub-bucket `rate`, tokens/s, and `depth`,
    tokens."""
    hold: Hold[int] = Hold(Enforcement(fill_rate=rate, depth=depth), 0)
    free = [0] * SERVERS
    delays = Delays([], [], [])
    for at_ns, _, messages in bursts:
        server = min(range(SERVERS), key=free.__getitem__)
        begin_ns = max(free[server], at_ns) + WAKE_NS
        free[server] = begin_ns + messages * MESSAGE_NS
        for number in range(messages):
            delays.arrived.append(at_ns)
            delays.total.append(begin_ns + (number + 1) * MESSAGE_NS - at_ns)
            delays.access.append(0)
            hold.offer(len(delays.access) - 1, at_ns)
    while (due_ns := hold.due_ns) is not None:
        for index, waited_ns in hold.release(due_ns):
            delays.access[index] = waited_ns
            delays.total[index] = max(delays.total[index], waited_ns)
    return delays
