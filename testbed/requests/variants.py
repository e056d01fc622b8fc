"""The buckets and rules that are compared, by name."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from drld.requests.buckets.bucket import Bucket
from drld.requests.buckets.counter import Counter
from drld.requests.buckets.delta_codec import Form
from drld.requests.buckets.ledger import Ledger
from drld.requests.buckets.policy import Policy
from drld.requests.buckets.queue import Queue
from drld.requests.buckets.replica import Replica
from drld.requests.buckets.spread import Spread, flat, flat_among_all, least_informed
from drld.requests.buckets.urgency import FrequencyAnalysis, Slack

THRESHOLD_NS = 2_400_000_000
"""The thesis' threshold of frequency analysis (table 4.2)."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A kind of bucket and its rules of dissemination."""

    title: str
    form: Form
    spread: Spread = flat
    frequency: bool = False
    slack: bool = False
    literal: bool = False

    def bucket(self, policy: Policy, origin: int, nodes: int, interval_ns: int) -> Bucket:
        """A new bucket of a limiter among `nodes`."""
        if self.form is Form.COUNTER:
            return Counter(policy, origin, literal=self.literal)
        if self.form is Form.QUEUE:
            return Queue(policy, origin)
        # Who is told last in a round robin is told after so many rounds.
        return Ledger(policy, origin, interval_ns, nodes * interval_ns)

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

        def make(_key: Hashable) -> Bucket:
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
    "ledger": Variant("ledger", Form.LEDGER),
    "ledger-slack": Variant("ledger, slack", Form.LEDGER, slack=True),
}
