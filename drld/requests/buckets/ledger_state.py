"""The state of the ledger (`ledger`): cells, the TAT that they fold to, and untold tokens."""

from __future__ import annotations

from drld.requests.buckets import ledger_row
from drld.requests.buckets.bucket import Bucket
from drld.requests.buckets.cells import Cells
from drld.requests.buckets.ledger_shape import shape_of
from drld.requests.buckets.policy import Policy

MAX_TOKENS = 2**32 - 1
"""The most tokens of a cell, on the wire and here; more are not counted."""
NEVER = -(2**127)
"""A TAT before all times, ticks."""


class LedgerState(Bucket):
    """The fields of a replica of the ledger, and the fold."""

    __slots__ = (
        "_allowance", "_before", "_bound", "_cells", "_count", "_entry", "_floor", "_folded",
        "_id", "_last_ns", "_latest", "_packed", "_shape", "_start", "_until_ns", "policy",
        "since_ns",
    )  # fmt: skip

    def __init__(self, policy: Policy, origin: int, interval_ns: int, margin_ns: int) -> None:
        """`interval_ns` is the origin's gossip interval."""
        self.policy = policy
        self._shape = shape_of(policy, origin, interval_ns, margin_ns)
        self._count = 0
        """The tokens of the own open cell; 0: there is none, and the next three mean nothing."""
        self._id = 0
        self._start = 0
        self._until_ns = 0
        """The end of its slot, ns."""
        self._floor = self._latest = NEVER
        """The TAT after the removed cells; the largest start of the closed cells."""
        self._before: int | None = NEVER
        """The TAT after the closed cells, if the open cell is the last or there is none; None: it
        is not, or the cells must be folded."""
        self._folded: int | None = None
        """The TAT after all cells, if `_before` is None; None: they must be folded."""
        self._cells: Cells | None = None
        """The closed cells of all limiters; None: `_packed` has them, or there are none."""
        self._packed: bytes | None = None
        """The row at rest with the closed cells, until they are needed."""
        self._allowance = 0
        """The tokens that `spend` may take."""
        self._last_ns = 0
        """The time at which it did last, or `due` set it, ns."""
        self._bound = 0
        """The untold tokens and the allowance together."""
        self.since_ns = 0
        """See `Bucket.since_ns`."""
        self._entry = 0
        """The own cell with the first untold token."""

    @property
    def late(self) -> int:
        """See `Bucket.late`."""
        return 0 if self._cells is None else self._cells.late

    def _tat(self) -> int:
        """Return the TAT after all cells, ticks."""
        before = self._before
        if before is None:
            return self._fold() if self._folded is None else self._folded
        if not self._count:
            return before
        start = self._start
        return (start if start > before else before) + self._count * self._shape.per

    def _close(self) -> None:
        """Close the open cell."""
        self.halt()
        self._before = self._folded if self._before is None else self._tat()
        self._folded = None
        self._all().insert(self._start, self._id, self._count)
        self._latest = max(self._latest, self._start)
        self._count = 0

    def _changed(self) -> None:
        """Forget what follows from the cells, because some have changed."""
        self.halt()
        self._before = self._folded = None

    def _all(self) -> Cells:
        """Return the closed cells, unpacked."""
        if self._cells is None:
            if self._packed is None:
                self._cells = Cells()
            else:
                self._cells, floor = ledger_row.unpacked(self._packed)
                self._floor = NEVER if floor is None else floor
                self._packed = None
        return self._cells

    def _fold(self) -> int:
        """Return the TAT after all cells, ticks, which is not known."""
        per, cells = self._shape.per, self._all()
        place = cells.place_of(self._start) if self._count else len(cells)
        before = cells.fold(self._floor, per, place)
        if place == len(cells):
            self._before = before
            return self._tat()
        tat = max(before, self._start) + self._count * per
        self._folded = cells.fold_on(tat, per, place)
        return self._folded

    def _collect(self, now: int) -> None:
        """Fold the cells that can change nothing any more into the floor."""
        shape = self._shape
        horizon = now - shape.horizon
        if self._count and self._start < horizon:
            self._close()
        self._floor = self._all().drop_before(horizon, self._floor, shape.per)

    def level(self, now_ns: int) -> float:
        """See `Bucket.level`."""
        ahead = self._tat() - now_ns * self._shape.rate
        return ahead / self._shape.per if ahead > 0 else 0.0

    @property
    def entries(self) -> int:
        """See `Bucket.entries`."""
        return len(self._all()) + bool(self._count)
