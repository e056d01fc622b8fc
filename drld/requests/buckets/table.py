"""The rows of one limiter: a bucket for each key, in bounded memory.

A row without requests comes to rest: its bucket becomes a few bytes (`Bucket.freeze`) until the
next request. A drained row leaves without loss, since a new bucket would decide as it did. `sweep`
does both for a few rows a call, so no call is long. It takes awake rows in the order in which they
woke, and all others in turn, as the hand of the clock algorithm does.

When all rows are taken and the hand finds no drained one, no other row leaves. A new key then
shares one of `SHARED_ROWS` rows by its hash. Keys without rows limit each other, and keys with rows
are not affected (the idea of rakelimit). Shared rows are not replicated. So many keys at once are a
flood, or `max_keys` is too small; `shared` and `unkept` count both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping

from drld.requests.buckets.bucket import Bucket
from drld.requests.buckets.policy import Policy
from drld.requests.buckets.single import Single

SHARED_ROWS = 2**16
"""The shared rows of each policy, for keys without a row: 10 MB if all are in use. A flood from
this number of keys or more gets the rate of so many keys."""
_LOOKS = 2
"""The rows that the hand visits for a new key: more than one, so that the hand goes round faster
than the table fills."""
_MOST_AWAKE = 2**15
"""Above this number of awake rows, each row that wakes lets others rest. So many rows take about
20 MB, or 60 MB with cells of 30 limiters each."""
_LAST_LOOKS = 64
"""The rows that the hand visits when all rows are taken: about 50 us."""
_LAST_LOOKS_NS = 1_000_000
"""The least time between two such visits, ns: a flood then takes 5 % of a processor for them."""


class _Rows:
    """The rows under the policies of one configuration."""

    __slots__ = ("_like", "_likes", "_make", "_of_policy", "rows")

    def __init__(self, make: Callable[[Hashable], Bucket]) -> None:
        self._make = make
        self.rows: dict[Hashable, Bucket | bytes] = {}
        """The rows by key; `bytes` is a row at rest."""
        self._like: Bucket | None = None
        """Thaws rows: a bucket with the policy of the first row that came to rest."""
        self._likes: dict[Hashable, Bucket] = {}
        """Thaws rows of keys with another policy."""
        self._of_policy: dict[Policy, Bucket] = {}

    def like(self, key: Hashable) -> Bucket:
        """Return the bucket that thaws a key's row."""
        like = self._likes.get(key, self._like) if self._likes else self._like
        assert like is not None
        return like

    def rest(self, key: Hashable, bucket: Bucket, now_ns: int) -> None:
        """Let a row come to rest, if it can."""
        like = self._of_policy.get(bucket.policy)
        if like is None:
            like = self._make(key)
            if like.policy != bucket.policy:
                return
            self._of_policy[bucket.policy] = like
        data = bucket.freeze(now_ns)
        if data is None:
            return
        self._like = self._like or like
        if like is not self._like:
            self._likes[key] = like
        self.rows[key] = data

    def bucket(self, key: Hashable) -> Bucket | None:
        """Return a key's bucket; None: there is no row.

        The bucket of a row at rest is a copy, so changes of it do not change the row.
        """
        row = self.rows.get(key)
        return self.like(key).thaw(row) if isinstance(row, bytes) else row

    def drop(self, key: Hashable) -> None:
        """Remove a row."""
        del self.rows[key]
        self._likes.pop(key, None)


