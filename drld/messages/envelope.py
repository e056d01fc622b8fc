"""The envelope of a topic: the smallest token bucket under which its messages hardly ever wait.

Profiling (SRTM 2021, section VI): of a recorded trace, `rate` is 1.1 times the message rate, and
`burst` the smallest whole bucket under which the 99th percentile of the access delay is zero. No
search is needed: a message does not wait if and only if the unfinished work that it finds, and
itself, fit the bucket (2019, eq. (2)). So the bucket is an order statistic of the work plus one.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from drld.model import NS_PER_S

MARGIN = Fraction(11, 10)
"""The factor of the rate over the mean rate of the trace: the paper's."""
QUANTILE = Fraction(99, 100)
"""The part of the messages that must not wait: the paper's."""


class Envelope(NamedTuple):
    """A topic's limit, in messages."""

    rate: Fraction
    """Rate of the limit, messages/s."""
    burst: int
    """Burst of the limit, messages."""


def envelope(arrivals_ns: Sequence[int], duration_ns: int) -> Envelope:
    """The envelope of a trace.

    Args:
        arrivals_ns: the arrivals of messages, in their order.
        duration_ns: the duration of the recording; the last arrival may come earlier.

    Raises:
        ValueError: the trace has no message, or no duration.
    """
    if not arrivals_ns or duration_ns <= 0:
        raise ValueError("a trace must have messages and a duration")
    rate = MARGIN * len(arrivals_ns) * NS_PER_S / duration_ns
    found = sorted(unfinished_work(arrivals_ns, rate))[int(QUANTILE * len(arrivals_ns))]
    return Envelope(rate, -(-found // (rate.denominator * NS_PER_S)) + 1)


def unfinished_work(arrivals_ns: Sequence[int], rate: Fraction) -> list[int]:
    """The unfinished work that each message of a trace finds, in a bucket of any depth.

    The unit is a message over (`rate.denominator` x 10**9), so that all figures are whole numbers.
    """
    item, per_ns = rate.denominator * NS_PER_S, rate.numerator
    work, last_ns, found = 0, arrivals_ns[0], []
    for at_ns in arrivals_ns:
        work = max(work - (at_ns - last_ns) * per_ns, 0)
        last_ns = at_ns
        found.append(work)
        work += item
    return found


def spread(arrivals_ns: Sequence[int], duration_ns: int, parts: int = 10) -> list[int]:
    """The bursts of equal parts of a trace, each with the rate of the whole one.

    Bursts of bursty traffic differ much between traces, so an envelope is no more exact than these.
    Parts without a message are left out.
    """
    rate = envelope(arrivals_ns, duration_ns).rate
    begin_ns, bursts = arrivals_ns[0], []
    for part in range(parts):
        since_ns, until_ns = (
            begin_ns + duration_ns * edge // parts for edge in (part, part + 1)
        )  # fmt: skip
        some = [at_ns for at_ns in arrivals_ns if since_ns <= at_ns < until_ns]
        if some:
            work = sorted(unfinished_work(some, rate))[int(QUANTILE * len(some))]
            bursts.append(-(-work // (rate.denominator * NS_PER_S)) + 1)
    return bursts
