"""The rows of one limiter: a bucket for each key, in bounded memory.

A row that requests or news touch is awake: it has a `Bucket`. A row without them comes to rest: its
bucket becomes a few bytes (`Bucket.freeze`, `PackedRows`) until the next request. A drained row
leaves without loss, since a new bucket would decide as it did. `sweep` does both for a few rows a
call, so no call is long. It takes awake rows in the order in which they woke, and resting rows in
turn, as the hand of the clock algorithm does.

When all rows are taken and the hand finds no drained one, no other row leaves. A new key then
shares one of `SHARED_ROWS` rows by its hash. Keys without rows limit each other, and keys with rows
are not affected (the idea of rakelimit). Shared rows are not replicated. So many keys at once are a
flood, or `max_keys` is too small; `shared` and `unkept` count both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain

from drld.requests.buckets.bucket import Bucket, Key
from drld.requests.buckets.packed_rows import PackedRows
from drld.requests.buckets.policy import Policy
from drld.requests.buckets.single import Single

SHARED_ROWS = 2**16
"""The shared rows of each policy, for keys without a row: 10 MB if all are in use. A flood from
this number of keys or more gets the rate of so many keys."""
_LOOKS = 2
"""The rows that the hand visits for a new key: more than one, so that the hand goes round faster
than the table fills."""
_MOST_AWAKE = 2**12
"""Above this number of awake rows, rows that wake let others rest. The daemon sweeps more than that
in half a second; so many rows take 2 MB, or 5 MB with cells of 30 limiters each."""
_WAKES = 32
"""One of this number of waking rows lets twice as many rest: 200 us of work."""
_KEPT = 4
"""The search for rows that may rest ends after this number of rows that must stay awake: the next
rows are as young."""
_LAST_LOOKS = 64
"""The rows that the hand visits when all rows are taken: about 50 us."""
_MOST_PAST = 16
"""The most changes of policies whose rows wait for the hand. Of more at once, the rows of the one
with the fewest change at once: a million rows would take seconds."""
_LAST_LOOKS_NS = 1_000_000
"""The least time between two such visits, ns: a flood then takes 5 % of a processor for them."""


class _Rows:
    """The rows under the policies of one configuration."""

    __slots__ = ("_like", "_likes", "_make", "_of_policy", "awake", "changes", "packed", "woken")

    def __init__(self, make: Callable[[Key], Bucket]) -> None:
        self._make = make
        self.awake: dict[Key, Bucket] = {}
        """The rows that are awake."""
        self.woken: deque[Key] = deque()
        """Their keys in the order in which they woke; also keys whose rows have left."""
        self.packed = PackedRows()
        """All rows; that of an awake row is out of date."""
        self._like: Bucket | None = None
        """Thaws rows: a bucket with the policy of the first row that came to rest."""
        self._likes: dict[Key, Bucket] = {}
        """Thaws rows of keys with another policy."""
        self._of_policy: dict[Policy, Bucket] = {}
        self.changes: list[tuple[Callable[[Key], Policy], int]] = []
        """The changes of policies that end these rows' time: the policy by key, and the time, ns.
        A row also follows the changes of all rows that came later."""

    def __len__(self) -> int:
        return len(self.packed)

    def __iter__(self) -> Iterator[Key]:
        return iter(self.packed)

    def like(self, key: Key) -> Bucket:
        """Return the bucket that thaws a key's row."""
        like = self._likes.get(key, self._like) if self._likes else self._like
        assert like is not None
        return like

    def look(self, key: Key) -> Bucket | None:
        """Return a key's bucket for a check; None: there is no row.

        The bucket of a row at rest is a copy, so changes of it do not change the row.
        """
        bucket = self.awake.get(key)
        if bucket is None and (row := self.packed.get(key)) is not None:
            return self.like(key).thaw(row)
        return bucket

    def add(self, key: Key, bucket: Bucket) -> None:
        """Add a row, which is awake."""
        self.packed.put(key, b"")
        self.wake(key, bucket)

    def wake(self, key: Key, bucket: Bucket) -> None:
        """Let a row be awake."""
        self.awake[key] = bucket
        self.woken.append(key)

    def rest(self, key: Key, bucket: Bucket, now_ns: int) -> bool:
        """Let a row come to rest that is not among the awake ones; return whether it can."""
        data = bucket.freeze(now_ns)
        if data is None:
            return False
        # Most rows share one policy, and a look at it is cheaper than its hash.
        if self._like is None or self._like.policy is not bucket.policy:
            like = self._of_policy.get(bucket.policy)
            if like is None:
                like = self._make(key)
                if like.policy != bucket.policy:
                    return False
                self._of_policy[bucket.policy] = like
            self._like = self._like or like
            if like is not self._like:
                self._likes[key] = like
        self.packed.put(key, data)
        return True

    def drop(self, key: Key) -> None:
        """Remove a row."""
        self.awake.pop(key, None)
        self._likes.pop(key, None)
        self.packed.drop(key)


