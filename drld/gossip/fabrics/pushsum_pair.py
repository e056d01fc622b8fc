"""One limiter's mass in push-sum: the (value, weight) pair, and the global demand read from it.

Theory of operation (Kempe, Dobra, Gehrke: "Gossip-based computation of aggregate information", FOCS
2003, protocol push-sum). Every limiter begins with its own demand as value and a weight of 1.
Splitting the pair and adding pairs up changes neither the sum of all values nor that of all
weights. Mixing brings every value / weight to sum(values) / sum(weights): the mean demand. The mean
times the number of limiters is the global demand.

A change of the own demand is added to the value, so that the sum of the values follows the demand.
At first it distorts the ratio: the change belongs to the whole fleet, but the limiter reads it N
times until it has spread. Two numbers correct this for the limiter's own changes:

- `unmixed` is the part of the value that own changes added and that is still here. It shrinks with
  every split, as the pair does. A received pair of weight r, while w was kept, is what became of
  1 / (N - 1) of it elsewhere. So r / (w (N - 1)) of `unmixed` then counts as mixed.
- `unreflected` is the part of the own demand that is not yet in (value - unmixed) / weight. It does
  not shrink with a split, but received pairs dilute it.

    remote = N (value - unmixed) / weight - (own - unreflected)

With two limiters and no delay, this is exact one interval after a change. Without it, a limiter of
fifty would read a tenth of its own demand as a remote demand of five times its own.

Running sums (`fabrics.pushsum`). A share goes out as the sum of all shares of its link in this
epoch, in float32. The weight of the new sum is rounded down, so the split keeps a part. The share
is the difference that the wire carries, and what rounding leaves stays here. The value of the share
is in proportion to its weight, so rounded weights do not change the ratio. An epoch has at most
1,200 shares a link, so a share is rounded by at most 1,200 * 2**-24 of it: 7e-5.

Invariants. Mass is conserved, but for the rounding of doubles. The weight stays above zero. Zero
stays exactly zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from drld.gossip.fabrics.pushsum_update import MAX_WEIGHT
from drld.gossip.wire.update_codec import MAX_VALUE, to_float32

RESOLUTION = 2.0**-10
"""A remote demand below this, in bytes/s or flows, is rounding, and counts as zero."""
MIN_WEIGHT = 2.0**-64
"""The least weight of a pair: far above the least float32, 2**-126. Below it a new epoch begins."""
COARSE = 2.0**-13
"""A value / weight below this part of the largest sum suffers from its rounding.

Steady demand is at least 1 / 1,200 of the sums. At this part a unit of the sums is up to 0.1 % of
it."""


class Pair(NamedTuple):
    """A value and its weight."""

    value: float
    weight: float


NOTHING = Pair(0.0, 0.0)


class Mass:
    """The pair of one limiter."""

    __slots__ = ("_kept_weight", "_sums", "_unmixed", "_unreflected", "own", "value", "weight")

    def __init__(self) -> None:
        self.own = 0.0
        """The demand that is in the value."""
        self.restart()

    def restart(self) -> None:
        """Begin an epoch: forget the mass that came from other limiters."""
        self.value = self._unmixed = self._unreflected = self.own
        self.weight = self._kept_weight = 1.0
        self._sums = NOTHING
        """The largest running sums in this epoch, without signs."""

    def change_own(self, own: float) -> None:
        """Add the change of the own demand, whose new value is `own`."""
        change = own - self.own
        self.own = own
        self.value += change
        self._unmixed += change
        self._unreflected += change

    def split(self, told: Sequence[Pair], part: float = 1.0) -> list[Pair]:
        """Give some peers a share each, `part` of what stays.

        `told` are the running sums of their links; returns the new ones, as the wire carries them.
        """
        before = self.weight
        share = before * part / (1 + part * len(told))
        ratio = self.value / before
        sums = []
        for old in told:
            weight = _rounded_down(old.weight + share)
            new = Pair(to_float32(old.value + ratio * (weight - old.weight)), weight)
            self.value -= new.value - old.value
            self.weight -= new.weight - old.weight
            self._sums = Pair(max(self._sums.value, abs(new.value)), max(self._sums.weight, weight))
            sums.append(new)
        self._unmixed *= self.weight / before
        self._kept_weight = self.weight
        return sums

    def add(self, pair: Pair, peers: int) -> None:
        """Add a pair from one of `peers` peers."""
        unmixed = max(0.0, 1 - pair.weight / (self._kept_weight * peers))
        self._unmixed *= unmixed
        self._unreflected *= unmixed * self.weight / (self.weight + pair.weight)
        self.value += pair.value
        self.weight += pair.weight

    def remote(self, members: int) -> float:
        """The demand of the others, if there are `members` limiters; at least 0."""
        total = members * (self.value - self._unmixed) / self.weight
        remote = total - (self.own - self._unreflected)
        return remote if remote >= RESOLUTION else 0.0

    @property
    def sound(self) -> bool:
        """Whether the pair, and running sums with it, are within the bounds of the wire."""
        return (
            self._sums.value + abs(self.value) <= MAX_VALUE
            and self._sums.weight + self.weight <= MAX_WEIGHT
            and self.weight >= MIN_WEIGHT
        )

    @property
    def coarse(self) -> bool:
        """Whether the value is little against the rounding of the sums, or only a rest of that.

        A share stays if it is less than half a unit of its sum, which is up to 2**-24 of that.
        """
        return 0 < abs(self.value) <= COARSE * self._sums.value * self.weight


def _rounded_down(number: float) -> float:
    """The largest number up to this positive one that the wire can carry."""
    unit = 2.0 ** (math.frexp(number)[1] - 24)
    return math.floor(number / unit) * unit
