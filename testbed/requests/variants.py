"""The buckets and rules that are compared, by name."""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping
from dataclasses import dataclass

from drld.requests.buckets.bucket import Bucket, Key, News
from drld.requests.buckets.counter import Counter
from drld.requests.buckets.delta_codec import Form
from drld.requests.buckets.ledger import Ledger
from drld.requests.buckets.policy import Policy
from drld.requests.buckets.queue import Birth, Element, Queue
from drld.requests.buckets.replica import Replica
from drld.requests.buckets.spread import Spread, flat, flat_among_all, least_informed
from drld.requests.buckets.urgency import FrequencyAnalysis, Slack

THRESHOLD_NS = 2_400_000_000
"""The thesis' threshold of frequency analysis (table 4.2)."""


class PromptQueue(Queue):
    """The other reading of the queue: the dead leave delta states before a message, too.

    By the text (4.2.1 and 5.4) they leave when a message comes, and may still travel until then.
    """

    __slots__ = ()

    def delta(self, news: News, now_ns: int) -> tuple[Element, ...]:
        """See `Bucket.delta`."""
        now = now_ns * self.policy.rate
        return super().delta({birth: d for birth, d in news.items() if d > now}, now_ns)


class SafeQueue(Queue):
    """The queue with the safe margin that section 5.4 proposes, and does not build.

    The dead do not count, but stay for `margin_ns`, so that elements that come late meet them.
    """

    __slots__ = ("_kept", "_margin_ns")

    def __init__(self, policy: Policy, origin: int, margin_ns: int) -> None:
        super().__init__(policy, origin)
        self._margin_ns = margin_ns
        self._kept: dict[Birth, int] = {}
        """The deaths of the dead that stay."""

    def _refill(self, now: int) -> None:
        for birth in self._births:
            if self._deaths[birth] > now:
                break
            self._kept[birth] = self._deaths[birth]
        super()._refill(now)
        gone = now - self._margin_ns * self.policy.rate
        for birth in [birth for birth, death in self._kept.items() if death <= gone]:
            del self._kept[birth]

    def merge(self, delta: tuple[Element, ...], now_ns: int) -> tuple[News, News]:
        """See `Bucket.merge`."""
        for birth, death in self._kept.items():
            insort(self._births, birth)
            self._deaths[birth] = death
        self._kept.clear()
        return super().merge(delta, now_ns)

    def forget(self, news: News, now_ns: int) -> None:
        """See `Bucket.forget`."""
        super().forget(news, now_ns - self._margin_ns)

    def idle(self, now_ns: int) -> bool:
        """See `Bucket.idle`."""
        return super().idle(now_ns) and not self._kept

    @property
    def entries(self) -> int:
        """See `Bucket.entries`: the dead take memory, too."""
        return super().entries + len(self._kept)


@dataclass(frozen=True, slots=True)
class Variant:
    """A kind of bucket and its rules of dissemination."""

    title: str
    form: Form
    spread: Spread = flat
    frequency: bool = False
    slack: bool = False
    literal: bool = False
    prompt: bool = False
    safe: bool = False

    @property
    def collects(self) -> bool:
        """Whether drained buckets are removed at leisure: the thesis' wait for a message."""
        return self.form is Form.LEDGER

    def bucket(self, policy: Policy, origin: int, nodes: int, interval_ns: int) -> Bucket:
        """A new bucket of a limiter among `nodes`."""
        if self.form is Form.COUNTER:
            return Counter(policy, origin, literal=self.literal)
        # Who is told last in a round robin is told after so many rounds.
        margin_ns = nodes * interval_ns
        if self.form is Form.QUEUE:
            if self.safe:
                return SafeQueue(policy, origin, margin_ns)
            return (PromptQueue if self.prompt else Queue)(policy, origin)
        return Ledger(policy, origin, interval_ns, margin_ns)

    def replica(
        self,
        policy: Policy,
        origin: int,
        peers: list[str],
        interval_ns: int,
        repeat_ns: int | None = None,
    ) -> Replica:
        """The replica of a limiter."""
        nodes = len(peers) + 1
        frequency = FrequencyAnalysis(max(2, policy.capacity // nodes), THRESHOLD_NS)
        # News are never older than in a round robin.
        slack = Slack(nodes * interval_ns)

        def make(_key: Key) -> Bucket:
            return self.bucket(policy, origin, nodes, interval_ns)

        return Replica(
            make, peers, self.spread, frequency=frequency if self.frequency else None,
            slack=slack if self.slack else None, repeat_ns=repeat_ns,
        )  # fmt: skip


VARIANTS: Mapping[str, Variant] = {
    "counter": Variant("counter", Form.COUNTER),
    "counter-literal": Variant("counter as printed", Form.COUNTER, literal=True),
    "counter-all": Variant("counter, a peer among all", Form.COUNTER, flat_among_all),
    "queue": Variant("queue", Form.QUEUE),
    "queue-linf": Variant("queue, LINF", Form.QUEUE, least_informed),
    "queue-frequency": Variant("queue, frequency analysis", Form.QUEUE, frequency=True),
    "queue-both": Variant("queue, both", Form.QUEUE, least_informed, frequency=True),
    "queue-prompt": Variant("queue that sends no dead", Form.QUEUE, prompt=True),
    "queue-safe": Variant("queue, safe margin", Form.QUEUE, safe=True),
    "ledger": Variant("ledger", Form.LEDGER),
    "ledger-slack": Variant("ledger, slack", Form.LEDGER, slack=True),
}
