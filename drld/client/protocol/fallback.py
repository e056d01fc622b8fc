"""What a client does while no limiter answers: `on_failure` of each limit.

- `share`: the static share of the limiter, divided evenly by the processes that asked it when the
  limits were told last, in a bucket of this process. The buckets begin full. So all limiters and
  their clients together admit at most the limit and, once for each outage, the burst. A request
  larger than the bucket, and not above the limit's burst, passes when it is full, and leaves debt.
- `open` admits, `closed` refuses.

The limits are checked as a limiter does: all are, and then all are charged, or none is. A limit on
bytes counts 1,500 a request that says no size. Keys beyond `MAX_KEYS` share a bucket of their
limit: strangers who invent keys harm each other.
"""

from __future__ import annotations

from drld.client.protocol import check_codec
from drld.client.protocol.limit_table import LimitInfo, LimitTable
from drld.client.protocol.model import Answer, Question
from drld.errors import InputError
from drld.model import NS_PER_S, Enforcement
from drld.police.token_bucket import TokenBucket

MAX_KEYS = 10_000
"""The most buckets of a process: about 3 MB."""
CLOSED_RETRY_S = 1.0
"""The time after which a refused client may return, if no better one is known, s."""
WORDS = ("share", "open", "closed")

_Key = tuple[str, tuple[str, ...] | None]


class Fallback:
    """The decisions of one process."""

    def __init__(self, unknown: str) -> None:
        """`unknown` decides until the limiter has sent its limits: `open` or `closed`."""
        self._unknown = unknown
        self._table: LimitTable | None = None
        self._buckets: dict[_Key, TokenBucket] = {}

    @property
    def table(self) -> LimitTable | None:
        """The limits that the limiter has sent last; None: it has sent none."""
        return self._table

    def learn(self, table: LimitTable) -> None:
        """Use these limits, and forget this process's buckets: the limiter's buckets count now."""
        self._table = table
        # Another thread may decide now, with the buckets of before.
        self._buckets = {}

    def decide(self, question: Question, now_ns: int) -> Answer:
        """Decide instead of the limiter; with `at_least`, about that part of the cost.

        A question that cannot be written is a mistake, as with a limiter: otherwise a negative size
        would fill a bucket.
        """
        try:
            check_codec.record_of(0, question, check_codec.text_of(question))
        except InputError as error:
            return Answer(False, 0, error=str(error), degraded=True)
        cost = question.cost if question.at_least is None else question.at_least
        admitted = Answer(True, cost, degraded=True)
        if question.charge:
            # The request is done already, and no bucket can be charged.
            return admitted
        if self._table is None:
            return admitted if self._unknown == "open" else self._refusal(None, CLOSED_RETRY_S)
        charged: list[tuple[TokenBucket, int]] = []
        for limit in self._table.limits:
            if not limit.enforced or not limit.covers(question.namespace, question.descriptor):
                continue
            if limit.on_failure == "closed":
                return self._refusal(limit, CLOSED_RETRY_S)
            if limit.on_failure == "share":
                bucket = self._bucket(limit, question, now_ns)
                bucket.settle(now_ns)
                amount = _amount(limit, question, cost)
                if limit.burst is not None and amount > limit.burst:
                    return self._refusal(limit, None)
                wait_ns = bucket.wait_ns(amount, 0)
                if wait_ns != 0:
                    return self._refusal(limit, None if wait_ns is None else wait_ns / NS_PER_S)
                charged.append((bucket, amount if question.cost else 0))
        for bucket, amount in charged:
            bucket.charge(amount)
        return admitted

    def _bucket(self, limit: LimitInfo, question: Question, now_ns: int) -> TokenBucket:
        assert self._table is not None
        buckets = self._buckets
        key: _Key = limit.name, tuple(question.descriptor[name] for name in limit.per)
        if key not in buckets and len(buckets) >= MAX_KEYS:
            key = limit.name, None
        if (bucket := buckets.get(key)) is None:
            processes, burst = self._table.processes, limit.share_burst
            # A request fits, however many processes there are.
            depth = None if burst is None else max(burst // processes, min(limit.item, burst))
            share = Enforcement(fill_rate=limit.share_rate // processes, depth=depth)
            # Of several threads that make a bucket at once, all use the first one.
            bucket = buckets.setdefault(key, TokenBucket(share, now_ns))
        return bucket

    @staticmethod
    def _refusal(limit: LimitInfo | None, retry_s: float | None) -> Answer:
        name = None if limit is None else limit.name
        return Answer(False, 0, name, None, None, retry_s, degraded=True)


def _amount(limit: LimitInfo, question: Question, cost: int) -> int:
    if limit.unit == "bytes" and question.size is not None:
        return question.size
    return max(cost, 1) * limit.item
