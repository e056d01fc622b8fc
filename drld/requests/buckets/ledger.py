"""The ledger: the queue as a proper CRDT. No derived value is sent, and no cell leaves early.

The state of a key is a set of *cells*: each maps (origin, slot) to (count, start). A cell has the
tokens that one limiter admitted within one *slot*, a gossip interval from the cell's first
admission on. The slot's number is the round of its origin in which the cell began. With `before`
the tokens of the cell that were admitted before a request,

    count = all tokens of the cell        start = max over its requests of (birth - before / rate)

so a cell alone fills a bucket until `start + count / rate`. A cell is one step of Lindley's
recursion, and so is any row of such steps. The level follows from all cells, by their starts:

    tat = max(tat, start) + count / rate

Merge. For each cell, the larger count wins, with its start; of equal counts, the older start. A
merge is the maximum of a total order, so it is idempotent, commutative and associative. A cell
grows at its origin alone. Deaths follow from births, so no delta carries them.

Exactness. Let I be the slot. The fold takes requests out of the order of their births by at most
2 I. It never gives less than the true TAT, and at most 2 I more: `2 I rate` tokens. With one
origin, or slots that do not overlap, it is GCRA (proof: docs/replicated-buckets.md).

Time. A cell travels with the age of its start, rounded down, and the receiver dates the start on
its own clock. The limiters' clocks are never compared. A start is late by the delay of the path at
most, so buckets look fuller and never emptier.

Garbage. A cell may not matter once it is older than the time in which a full bucket fills and
`margin_ns`. The margin bounds the delay of news and the error of their dates. A limiter refuses
later news of such a cell, and counts them (`late`). A margin later it folds the cell into a floor,
so the level does not change. A peer without knowledge is also told the floor (`ledger_floor`), and
the fuller of two floors stays.

Representation. The limiter's own open cell is apart from the others (`cells`): an admission folds
it alone, and a merge folds from the place of the first news on. A row at rest is one `bytes`
(`ledger_row`). Ticks are those of the policy in lowest terms.

Spending. A test of slack (`due`) leaves an *allowance*: the tokens that the open cell may grow by
before the depth or slack can matter, even if nothing is refilled. `spend` takes them without any
other test. Cells of peers, another slot, and changes of policy or fleet end the allowance.
"""

from __future__ import annotations

from drld.requests.buckets import ledger_row
from drld.requests.buckets.bucket import Bucket, News, charged, checked
from drld.requests.buckets.cells import Cells
from drld.requests.buckets.ledger_cell import FLOOR, MAX_AGE_MS, Cell
from drld.requests.buckets.ledger_floor import LedgerFloors, passed
from drld.requests.buckets.ledger_shape import SLOTS, shape_of
from drld.requests.buckets.ledger_state import MAX_TOKENS, NEVER
from drld.requests.buckets.policy import ADMITTED, Decision, Policy


