"""Whether a limiter keeps to the token bucket, as seen from the broker's side. Pure.

A limiter is never earlier than the ideal bucket, to which each message comes when it was sent. It
may be later: it charges messages at their arrival, so after a pause it lets out at once what had
its tokens meanwhile. With its largest lateness l, at most b + r (dt + l) + 1 messages leave in any
time dt.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from drld.model import NS_PER_S


class Verdict(NamedTuple):
    """The findings about a bucket, ns."""

    early_ns: int
    """The most by which a message came too early; negative: none did."""
    late_ns: int
    """The most by which a message came later than an ideal bucket would let it go."""
    needed_ns: int
    """The least l with which all windows keep to b + r (dt + l) + 1."""

    @property
    def holds(self) -> bool:
        """Whether the limiter keeps to its bucket."""
        return self.early_ns <= 0 and self.needed_ns <= self.late_ns


def ideal(sent_ns: Sequence[int], rate: int, burst: int) -> list[int]:
    """The times at which messages leave a bucket, by those at which they reach it, down to ns.

    Args:
        sent_ns: in their order.
        rate: tokens/s; a message takes one.
        burst: depth, tokens. The bucket begins full.
    """
    gap = Fraction(NS_PER_S, rate)
    # The n-th message leaves `burst` services before its service ends in the queue that the bucket
    # is (2019, appendix).
    ends: list[int] = []
    end = Fraction(0)
    for number, at_ns in enumerate(sent_ns):
        end = (max(end, Fraction(at_ns)) if number else Fraction(at_ns)) + gap
        ends.append(int(max(Fraction(at_ns), end - burst * gap)))
    return ends


def judge(sent_ns: Sequence[int], came_ns: Sequence[int], rate: int, burst: int) -> Verdict:
    """Compare what came with the ideal bucket; both in any order, and equally many."""
    due_ns, came = ideal(sorted(sent_ns), rate, burst), sorted(came_ns)
    pairs = list(zip(due_ns, came, strict=True))
    return Verdict(
        max(due - at for due, at in pairs),
        max(at - due for due, at in pairs),
        needed_ns(came, rate, burst),
    )


def needed_ns(came_ns: Sequence[int], rate: int, burst: int) -> int:
    """The least l with which all windows of these sorted times keep to b + r (dt + l) + 1."""
    gap = Fraction(NS_PER_S, rate)
    least: Fraction | None = None
    needed = Fraction(0)
    for number, at_ns in enumerate(came_ns):
        ahead = number * gap - at_ns
        least = ahead if least is None else min(least, ahead)
        needed = max(needed, ahead - least - burst * gap)
    return -int(-needed // 1)
