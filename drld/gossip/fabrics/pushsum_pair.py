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

Invariants. A split takes out exactly the float32 pairs that the wire carries (a double minus a
float32 share of it is exact). So mass is conserved, but for the rounding of sums of doubles. The
weight stays above zero, because a split keeps a part. Zero stays exactly zero.
"""

from __future__ import annotations

from typing import NamedTuple

from drld.gossip.fabrics.pushsum_update import MAX_WEIGHT
from drld.gossip.wire.update_codec import MAX_VALUE, to_float32

TOKEN = 2.0**-20
"""The fraction of the pair in a token, which costs nothing if it is lost."""
RESOLUTION = 2.0**-10
"""A remote demand below this, in bytes/s or flows, is rounding, and counts as zero."""
MIN_WEIGHT = 2.0**-64
"""The least weight of a pair: far above the least float32, 2**-126. Below it a new epoch begins."""


class Pair(NamedTuple):
    """The part of a pair that one update carries."""

    value: float
    weight: float


NOTHING = Pair(0.0, 0.0)


class Mass:
    """The pair of one limiter."""

    __slots__ = ("_kept_weight", "_unmixed", "_unreflected", "own", "value", "weight")

    def __init__(self) -> None:
        self.own = 0.0
        """The demand that is in the value."""
        self.restart()

    def restart(self) -> None:
        """Begin an epoch: forget the mass that came from other limiters."""
        self.value = self._unmixed = self._unreflected = self.own
        self.weight = self._kept_weight = 1.0

    def change_own(self, own: float) -> None:
        """Add the change of the own demand, whose new value is `own`."""
        change = own - self.own
        self.own = own
        self.value += change
        self._unmixed += change
        self._unreflected += change

    def split(self, shares: int, tokens: int) -> tuple[Pair, Pair]:
        """Take out `shares` shares, as large as the one that stays, and `tokens` tokens.

        Returns one share and one token, as the wire carries them.
        """
        before = self.weight
        share = self._rounded(1 / (1 + shares))
        token = self._rounded(TOKEN)
        self.value -= shares * share.value + tokens * token.value
        self.weight -= shares * share.weight + tokens * token.weight
        self._unmixed *= self.weight / before
        self._kept_weight = self.weight
        return share, token

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
        """Whether the pair is within the bounds of the wire."""
        return abs(self.value) <= MAX_VALUE and MIN_WEIGHT <= self.weight <= MAX_WEIGHT

    def _rounded(self, fraction: float) -> Pair:
        return Pair(to_float32(self.value * fraction), to_float32(self.weight * fraction))
