"""The datapath of messages: the gate, and the buckets of the limits on its messages.

It is pure: the time and the source of random drops are arguments.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Protocol

from drld.allocators.base import bucket as plain_bucket
from drld.errors import DatapathError
from drld.messages.counts import Counts
from drld.messages.dropping import DroppingBucket, DroppingClient
from drld.messages.gate import Gate, Lane, Stage
from drld.messages.per_client import Bucket, PerClient
from drld.messages.recording import RecordedStage, Recording
from drld.messages.shadow import ShadowBucket
from drld.messages.spec import ITEM, BrokerSpec, Excess, match_of
from drld.messages.topics import Notation, check
from drld.messages.waiting import WaitingBucket, WaitingClient
from drld.model import NS_PER_S, Enforcement, FlowId, FlowKey, Measurement
from drld.police.policer import Policer
from drld.police.token_bucket import TokenBucket
from drld.police.waits import Waits
from drld.policy import Mode, Policy
from drld.spec import LimitSpec


@dataclass(slots=True)
class _Limit:
    """A limit, its buckets and its counts."""

    spec: LimitSpec
    stage: WaitingBucket | ShadowBucket | DroppingBucket | PerClient
    record: Enforcement
    earlier: Counts
    """The counts, without those of `waiting`."""
    waiting: WaitingBucket | None
    """The stage, if it is a bucket that messages wait for: it counts those that do not."""
    recording: Recording | None = None
    """The arrivals, while an operator profiles the limit."""

    @property
    def counts(self) -> Counts:
        """The counts until now."""
        if self.waiting is not None:
            self.earlier.at_once += self.waiting.take_at_once()
        return self.earlier


class Front(Protocol):
    """The part that moves the messages (`drld.messages.front`)."""

    def wake(self) -> None:
        """Look again at `Gate.due_ns`, because limits have changed."""

    def counters(self) -> Mapping[str, int]:
        """The counts by their names."""


class MessageDatapath:
    """Counts messages and decides when they pass (`drld.police.datapath.Datapath`)."""

    name = "messages"

    def __init__(self, brokers: Iterable[BrokerSpec], rng: Random) -> None:
        """Limit the messages to these brokers; `rng` decides random drops."""
        self.gate = Gate()
        self.brokers: Mapping[str, BrokerSpec] = {broker.name: broker for broker in brokers}
        self._rng = rng
        self._limits: dict[int, _Limit] = {}
        self._now_ns = 0
        self.front: Front | None = None
        """The part that moves messages; None: no broker's front listens."""

    @property
    def limits(self) -> Collection[LimitSpec]:
        """The limits that are attached."""
        return [limit.spec for limit in self._limits.values()]

    def attach(self, limits: Iterable[tuple[LimitSpec, Enforcement]], now_ns: int) -> None:
        """See `Datapath.attach`.

        Messages that wait for a removed limit leave at once. So do those of a limit that has
        another kind now: another excess or mode, or a bucket for each client.

        Raises:
            DatapathError: a topic filter is not in the notation of its broker's protocol.
        """
        pairs = list(limits)
        self._check(limit for limit, _ in pairs)
        before, self._limits = self._limits, {}
        for spec, record in pairs:
            old = before.get(spec.id)
            if old is not None and _kind(old.spec) == _kind(spec):
                self._limits[spec.id] = _kept(before.pop(spec.id), spec, record, now_ns)
            else:
                counts = Counts(now_ns) if old is None else old.counts
                recording = None if old is None else old.recording
                stage = self._stage(spec, counts, record, now_ns)
                waiting = stage if isinstance(stage, WaitingBucket) else None
                self._limits[spec.id] = _Limit(spec, stage, record, counts, waiting, recording)
        for gone in before.values():
            gone.stage.open(now_ns)
        self._route()

    def set_brokers(self, brokers: Mapping[str, BrokerSpec]) -> None:
        """Limit the messages to these brokers from now on, by their names."""
        self.brokers = brokers
        self._route()

    def _route(self) -> None:
        """Have the gate find the limits of each broker's topics."""
        stages: dict[str, tuple[Notation, list[tuple[str, Stage]]]] = {
            name: (broker.notation, []) for name, broker in self.brokers.items()
        }
        for limit in self._limits.values():
            match = match_of(limit.spec)
            stage: Stage = limit.stage
            if limit.recording is not None:
                stage = RecordedStage(stage, limit.recording)
            for name in match.broker:
                if name in stages:  # Other limiters of the fleet may have other brokers.
                    stages[name][1].append((match.topic, stage))
        self.gate.set_limits(stages)
        if self.front is not None:
            self.front.wake()

    def _check(self, limits: Iterable[LimitSpec]) -> None:
        refused = {}
        for limit in limits:
            match = match_of(limit)
            for name in match.broker:
                if name in self.brokers:
                    try:
                        check(match.topic, self.brokers[name].notation)
                    except ValueError as error:
                        refused[limit.id] = f"limit {limit.name}: match.topic: must be {error}"
        if refused:
            raise DatapathError("; ".join(refused.values()), refused)

    def _stage(
        self, spec: LimitSpec, counts: Counts, record: Enforcement, now_ns: int
    ) -> WaitingBucket | ShadowBucket | DroppingBucket | PerClient:
        policy, match = spec.policy, match_of(spec)
        drops, shadow = policy.excess is Excess.DROP, policy.mode is Mode.SHADOW
        if match.client is not None:
            assert policy.keyed is not None
            # In shadow mode, the messages that would be dropped are those that would wait.
            make = ShadowBucket if shadow else DroppingClient if drops else self._client
            return PerClient(match.client, make, counts, _each(policy), policy.keyed.max_keys)
        if drops:
            return DroppingBucket(policy, counts, record, now_ns, self._rng)
        if shadow:
            return ShadowBucket(counts, record, now_ns)
        return self._waiting(counts, record, now_ns)

    def _waiting(self, counts: Counts, record: Enforcement, now_ns: int) -> WaitingBucket:
        return WaitingBucket(self.gate, counts, record, now_ns)

    def _client(self, counts: Counts, record: Enforcement, now_ns: int) -> WaitingClient:
        return WaitingClient(self.gate, counts, record, now_ns)

    def waits(self, limit_id: int) -> Waits:
        """See `drld.police.waits.HasWaits`."""
        limit = self._limits[limit_id]
        counts, stage = limit.counts, limit.stage
        waiting = counts.waiting
        if isinstance(stage, (ShadowBucket, PerClient)):
            waiting += stage.would_wait(self._now_ns)
        clients = len(stage) if isinstance(stage, PerClient) else None
        return Waits(waiting, counts.ever_waited, counts.recent(self._now_ns), clients)

    def record(self, limit_id: int) -> Recording | None:
        """Record the arrivals of a limit from now on, until `stop_recording`.

        Returns the recording; None: the arrivals are already being recorded.

        Raises:
            KeyError: there is no such limit.
        """
        limit = self._limits[limit_id]
        if limit.recording is not None:
            return None
        limit.recording = Recording()
        self._route()
        return limit.recording

    def records(self, limit_id: int, recording: Recording) -> bool:
        """Whether a recording goes on; it ends with its limit."""
        limit = self._limits.get(limit_id)
        return limit is not None and limit.recording is recording

    def stop_recording(self, limit_id: int, recording: Recording) -> None:
        """End a recording."""
        if self.records(limit_id, recording):
            self._limits[limit_id].recording = None
            self._route()

    def had_traffic(self, among: Collection[int]) -> Collection[int]:
        """See `Datapath.had_traffic`; a limit that messages wait for counts as one with traffic."""
        # Each look does this to each idle limit, so it is one expression, and no call for each.
        limits = self._limits
        return [
            key
            for key in among
            if (limit := limits.get(key)) is not None
            and (
                ((it := limit.waiting) is not None and it.at_once)
                or ((its := limit.earlier).at_once or its.waiting or its.waited)
                or (its.dropped or its.late)
            )
        ]

    def read(self, limit_id: int, now_ns: int) -> Measurement:
        """See `Datapath.read`."""
        limit = self._limits[limit_id]
        if isinstance(limit.stage, DroppingBucket):
            return limit.stage.read(now_ns)
        if isinstance(limit.stage, PerClient):
            return limit.counts.read(now_ns)
        backlog, saturated = limit.stage.take_backlog(), limit.stage.take_saturated()
        return limit.counts.read(now_ns, backlog, saturated)

    def program(
        self, limit_id: int, enforcement: Enforcement, evict: Iterable[FlowId], now_ns: int
    ) -> None:
        """See `Datapath.program`."""
        limit = self._limits[limit_id]
        limit.record = enforcement
        if isinstance(limit.stage, DroppingBucket):
            limit.stage.program(enforcement, now_ns, evict)
        elif not isinstance(limit.stage, PerClient):
            limit.stage.program(enforcement, now_ns)

    def snapshot(self, limit_id: int, flow: FlowKey | Lane) -> Policer:
        """See `Datapath.snapshot`; the flow is a connection.

        In the snapshot, messages that wait have taken their tokens. So it shows how long the next
        one waits.
        """
        limit, now_ns = self._limits[limit_id], self._now_ns
        stage, record, policy = limit.stage, limit.record, limit.spec.policy
        if isinstance(stage, DroppingBucket):
            return stage.policer.copy()
        bucket: Bucket | ShadowBucket | WaitingBucket | None
        if isinstance(stage, PerClient):
            assert isinstance(flow, Lane)
            record, bucket = _each(policy), stage.of(flow)
        else:
            bucket = stage
        policer = Policer(policy, record, now_ns)
        if bucket is not None and record.depth is not None:
            tokens = bucket.tokens_at(now_ns) - len(bucket) * ITEM
            policer.bucket = TokenBucket(record, now_ns, tokens * NS_PER_S)
        return policer

    def set_share(self, limit_id: int, share: Enforcement) -> None:
        """See `Datapath.set_share`: without the daemon no message passes."""

    def flush(self, now_ns: int) -> None:
        """See `Datapath.flush`."""
        self._now_ns = now_ns
        if self.front is not None:
            self.front.wake()

    def counters(self) -> Mapping[str, int]:
        """The messages under no limit, those that expired, those of clients that share a bucket,
        and the front's counts."""
        shared = sum(
            limit.stage.overflowed
            for limit in self._limits.values()
            if isinstance(limit.stage, PerClient)
        )
        return {
            "messages_unmatched": self.gate.unmatched,
            "messages_expired": self.gate.expired,
            "messages_of_clients_beyond_the_bound": shared,
            **(self.front.counters() if self.front is not None else {}),
        }

    def detach(self) -> None:
        """See `Datapath.detach`: all messages that wait leave."""
        self.attach((), self._now_ns)


def _kind(spec: LimitSpec) -> tuple[object, ...]:
    """The properties that decide the class of a limit's stage."""
    return spec.policy.excess, spec.policy.mode is Mode.SHADOW, match_of(spec).client


def _each(policy: Policy) -> Enforcement:
    """The record of each client's bucket."""
    return Enforcement() if policy.mode is Mode.PAUSE else plain_bucket(policy.rate, policy.burst)


def _kept(limit: _Limit, spec: LimitSpec, record: Enforcement, now_ns: int) -> _Limit:
    """Keep a limit and its buckets, with another policy or match."""
    stage, old = limit.stage, limit.spec.policy
    limit.spec, limit.record = spec, record
    if isinstance(stage, PerClient):
        stage.set_record(_each(spec.policy), now_ns)
    elif isinstance(stage, ShadowBucket) and (old.rate, old.burst) != (
        spec.policy.rate,
        spec.policy.burst,
    ):
        stage.forget(record, now_ns)
    else:
        stage.program(record, now_ns)
        if isinstance(stage, DroppingBucket):
            stage.policer.reconfigure(spec.policy)
    return limit
