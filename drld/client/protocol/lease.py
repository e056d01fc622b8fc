"""A lease: tokens that a process takes ahead for one hot key, and spends by its own decisions.

The limiter charges a lease when it grants it. Tokens that are not used within `LEASE_NS` are lost.
So a process admits only charged requests, at most `LEASE_NS` after the charge. In any time T, all
processes together admit at most the amount that the limit allows in T + `LEASE_NS`.

The size follows the demand. It begins at one request, and doubles when a lease is used up within
its time. When a lease lapses, the next has the size of the used part. So after a used lease, at
most half of the next is lost. A lease is at most a quarter of the limit's remainder, so a process
that stops asking has not emptied the bucket. A refusal holds until the time to retry, and for
`LEASE_NS` at most. A decision without the limiter is no lease, and the size begins at one again.
"""

from __future__ import annotations

from collections import Counter

from drld.client.protocol.model import Answer

LEASE_NS = 100_000_000
"""The life of a lease, ns: ten questions a second for a key cost nothing that matters. A bucket of
a tenth of a second's rate is as small as buckets are."""
MAX_LEASE = 65_536
"""The most requests of a lease: more than a process decides in `LEASE_NS`."""


class Lease:
    """The tokens of one key in one process."""

    __slots__ = (
        "_counts",
        "_granted",
        "_left",
        "_refused_cost",
        "_refused_ns",
        "_size",
        "_tokens",
        "_until_ns",
        "lost",
    )

    def __init__(self, counts: Counter[str] | None = None) -> None:
        """`counts` are the client's counters `leased` and `lost`."""
        self._counts = Counter() if counts is None else counts
        self._size = 1
        """The requests to ask for next."""
        self._granted = 0
        self._tokens = 0
        self._until_ns = 0
        """The time at which the tokens are lost, ns."""
        self._refused_ns = 0
        """Until when the limiter's refusal of this cost holds, ns."""
        self._refused_cost = 0
        self._left: float | None = None
        """What the limit had left at the last question; None: it is not known."""
        self.lost = 0
        """The requests that were charged and not used in time (`lapse`)."""

    def take(self, cost: int, now_ns: int) -> bool | None:
        """Decide about a request; None: the limiter must be asked (`wanted`, `receive`).

        Raises:
            ValueError: the cost is below 1, or no number; it would add tokens.
        """
        if not cost >= 1:
            raise ValueError(f"cost: must be at least 1 (got {cost})")
        if cost <= self._tokens and now_ns < self._until_ns:
            self._tokens -= cost
            return True
        return False if now_ns < self._refused_ns and cost >= self._refused_cost else None

    def wanted(self, cost: int, now_ns: int) -> int:
        """Return the number of requests to ask the limiter for, at least `cost`; the tokens left
        are lost."""
        lapsed = now_ns >= self._until_ns
        if self._granted:
            used = self._granted - self._tokens
            self._size = max(used, 1) if lapsed else min(2 * self._size, MAX_LEASE)
        self._lose()
        self._granted = 0
        left = self._size if self._left is None else int(min(self._left / 4, MAX_LEASE))
        return max(cost, min(self._size, left))

    def lapse(self, now_ns: int) -> None:
        """Count the tokens that were not used in time."""
        if now_ns >= self._until_ns and self._tokens:
            self._size = max(self._granted - self._tokens, 1)
            self._granted = 0
            self._lose()

    def _lose(self) -> None:
        self.lost += self._tokens
        self._counts["lost"] += self._tokens
        self._tokens = 0

    def receive(
        self, answer: Answer, cost: int, asked_ns: int, now_ns: int, *, left: float | None
    ) -> bool:
        """Take the limiter's answer; return whether the request may pass that it was asked for.

        Args:
            answer: the answer to the question for the amount of `wanted`.
            cost: the cost of the request.
            asked_ns: the time of the question, ns.
            now_ns: the time, ns.
            left: the remainder of the limit, requests; None: it is not known.
        """
        self._left = left
        if answer.degraded:
            self._size = 1
        elif answer.admitted:
            self._granted = answer.granted
            self._counts["leased"] += answer.granted
            self._tokens = max(answer.granted - cost, 0)
            self._until_ns = asked_ns + LEASE_NS
        else:
            # A question with a mistake, or above the burst, is refused however often it is asked.
            retry_s = answer.retry_after_s
            wait_ns = LEASE_NS if retry_s is None else min(int(retry_s * 1e9), LEASE_NS)
            self._refused_ns, self._refused_cost = now_ns + wait_ns, cost
        return answer.admitted
