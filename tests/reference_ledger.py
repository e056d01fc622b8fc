"""The ledger as its definition reads: a table of cells, which is sorted for each decision.

The oracle for the compact rows of `drld.requests.buckets.ledger`.
"""

from __future__ import annotations

from drld.requests.buckets.bucket import Bucket, News, charged, checked
from drld.requests.buckets.gcra import decide
from drld.requests.buckets.ledger_cell import MAX_AGE_MS, Cell
from drld.requests.buckets.ledger_shape import MS, SLOTS
from drld.requests.buckets.policy import Decision, Policy

_SLOTS_ALIVE = SLOTS // 4
_NEVER = -(2**127)
"""A TAT before all times, ticks."""


class ReferenceLedger(Bucket):
    """A replica of the ledger."""

    def __init__(self, policy: Policy, origin: int, interval_ns: int, margin_ns: int) -> None:
        """`interval_ns` is the origin's gossip interval."""
        self.origin = origin
        self._cells: dict[tuple[int, int], tuple[int, int]] = {}
        """(count, start in ticks) by (origin, slot)."""
        self._floor = _NEVER
        """The TAT by the cells that were removed, ticks."""
        self._tat: int | None = None
        """The TAT by all cells; None: cells changed since."""
        self._open: tuple[int, int] | None = None
        """The slot and the first birth, ns, of the last own cell."""
        self.refused = 0
        """Tokens of cells that came too late."""
        self._interval_ns = interval_ns
        self._margin_ns = margin_ns
        self._adopt(policy)

    def _adopt(self, policy: Policy) -> None:
        self.policy = policy
        self._margin = self._margin_ns * policy.rate
        self._life = policy.depth + self._margin
        life_ns = policy.wait_ns(self._life + self._margin)
        self._slot_ns = max(self._interval_ns, life_ns // _SLOTS_ALIVE)

    def decide(self, now_ns: int, cost: int = 1) -> Decision:
        """See `Bucket.decide`."""
        policy, now = self.policy, now_ns * self.policy.rate
        return decide(policy, self._fold(now), now, checked(policy, cost))

    def charge(self, now_ns: int, cost: int) -> News:
        """See `Bucket.charge`."""
        now = now_ns * self.policy.rate
        if self._open is None or now_ns >= self._open[1] + self._slot_ns:
            self._open = now_ns // self._slot_ns % SLOTS, now_ns
        cell = self.origin, self._open[0]
        count, start = self._cells.get(cell, (0, now))
        count += charged(cost)
        self._cells[cell] = count, max(start, now - (count - cost) * self.policy.per_ns)
        self._tat = None
        return {cell: count}

    def reconfigure(self, policy: Policy, now_ns: int) -> None:
        """See `Bucket.reconfigure`: starts move, so that as many tokens as before have come
        since."""
        old, now, then = self.policy, now_ns * self.policy.rate, now_ns * policy.rate
        self._floor = then - (now - self._floor) * policy.per_ns // old.per_ns
        for key, (count, start) in self._cells.items():
            self._cells[key] = count, then - (now - start) * policy.per_ns // old.per_ns
        self._tat = None
        self._adopt(policy)

    def delta(self, news: News, now_ns: int) -> tuple[Cell, ...]:
        """See `Bucket.delta`."""
        now, per_ms = now_ns * self.policy.rate, MS * self.policy.rate
        cells = []
        for key in news:
            if (found := self._cells.get(key)) is not None:
                age_ms = min(max(now - found[1], 0) // per_ms, MAX_AGE_MS)
                cells.append(Cell(key[0], key[1], found[0], age_ms))
        return tuple(cells)

    def merge(self, delta: tuple[Cell, ...], now_ns: int) -> tuple[News, News]:
        """See `Bucket.merge`."""
        now, per_ms = now_ns * self.policy.rate, MS * self.policy.rate
        news: News = {}
        has: News = {}
        for origin, slot, count, age_ms in delta:
            key, start = (origin, slot), now - age_ms * per_ms
            has[key] = count
            known, known_start = self._cells.get(key, (0, start))
            if count < known or (count == known and start >= known_start):
                continue
            if not known and now - start > self._life:
                self.refused += count
                continue
            self._cells[key] = count, start
            self._tat = None
            if count > known:
                news[key] = count
        self._collect(now)
        return news, has

    def _collect(self, now: int) -> None:
        """Fold cells that can change nothing any more into the floor."""
        horizon = now - self._life - self._margin
        old = [key for key, (_, start) in self._cells.items() if start < horizon]
        for key in sorted(old, key=lambda key: (self._cells[key][1], key)):
            count, start = self._cells.pop(key)
            self._floor = max(self._floor, start) + count * self.policy.per_ns

    def _fold(self, now: int) -> int:
        """The TAT by all cells, ticks."""
        if self._tat is None:
            self._collect(now)
            tat, per_ns = self._floor, self.policy.per_ns
            for start, count in sorted((start, count) for count, start in self._cells.values()):
                tat = max(tat, start) + count * per_ns
            self._tat = tat
        return self._tat

    def level(self, now_ns: int) -> float:
        """See `Bucket.level`."""
        now = now_ns * self.policy.rate
        return max(self._fold(now) - now, 0) / self.policy.per_ns

    def idle(self, now_ns: int) -> bool:
        """See `Bucket.idle`."""
        now = now_ns * self.policy.rate
        self._collect(now)
        return not self._cells and self._floor <= now

    def everything(self) -> News:
        """See `Bucket.everything`."""
        return {key: count for key, (count, _) in self._cells.items()}

    @property
    def entries(self) -> int:
        """See `Bucket.entries`."""
        return len(self._cells)
