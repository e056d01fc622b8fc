"""The token bucket that every datapath implements (paper, section 3; docs/architecture.md).

Tokens are integers, in bytes x 10**-9. So a rate in bytes/s times a time in ns is exact. The rules,
which the BPF program repeats to the byte:

- settle:  dt = max(now - updated, 0);  tokens += fill_rate * dt, at most the depth. A negative
  fill rate drains (GTB), at most to zero. Time never runs backward: a `now` before the last one
  has no effect. Extra settlings have no effect on verdicts.
- conform: a packet conforms when the bucket holds a whole token for each of its bytes; charging
  takes them. A packet larger than the depth conforms when the bucket is full, and leaves it in
  debt. Otherwise a super-packet of 64 kB (GSO) could never pass a small bucket. The next packet
  passes after the debt is paid.
- program: settle at the old rate first, then set rate and depth. Shrinking the depth clamps the
  tokens; growing it adds none. Then the credit is added, once for each new `credit_id`.
- `depth` None is no bucket: every packet conforms. A bucket begins full.

A bucket keeps the tokens that it lacks, not those that it has. So a full bucket, which most are
where limits are many, is settled without a look at its rate and depth.
"""

from __future__ import annotations

from collections.abc import Iterable

from drld.model import NS_PER_S, Enforcement
from drld.mypyc import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class TokenBucket:
    """A bucket with a signed fill rate."""

    __slots__ = ("_credit_id", "_depth", "_drains", "_fill_rate", "missing", "updated_ns")

    def __init__(self, enforcement: Enforcement, now_ns: int, tokens: int | None = None) -> None:
        """`tokens`, bytes x 10**-9, are those of a bucket that is not full."""
        self._fill_rate = enforcement.fill_rate
        self._drains = enforcement.fill_rate < 0
        self._depth = None if enforcement.depth is None else enforcement.depth * NS_PER_S
        self.missing = 0
        """Tokens that the bucket lacks at the time of the last settling, 10**-9 bytes; above the
        depth in debt, and 0 if there is no bucket."""
        if tokens is not None and self._depth is not None:
            self.missing = self._depth - tokens
        self._credit_id = enforcement.credit_id
        self.updated_ns = now_ns
        """Time of the last settling, ns."""

    @property
    def depth(self) -> int | None:
        """The most that the bucket holds, in whole bytes; None: there is no bucket."""
        return None if self._depth is None else self._depth // NS_PER_S

    @property
    def room(self) -> int:
        """Tokens at the time of the last settling, bytes x 10**-9; negative in debt."""
        return (self._depth or 0) - self.missing

    @property
    def tokens(self) -> int:
        """Tokens at the time of the last settling, in whole bytes; negative in debt."""
        return self.room // NS_PER_S

    def tokens_at(self, now_ns: int) -> int:
        """The whole tokens that the bucket would hold now, if it were settled."""
        bucket = self.copy()
        bucket.settle(now_ns)
        return bucket.tokens

    def copy(self) -> TokenBucket:
        """A bucket in the same state."""
        record = Enforcement(fill_rate=self._fill_rate, depth=self.depth, credit_id=self._credit_id)
        return TokenBucket(record, self.updated_ns, self.room)

    def settle(self, now_ns: int) -> None:
        """Add, or drain, the tokens of the time since the last settling."""
        dt = now_ns - self.updated_ns
        if dt <= 0:
            return
        self.updated_ns = now_ns
        if (self.missing or self._drains) and self._depth is not None:
            missing = self.missing - self._fill_rate * dt
            # Not by min and max: two calls fewer for each packet.
            if missing < 0:
                missing = 0
            elif missing > self._depth and self._drains:
                # Draining takes tokens down to zero; it neither makes a debt nor pays one.
                missing = max(self.missing, self._depth)
            self.missing = missing

    def conforms(self, length: int) -> bool:
        """Whether a packet of `length` bytes may pass at the time of the last settling."""
        if self._depth is None:
            return True
        if not self.missing:
            return self._depth > 0 or not length
        return self.missing + length * NS_PER_S <= self._depth

    def spares(self, length: int, left: int) -> bool:
        """Whether a packet of `length` bytes leaves `left` tokens, or meets a full bucket."""
        if self._depth is None or not self.missing:
            return True
        return self.missing + length * NS_PER_S + left <= self._depth

    def wait_ns(self, length: int, left: int) -> int | None:
        """Time until a packet of `length` bytes leaves `left` tokens, or finds a full bucket.

        Returns:
            Nanoseconds from the last settling; None: the bucket does not fill.
        """
        if self._depth is None or (self.conforms(length) and self.spares(length, left)):
            return 0
        if self._fill_rate <= 0 or not self._depth:
            return None
        lacking = self.missing - max(self._depth - length * NS_PER_S - left, 0)
        return -(-lacking // self._fill_rate)

    def fill(self) -> tuple[int, int | None] | None:
        """Tokens, and the time from the last settling until the bucket is full, ns.

        Returns:
            The time is None where the bucket does not fill; None: there is no bucket.
        """
        if self._depth is None:
            return None
        missing, rate = self.missing, self._fill_rate
        if missing <= 0:
            full_ns: int | None = 0
        else:
            full_ns = -(-missing // rate) if rate > 0 and self._depth else None
        return self.tokens, full_ns

    def charge(self, length: int) -> None:
        """Take the tokens of a packet that conforms."""
        if self._depth is not None:
            self.missing += length * NS_PER_S

    def charge_each(self, lengths: Iterable[int]) -> list[tuple[int, int | None]]:
        """Take the tokens of packets that conform one after the other, of at least one byte each.

        Returns:
            For each packet, what `fill` would return after it.
        """
        depth, missing, rate, found = self._depth or 0, self.missing, self._fill_rate, []
        for length in lengths:
            missing += length * NS_PER_S
            full_ns = -(-missing // rate) if rate > 0 and depth else None
            found.append(((depth - missing) // NS_PER_S, full_ns))
        self.missing = missing
        return found

    def take(self, length: int, now_ns: int) -> bool:
        """Settle, and charge a packet if it conforms; return whether it does.

        It is `settle`, `conforms` and `charge` in one call, for the paths of most packets.
        """
        self.settle(now_ns)
        depth = self._depth
        if depth is None:
            return True
        missing = self.missing + length * NS_PER_S
        if missing > depth and (self.missing or not depth):
            return False
        self.missing = missing
        return True

    def program(self, enforcement: Enforcement, now_ns: int) -> None:
        """Apply a new record from now on."""
        self.settle(now_ns)
        self._fill_rate = enforcement.fill_rate
        self._drains = enforcement.fill_rate < 0
        if enforcement.depth is None:
            self._depth = None
            self.missing = 0
        else:
            depth = enforcement.depth * NS_PER_S
            if self._depth is not None:
                # A limit without a bucket until now begins with a full one, like any new bucket.
                self.missing = max(self.missing + depth - self._depth, 0)
            self._depth = depth
        if enforcement.credit_id != self._credit_id:
            self._credit_id = enforcement.credit_id
            if self._depth is not None:
                self.missing = max(self.missing - enforcement.credit * NS_PER_S, 0)