class Ledger(LedgerFloors):
    """A replica of the ledger."""

    __slots__ = ()

    # Requests

    def decide(self, now_ns: int, cost: int = 1) -> Decision:
        """See `Bucket.decide`."""
        shape = self._shape
        if not 1 <= cost <= shape.capacity:
            checked(self.policy, cost)
        ahead = self._tat() - now_ns * shape.rate
        lacking = (ahead if ahead > 0 else 0) + cost * shape.per - shape.depth
        return ADMITTED if lacking <= 0 else Decision(False, -(-lacking // shape.rate))

    def spend(self, now_ns: int, cost: int) -> bool:
        """See `Bucket.spend`; the allowance is set by `due`, and lasts while the slot does."""
        if 0 < cost <= self._allowance and self._last_ns <= now_ns < self._until_ns:
            shape, count = self._shape, self._count
            start = now_ns * shape.rate - count * shape.per
            own = self._start
            self._start = start if start > own else own
            self._count = count + cost
            self._allowance -= cost
            self._last_ns = now_ns
            return True
        return False

    def charge(self, now_ns: int, cost: int) -> News:
        """See `Bucket.charge`."""
        if cost < 1:
            charged(cost)
        shape, count = self._shape, self._count
        start = now_ns * shape.rate
        if count and now_ns < self._until_ns:
            # No max or min: a call costs as much as a line.
            start -= count * shape.per
            own = self._start
            self._start = start if start > own else own
        else:
            if count:
                self._close()
                self._collect(start)
                count = 0
            if start < self._latest:
                # The clock went back, so it is not the last.
                self._before = None
            slot = now_ns // shape.slot_ns
            self._id = shape.first + slot % SLOTS
            self._until_ns = now_ns + shape.slot_ns
            self._start = start
        count += cost
        self._count = count if count < MAX_TOKENS else MAX_TOKENS
        self._folded = None
        if self._bound == self._allowance:
            self.since_ns, self._entry = now_ns, self._id
        self._bound += cost
        return {self._id: self._count}

    # Slack

    @property
    def untold(self) -> int:
        """See `Bucket.untold`."""
        return self._bound - self._allowance

    def due(self, now_ns: int, limiters: int) -> bool:
        """See `Bucket.due`.

        If it is not, `spend` may take S tokens at least, at any later time of the slot. Each takes
        a token of the bucket, where refill can only help, and is one more untold token:

            (untold + S) N < free - S
        """
        shape, count, untold = self._shape, self._count, self._bound - self._allowance
        self._bound, self._allowance = untold, 0
        ahead = self._tat() - now_ns * shape.rate
        spare = shape.depth - (ahead if ahead > 0 else 0) - untold * limiters * shape.per
        if spare <= 0:
            return True
        if count and self._before is not None:
            most, room = (spare - 1) // (shape.per * (limiters + 1)), MAX_TOKENS - count
            self._allowance = most = most if most < room else room
            self._bound, self._last_ns = untold + most, now_ns
        return False

    def halt(self) -> None:
        """See `Bucket.halt`."""
        self._bound -= self._allowance
        self._allowance = 0

    def told(self) -> None:
        """See `Bucket.told`."""
        self._bound = self._allowance = 0

    def untold_news(self) -> News:
        """See `Bucket.untold_news`."""
        return self.own_since(self._entry)

    # Gossip

    def delta(self, news: News, now_ns: int) -> tuple[Cell, ...]:
        """See `Bucket.delta`; an entry is `origin * SLOTS + slot`."""
        shape = self._shape
        now, found = now_ns * shape.rate, list[Cell]()
        if FLOOR in news and (floor := self._told_floor(now)) is not None:
            cell, nexts = floor
            found.append(cell)
            # A cell whose tokens the floor has must not come beside it.
            rest = {it: 0 for it in news if it != FLOOR and not passed(it, nexts)}
            news = dict.fromkeys(nexts.values(), 0) | rest
        for entry in news:
            if self._count and entry == self._id:
                start, count = self._start, self._count
            elif (place := self._all().find(entry)) is not None:
                start, count = self._all().at(place)
            else:
                continue
            age_ms = min(max(now - start, 0) // shape.per_ms, MAX_AGE_MS)
            found.append(Cell(entry // SLOTS, entry % SLOTS, count, age_ms))
        return tuple(found)

    def merge(self, delta: tuple[Cell, ...], now_ns: int) -> tuple[News, News]:
        """See `Bucket.merge`."""
        shape, cells = self._shape, self._all()
        now = now_ns * shape.rate
        self._collect(now)
        news: News = {}
        has: News = {}
        for origin, slot, count, age_ms in delta:
            entry = origin * SLOTS + slot
            start = now - age_ms * shape.per_ms
            if entry == FLOOR:
                floor = self._floor_of(delta, Cell(origin, slot, count, age_ms), now)
                self._floor = max(self._floor, floor)
                continue
            has[entry] = count
            mine = bool(self._count) and entry == self._id
            place = None if mine else cells.find(entry)
            known, known_start = 0, start
            if mine:
                known, known_start = self._count, self._start
            elif place is not None:
                known_start, known = cells.at(place)
            if count < known or (count == known and start >= known_start):
                continue
            if not known and now - start > shape.life:
                cells.late += count
                continue
            if mine:
                self._start, self._count = start, count
            else:
                if place is not None:
                    cells.remove(place)
                cells.insert(start, entry, count)
                self._latest = max(self._latest, start)
            self._changed()
            if count > known:
                news[entry] = count
        return news, has

    def idle(self, now_ns: int) -> bool:
        """See `Bucket.idle`."""
        if self._packed is not None and not self._count:
            return self.idle_at_rest(self._packed, now_ns)
        now = now_ns * self._shape.rate
        if self._count and self._start >= now - self._shape.horizon:
            # The open cell is too young; so the others need not be unpacked.
            return False
        self._collect(now)
        return not self._count and not self._cells and self._tat() <= now

    def own_since(self, entry: int) -> News:
        """Return the own cells from one on; they follow each other in the order of their starts."""
        own = {self._id: self._count} if self._count else {}
        if entry in own:
            return own
        cells, first = self._all(), self._shape.first
        closed = cells.since(cells.find(entry) or 0)
        return {cell: count for cell, count in closed if first <= cell < first + SLOTS} | own

    def everything(self) -> News:
        """See `Bucket.everything`."""
        found = {entry: count for _, entry, count in self._all()}
        if self._count:
            found[self._id] = self._count
        return found | self.floor()

    # A row's life

    def adopt(self, like: Bucket) -> None:
        """See `Bucket.adopt`: interval and margin. The open cell stays open, as another one in its
        slot would have the same id."""
        assert isinstance(like, Ledger)
        if like._shape is not self._shape:
            self.halt()
            self._shape = like._shape

    def reconfigure(self, policy: Policy, now_ns: int) -> None:
        """See `Bucket.reconfigure`: starts move, so that the same number of tokens has come
        since. The open cell stays open, as in `adopt`."""
        old = self._shape
        new = shape_of(policy, old.origin, old.interval_ns, old.margin_ns)
        now, then = now_ns * old.rate, now_ns * new.rate

        def moved(time: int) -> int:
            return then - (now - time) * new.per // old.per

        cells = [(moved(start), entry, count) for start, entry, count in self._all()]
        late = self.late
        self.policy = policy
        self._shape = new
        self._cells = Cells(cells)
        self._cells.late = late
        self._changed()
        if self._count:
            self._start = moved(self._start)
        if self._floor > NEVER:
            self._floor = moved(self._floor)
        self._latest = cells[-1][0] if cells else NEVER

    def freeze(self, now_ns: int) -> bytes | None:
        """See `Bucket.freeze`."""
        shape = self._shape
        if self._count:
            if now_ns < self._until_ns:
                return None
            if self._cells is None and self._packed is None:
                # The only cell of a new row needs no `Cells`.
                return ledger_row.packed_one(
                    self._start, self._id, self._count, self.untold, self.since_ns
                )
            if (row := self._appended(now_ns)) is not None:
                return row
            self._close()
        if self._packed is not None:
            return self._packed
        self._collect(now_ns * shape.rate)
        tat = self._tat()
        # A drained floor is before all cells that are here or may still come.
        drained = self._floor <= now_ns * shape.rate - shape.horizon
        untold = self._bound, self.since_ns, self._entry % SLOTS
        return ledger_row.packed(self._all(), tat, None if drained else self._floor, untold)

    def _appended(self, now_ns: int) -> bytes | None:
        """Return the frozen row with the open cell, if it is the last and the others are packed."""
        if self._packed is None or self._before is None:
            return None
        oldest = now_ns * self._shape.rate - self._shape.horizon
        cell = self._start, self._id, self._count
        untold = self.untold, self.since_ns, self._entry % SLOTS
        return ledger_row.appended(self._packed, oldest, cell, self._tat(), untold)

    def idle_at_rest(self, data: bytes, now_ns: int) -> bool:
        """See `Bucket.idle_at_rest`."""
        shape = self._shape
        now = now_ns * shape.rate
        tat, latest, *_ = ledger_row.fields(data, shape.per)
        return tat <= now and latest < now - shape.horizon

    def told_at_rest(self, data: bytes) -> bytes:
        """See `Bucket.told_at_rest`."""
        return ledger_row.told(data)

    def wake(self, data: bytes, now_ns: int, cost: int, limiters: int) -> Ledger | None:
        """See `Bucket.wake`: as `thaw`, `charge` and `due`, but each field is set once."""
        shape = self._shape
        per, start = shape.per, now_ns * shape.rate
        tat, latest, untold, since_ns, slot = ledger_row.fields(data, per)
        ahead = (tat - start if tat > start else 0) + cost * per
        bound = untold + cost
        spare = shape.depth - ahead - bound * limiters * per
        if spare <= 0 or start < latest or cost < 1 or shape.capacity > MAX_TOKENS:
            return None
        allowance = (spare - 1) // (per * (limiters + 1))
        row = Ledger.__new__(Ledger)
        row.policy, row._shape = shape.policy, shape
        row._cells, row._folded, row._packed = None, None, data
        row._before, row._latest = tat, latest
        row._id = entry = shape.first + now_ns // shape.slot_ns % SLOTS
        row._start, row._until_ns, row._count = start, now_ns + shape.slot_ns, cost
        row._allowance, row._bound, row._last_ns = allowance, bound + allowance, now_ns
        if untold:
            row.since_ns, row._entry = since_ns, shape.first + slot
        else:
            row.since_ns, row._entry = now_ns, entry
        return row

    def thaw(self, data: bytes) -> Ledger:
        """See `Bucket.thaw`."""
        shape = self._shape
        # Without the floor, which the packed row has, and the fields of an open cell.
        row = Ledger.__new__(Ledger)
        row.policy, row._shape, row._count, row._allowance = shape.policy, shape, 0, 0
        row._cells, row._folded, row._packed = None, None, data
        row._before, row._latest, row._bound, row.since_ns, slot = ledger_row.fields(
            data, shape.per
        )
        row._entry = shape.first + slot
        return row