class Table(Mapping[Hashable, Bucket]):
    """Buckets by key. As a mapping it shows copies of rows at rest."""

    def __init__(self, make: Callable[[Hashable], Bucket], max_keys: int | None = None) -> None:
        """Make an empty table.

        Args:
            make: makes the bucket of a new key.
            max_keys: the most rows; None: there is no bound.
        """
        self._make = make
        self.max_keys = max_keys
        """The most rows; a smaller number than there are removes none."""
        self._present = _Rows(make)
        self._past: _Rows | None = None
        """The rows that still have the policies from before the last change."""
        self._changed: tuple[Callable[[Hashable], Policy], int] | None = None
        """The last change: the policy by key, and its time, ns."""
        self._strangers: dict[tuple[int, Policy], Single] = {}
        self._hand: Iterator[Hashable] = iter(())
        self._awake: deque[Hashable] = deque()
        """The keys of rows that are awake, in the order in which they woke, and some other keys."""
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
        return len(self._present.rows) + (len(self._past.rows) if self._past else 0)

    def __iter__(self) -> Iterator[Hashable]:
        """The keys that have rows."""
        yield from self._present.rows
        if self._past:
            yield from self._past.rows

    def __contains__(self, key: object) -> bool:
        """Whether a key has a row."""
        return key in self._present.rows or (self._past is not None and key in self._past.rows)

    def __getitem__(self, key: Hashable) -> Bucket:
        """Return a key's bucket for a check.

        Raises:
            KeyError: the key has no row.
        """
        self._bring(key)
        if (bucket := self._present.bucket(key)) is None:
            raise KeyError(key)
        return bucket

    @property
    def late(self) -> int:
        """The tokens that came too late, of all rows."""
        return self._late + sum(bucket.late for _, bucket in self.active())

    def active(self) -> Iterator[tuple[Hashable, Bucket]]:
        """Iterate over the rows that are awake."""
        for key in dict.fromkeys(self._awake):
            self._bring(key)
            row = self._present.rows.get(key)
            if row is not None and not isinstance(row, bytes):
                yield key, row

    # Requests and deltas

    def look(self, key: Hashable) -> Bucket:
        """Return the bucket that decides about a key, for a check."""
        if self._past is not None:
            self._bring(key)
        present = self._present
        bucket = present.rows.get(key)
        if bucket.__class__ is bytes:
            return present.like(key).thaw(bucket)
        if bucket is None:
            bucket = self._make(key)
            if self._full:
                return self._strangers.get(_shared_row(key, bucket), bucket)
        return bucket  # type: ignore[return-value]

    def row(self, key: Hashable, now_ns: int, looked: Bucket | None = None) -> Bucket:
        """Return the bucket that decides about a key, for a change: the key's own, or a shared one.

        `looked` is the bucket that `look` has returned for the key, if nothing has changed since
        then. Then a row at rest is not read twice.
        """
        present = self._present
        row = present.rows.get(key)
        if row is not None:
            if row.__class__ is not bytes:
                return row  # type: ignore[return-value]
            bucket = present.like(key).thaw(row) if looked is None else looked
            present.rows[key] = bucket
            self._woke(key, now_ns)
            return bucket
        own = self.own(key, now_ns, looked)
        if own is not None:
            return own
        self.shared += 1
        bucket = self._make(key)
        shared = _shared_row(key, bucket)
        if shared not in self._strangers:
            self._strangers[shared] = Single(bucket.policy)
        return self._strangers[shared]

    def own(self, key: Hashable, now_ns: int, looked: Bucket | None = None) -> Bucket | None:
        """Return a key's own bucket, for a change; None: the key has no row, and all are taken.

        `looked` is as in `row`.
        """
        if self._past is not None:
            self._bring(key)
        row = self._present.rows.get(key)
        if row is not None and not isinstance(row, bytes):
            return row
        if row is not None:
            bucket = self._present.like(key).thaw(row)
        else:
            if self.max_keys is not None:
                self.sweep(now_ns, _LOOKS)
                if self._full and now_ns - self._looked_ns >= _LAST_LOOKS_NS:
                    self._looked_ns = now_ns
                    self.sweep(now_ns, _LAST_LOOKS)
                if self._full:
                    return None
            fresh = looked is not None and looked.__class__ is not Single
            bucket = looked if fresh else self._make(key)  # type: ignore[assignment]
        self._present.rows[key] = bucket
        self._woke(key, now_ns)
        return bucket

    @property
    def _full(self) -> bool:
        return self.max_keys is not None and len(self) >= self.max_keys

    def drop(self, key: Hashable) -> None:
        """Remove a row; it must be drained."""
        self._late += self[key].late
        self._present.drop(key)

    # Rest

    def sweep(self, now_ns: int, rows: int) -> list[Hashable]:
        """Look at this many rows that are awake, and at as many others.

        Drained rows leave; rows that are awake come to rest if they can.

        Returns:
            The keys whose rows left.
        """
        left = self._calm(now_ns, rows)
        for _ in range(rows):
            if (key := next(self._hand, None)) is None:
                # A copy of the keys, since rows come and leave meanwhile: 10 ms for a million.
                self._hand = iter([*self])
                break
            self._bring(key)
            row = self._present.rows.get(key)
            if isinstance(row, bytes) and self._present.like(key).idle_at_rest(row, now_ns):
                self._present.drop(key)
                left.append(key)
        return left

    def _calm(self, now_ns: int, rows: int) -> list[Hashable]:
        """Let this many awake rows rest or leave; return the keys of rows that left."""
        left = []
        for _ in range(min(rows, len(self._awake))):
            key = self._awake.popleft()
            self._bring(key)
            row = self._present.rows.get(key)
            if row is None or isinstance(row, bytes):
                continue
            if row.idle(now_ns):
                self.drop(key)
                left.append(key)
            else:
                self._rest(key, row, now_ns)
        return left

    def _woke(self, key: Hashable, now_ns: int) -> None:
        """Note that a row is awake from now on."""
        self._awake.append(key)
        if len(self._awake) > _MOST_AWAKE:
            self._calm(now_ns, _LOOKS)

    def _rest(self, key: Hashable, bucket: Bucket, now_ns: int) -> None:
        self._present.rest(key, bucket, now_ns)
        if isinstance(self._present.rows[key], bytes):
            self._late += bucket.late
        else:
            self._awake.append(key)

    # Policies

    def reconfigure(self, policy: Callable[[Hashable], Policy], now_ns: int) -> None:
        """Use these policies of keys from now on; levels stay the same number of tokens.

        A row changes when a request or the hand next needs it, with the same effect as if it had
        changed now.
        """
        for key in [*self._past.rows] if self._past else ():
            self._bring(key)
        self._past, self._present = self._present, _Rows(self._make)
        self._changed = policy, now_ns
        # The table has no record of the keys that shared these rows.
        self._strangers.clear()

    def _bring(self, key: Hashable) -> None:
        """Give a row of the past its present policy."""
        if self._past is None:
            return
        bucket = self._past.bucket(key)
        if bucket is not None:
            assert self._changed is not None
            policy, changed_ns = self._changed
            was_at_rest = isinstance(self._past.rows[key], bytes)
            self._past.drop(key)
            if (wanted := policy(key)) != bucket.policy:
                bucket.reconfigure(wanted, changed_ns)
            bucket.adopt(self._make(key))
            self._present.rows[key] = bucket
            if was_at_rest:
                self._rest(key, bucket, changed_ns)
        if not self._past.rows:
            self._past = None


def _shared_row(key: Hashable, bucket: Bucket) -> tuple[int, Policy]:
    """Return the shared row of a key: keys are hashes under a secret, so no client chooses its
    row."""
    return hash(key) % SHARED_ROWS, bucket.policy