class Table(Mapping[Key, Bucket]):
    """Buckets by key. As a mapping it shows copies of rows at rest."""

    def __init__(self, make: Callable[[Key], Bucket], max_keys: int | None = None) -> None:
        """Make an empty table.

        Args:
            make: makes the bucket of a new key.
            max_keys: the most rows; None: there is no bound.
        """
        self._make = make
        self.max_keys = max_keys
        """The most rows; a smaller number than there are removes none."""
        self._present = _Rows(make)
        self.awake = self._present.awake
        """The rows that are awake, but for those that still have a policy of the past."""
        self._past: list[_Rows] = []
        """The rows that still have the policies from before a change; the oldest first."""
        self._strangers: dict[tuple[int, Policy], Single] = {}
        self._looked_ns = -_LAST_LOOKS_NS
        """The time of the last visit to many rows, as all were taken, ns."""
        self.shared = 0
        """The number of times that keys shared a row because all were taken."""
        self.unkept = 0
        """The number of keys in deltas of peers that were dropped because all rows were taken."""
        self._late = 0
        """The tokens that came too late to rows that are at rest now, or have left."""

    def __len__(self) -> int:
        """The number of rows."""
        return len(self._present) + sum(map(len, self._past))

    def __iter__(self) -> Iterator[Key]:
        """Return an iterator over the keys that have rows now; the table may change meanwhile."""
        return chain(iter(self._present), *[iter(past) for past in self._past])

    def __getitem__(self, key: Key) -> Bucket:
        """Return a key's bucket for a check.

        Raises:
            KeyError: the key has no row.
        """
        self._bring(key)
        if (bucket := self._present.look(key)) is None:
            raise KeyError(key)
        return bucket

    @property
    def late(self) -> int:
        """The tokens that came too late, of all rows."""
        return self._late + sum(bucket.late for _, bucket in self.active())

    def active(self) -> Iterable[tuple[Key, Bucket]]:
        """Return the rows that are awake."""
        for key in [key for past in self._past for key in past.awake]:
            self._bring(key)
        return self.awake.items()

    # Requests and deltas

    def look(self, key: Key) -> Bucket:
        """Return the bucket that decides about a key, for a check."""
        if self._past:
            self._bring(key)
        bucket = self._present.look(key)
        if bucket is None:
            bucket = self._make(key)
            if self._full:
                return self._strangers.get(_shared_row(key, bucket), bucket)
        return bucket

    def row(self, key: Key, now_ns: int, looked: Bucket | None = None) -> Bucket:
        """Return the bucket that decides about a key, for a change: the key's own, or a shared one.

        `looked` is the bucket that `look` has returned for the key, if nothing has changed since
        then. Then a row at rest is not read twice.
        """
        own = self.awake.get(key) or self._woken(key, now_ns, looked)
        if own is not None:
            return own
        self.shared += 1
        bucket = self._make(key)
        shared = _shared_row(key, bucket)
        if shared not in self._strangers:
            self._strangers[shared] = Single(bucket.policy)
        return self._strangers[shared]

    def wake(self, key: Key, now_ns: int, cost: int, limiters: int) -> Bucket | None:
        """Do as `Bucket.wake` for a key whose row is not awake, as far as it is known; None: that
        is not possible, and nothing has changed."""
        present = self._present
        if self._past or (data := present.packed.get(key)) is None:
            return None
        bucket = present.like(key).wake(data, now_ns, cost, limiters)
        if bucket is not None:
            # `_Rows.wake` in place: a call costs more than it does.
            self.awake[key] = bucket
            present.woken.append(key)
            if len(self.awake) > _MOST_AWAKE:
                self._make_room(now_ns)
        return bucket

    def own(self, key: Key, now_ns: int) -> Bucket | None:
        """Return a key's own bucket, for a change; None: the key has no row, and all are taken."""
        return self.awake.get(key) or self._woken(key, now_ns)

    def _woken(self, key: Key, now_ns: int, looked: Bucket | None = None) -> Bucket | None:
        """Do as `own` for a key whose row is not awake, or still has a policy of the past.

        `looked` is as in `row`.
        """
        present = self._present
        if self._past:
            self._bring(key)
            if (bucket := self.awake.get(key)) is not None:
                return bucket
        if (row := present.packed.get(key)) is not None:
            bucket = looked or present.like(key).thaw(row)
            present.wake(key, bucket)
        elif (bucket := self._added(key, now_ns, looked)) is None:
            return None
        if len(self.awake) > _MOST_AWAKE:
            self._make_room(now_ns)
        return bucket

    def _make_room(self, now_ns: int) -> None:
        """Let other rows rest after one of many awake ones woke."""
        if len(self.awake) % _WAKES == 0:
            self._calm(now_ns, 2 * _WAKES, _KEPT)

    def _added(self, key: Key, now_ns: int, looked: Bucket | None) -> Bucket | None:
        """Add a row for a key that has none; None: all are taken."""
        if self.max_keys is not None:
            self.sweep(now_ns, _LOOKS)
            if self._full and now_ns - self._looked_ns >= _LAST_LOOKS_NS:
                self._looked_ns = now_ns
                self.sweep(now_ns, _LAST_LOOKS)
            if self._full:
                return None
        fresh = looked is not None and looked.__class__ is not Single
        bucket = looked if fresh else self._make(key)
        assert bucket is not None
        self._present.add(key, bucket)
        return bucket

    def told(self, key: Key) -> None:
        """Do as `Bucket.told` for a key's row, which a caller has looked at just now by `get`."""
        present = self._present
        if (bucket := self.awake.get(key)) is not None:
            bucket.told()
        elif (row := present.packed.get(key)) is not None:
            present.packed.put(key, present.like(key).told_at_rest(row))

    def halt(self) -> None:
        """Do as `Bucket.halt` for all rows; those at rest have halted."""
        for rows in (self._present, *self._past):
            for bucket in rows.awake.values():
                bucket.halt()

    @property
    def _full(self) -> bool:
        return self.max_keys is not None and len(self) >= self.max_keys

    def drop(self, key: Key) -> None:
        """Remove a row; it must be drained."""
        self._late += self[key].late
        self._present.drop(key)

    # Rest

    def sweep(self, now_ns: int, rows: int) -> list[Key]:
        """Look at this many rows that are awake, and at about as many others.

        Drained rows leave; rows that are awake come to rest if they can.

        Returns:
            The keys whose rows left.
        """
        left = self._calm(now_ns, rows)
        if self._past:
            for key, _ in self._past[0].packed.turn(rows):
                self._bring(key)
            return left
        present = self._present
        for key, row in present.packed.turn(rows):
            if key not in self.awake and present.like(key).idle_at_rest(row, now_ns):
                present.drop(key)
                left.append(key)
        return left

    def _calm(self, now_ns: int, rows: int, kept: int | None = None) -> list[Key]:
        """Let this many awake rows rest or leave; return the keys of rows that left.

        It ends early when `kept` rows stayed awake.
        """
        left = []
        awake, woken = self.awake, self._present.woken
        for _ in range(min(rows, len(woken))):
            key = woken.popleft()
            if (row := awake.pop(key, None)) is None:
                continue
            if row.idle(now_ns):
                self._late += row.late
                self._present.drop(key)
                left.append(key)
            elif not self._rest(key, row, now_ns) and kept is not None:
                kept -= 1
                if not kept:
                    break
        return left

    def _rest(self, key: Key, bucket: Bucket, now_ns: int) -> bool:
        """Let a row come to rest that is not among the awake ones, or else be awake."""
        rests = self._present.rest(key, bucket, now_ns)
        if rests:
            self._late += bucket.late
        else:
            self._present.wake(key, bucket)
        return rests

    # Policies

    def reconfigure(self, policy: Callable[[Key], Policy], now_ns: int) -> None:
        """Use these policies of keys from now on; levels stay the same number of tokens.

        A row changes when a request or the hand next needs it, with the same effect as if it had
        changed now.
        """
        if self._present:
            self._past.append(self._present)
        if self._past:
            self._past[-1].changes.append((policy, now_ns))
        self._present = _Rows(self._make)
        self.awake = self._present.awake
        if len(self._past) > _MOST_PAST:
            for key in min(self._past, key=len):
                self._bring(key)
        # The table has no record of the keys that shared these rows.
        self._strangers.clear()

    def _bring(self, key: Key) -> None:
        """Give a row of the past its present policy, by all changes since then in their order."""
        places = (at for at, it in enumerate(self._past) if it.packed.get(key) is not None)
        if (place := next(places, None)) is None:
            return
        past = self._past[place]
        bucket = past.look(key)
        assert bucket is not None
        was_awake, changed_ns = key in past.awake, 0
        past.drop(key)
        for each in self._past[place:]:
            for policy, changed_ns in each.changes:
                if (wanted := policy(key)) != bucket.policy:
                    bucket.reconfigure(wanted, changed_ns)
        bucket.adopt(self._make(key))
        self._present.add(key, bucket)
        if not was_awake:
            del self.awake[key]
            self._rest(key, bucket, changed_ns)
        if not past:
            del self._past[place]
            if place:
                self._past[place - 1].changes += past.changes


def _shared_row(key: Key, bucket: Bucket) -> tuple[int, Policy]:
    """Return the shared row of a key: keys are hashes under a secret, so no client chooses its
    row."""
    return key % SHARED_ROWS, bucket.policy
