"""The control API's reports on limits, in the types of drld.control.schema.

Rates and amounts are as an operator reads them (`Unit.shown_rate`): bits/s and bytes, or items of
another unit. Inside drld they are tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from drld import reload
from drld.control.ranking import Rank
from drld.control.schema.changes import ChangeReport, Difference
from drld.control.schema.limits import (
    FleetView,
    LimitReport,
    OverrideReport,
    SortKey,
    SuggestionReport,
    TraceRecord,
    WaitsReport,
)
from drld.engine import Engine
from drld.estimate.traffic_profile import suggest
from drld.limiter import Tick
from drld.managed_limit import ManagedLimit
from drld.model import NS_PER_S, Enforcement, FlowKey, Quantity
from drld.planes.explanation import Explanation, read_item
from drld.police.policer import Policer
from drld.police.waits import HasWaits
from drld.policy import Policy
from drld.spec import LimitSpec
from drld.units import Unit

_NOTHING: Mapping[int, list[str]] = MappingProxyType({})


def limit_reports(
    engine: Engine,
    now_ns: int,
    unsaved: Mapping[int, list[str]] = _NOTHING,
    ids: Sequence[int] | None = None,
) -> Iterator[LimitReport]:
    """The limits of these ids that exist, in this order; by default all, as configured.

    There are none before the engine has started. A reload between two reports may remove limits.
    `unsaved` has the keys of limits that are not saved, by id.
    """
    limits: Iterable[LimitSpec] = engine.spec.limits
    if ids is not None:
        wanted = set(ids)
        by_id = {limit.id: limit for limit in limits if limit.id in wanted}
        limits = [by_id[limit_id] for limit_id in ids if limit_id in by_id]
    return (
        limit_report(limit, managed, now_ns, unsaved.get(limit.id, ()))
        for limit in limits
        if (managed := engine.limits.get(limit.id)) is not None
    )


def ranks(engine: Engine, by: SortKey) -> Iterator[Rank]:
    """The sort keys of all limits, in the order of the configuration.

    This is cheap, because a client that shows 20 of 10,000 limits has all of them compared.
    """
    return (_rank(by, managed) for managed in list(engine.limits.values()))


def _rank(by: SortKey, managed: ManagedLimit) -> Rank:
    policy, tick = managed.limiter.policy, managed.last
    first: float | str = policy.name
    if by == "rate":
        first = -policy.unit.shown_rate(policy.rate)
    elif by != "name":
        demand = tick.demand.rate if tick else 0.0
        if by == "pressure":
            return Rank(-demand / policy.rate, policy.id, policy.name)
        local = tick.allocation.local_limit if tick and by == "excess" else 0.0
        # Without a local limit there is only a drop probability.
        above = demand - local if local is not None else demand * _dropped_part(tick)
        first = -policy.unit.shown_rate(max(above, 0.0))
    return Rank(first, policy.id, policy.name)


def _dropped_part(tick: Tick | None) -> float:
    return tick.enforcement.drop_probability if tick else 0.0


def limit_report(
    limit: LimitSpec, managed: ManagedLimit, now_ns: int, unsaved: Iterable[str] = ()
) -> LimitReport:
    """One limit at its last tick; a quiescent limit has not changed since."""
    policy, totals, tick = managed.limiter.policy, managed.totals, managed.last
    enforcement = _record(managed)
    unit = policy.unit
    return LimitReport(
        id=policy.id,
        name=policy.name,
        allocator=policy.means,
        mode=policy.mode.value,
        on_failure=limit.on_failure.value,
        excess=policy.excess.value if policy.excess else "",
        unsaved=[*unsaved],
        unit=unit.name,
        items=limit.match.items,
        rate_bps=unit.shown_rate(policy.rate),
        burst_bytes=unit.shown_amount(policy.burst),
        burst_is_automatic=policy.burst_is_automatic,
        interval_s=policy.interval_ns / NS_PER_S,
        weights=dict(policy.weights),
        flow=str(policy.flow or limit.match.flow),
        match=limit.match.data(),
        overrides=_overrides(policy),
        overrides_in_all=len(policy.keyed.overrides) if policy.keyed else 0,
        limit_in_force_bps=unit.shown_rate(tick.in_force.rate if tick else enforcement.fill_rate),
        demand_bps=unit.shown_rate(tick.demand.rate) if tick else 0.0,
        fleet=_fleet(managed, now_ns),
        local_limit_bps=local_limit_bps(tick),
        drop_probability=enforcement.drop_probability,
        fill_rate_bps=unit.shown_rate(enforcement.fill_rate),
        depth_bytes=_depth(enforcement, unit),
        arrived_bytes=unit.shown_amount(totals.arrived_tokens),
        arrived_packets=totals.arrived_items,
        forwarded_bytes=unit.shown_amount(totals.forwarded_tokens),
        forwarded_packets=totals.forwarded_items,
        dropped_bytes=unit.shown_amount(totals.dropped_tokens),
        dropped_packets=totals.dropped_items,
        marked_bytes=unit.shown_amount(totals.marked_tokens),
        marked_packets=totals.marked_items,
        flows=tick.demand.flows if tick else 0,
        waits=_waits(managed),
    )


def _waits(managed: ManagedLimit) -> WaitsReport | None:
    if not isinstance(managed.datapath, HasWaits):
        return None
    waits = managed.datapath.waits(managed.limiter.policy.id)
    p50_s, p95_s, p99_s = (value / NS_PER_S for value in waits.delays.quantiles_ns)
    return WaitsReport(
        waiting=waits.waiting,
        waited=waits.waited,
        p50_s=p50_s,
        p95_s=p95_s,
        p99_s=p99_s,
        clients=waits.clients,
    )


MOST_OVERRIDES = 20
"""Most overrides in one report: a limit may have thousands."""


def _overrides(policy: Policy) -> list[OverrideReport]:
    """The first keys that have a rate or burst of their own."""
    unit, keyed = policy.unit, policy.keyed
    return [
        OverrideReport(
            key=[*it.key],
            rate_bps=unit.shown_rate(it.rate),
            burst_bytes=unit.shown_amount(it.burst),
        )
        for it in (keyed.overrides[:MOST_OVERRIDES] if keyed else ())
    ]


def explainer(
    engine: Engine, clock: Callable[[], int], *, misses: bool
) -> Callable[[str], Iterator[Explanation]]:
    """A function that explains what each limit would do with an item now; see
    `Backend.explainer`."""
    explainers: dict[str, Any] = {}

    def policing(limit: LimitSpec, flow: FlowKey) -> tuple[Policer, Enforcement]:
        managed = engine.limits[limit.id]
        return managed.datapath.snapshot(limit.id, flow), _record(managed)

    def explain(text: str) -> Iterator[Explanation]:
        plane, item = read_item(text)
        its = explainers.get(plane.__name__)
        if its is None:
            its = explainers[plane.__name__] = plane.Explainer(engine.spec.limits, misses=misses)
        found: Iterator[Explanation] = its.explain(item, policing, clock())
        return found

    return explain


def suggestion(managed: ManagedLimit, part: float) -> SuggestionReport | int | None:
    """A rate that this part of the seconds did not exceed, and a burst; or the number of seconds
    with traffic, if they are too few; None: the limit has a bucket for each key, and only the sum
    of all keys is counted."""
    policy, profile = managed.limiter.policy, managed.profile
    if policy.keyed is not None:
        return None
    if profile is None:
        return 0
    unit = policy.unit
    found = suggest(profile, part, unit)
    if found is None:
        return profile.seconds
    return SuggestionReport(
        limit=policy.name,
        unit=unit.name,
        rate_bps=unit.shown_rate(found.rate),
        burst_bytes=unit.shown_amount(found.burst),
        part=part,
        seconds=profile.seconds,
        seen_s=profile.seen_s,
        interval_s=policy.interval_ns / NS_PER_S,
    )


def trace_record(limit: str, tick: Tick, unix_s: float) -> TraceRecord:
    """One line of `drlctl trace`."""
    measured, unit = tick.measurement, tick.unit
    rate = unit.shown_rate(NS_PER_S / measured.interval_ns)
    return TraceRecord(
        t=unix_s,
        limit=limit,
        unit=unit.name,
        arrived_bps=measured.arrived_tokens * rate,
        forwarded_bps=measured.forwarded_tokens * rate,
        dropped_bps=measured.dropped_tokens * rate,
        demand_bps=unit.shown_rate(tick.demand.rate),
        local=shared_value(tick.allocation.value, tick),
        remote=shared_value(tick.view.remote, tick),
        limit_in_force_bps=unit.shown_rate(tick.in_force.rate),
        local_limit_bps=local_limit_bps(tick),
        drop_probability=tick.enforcement.drop_probability,
        fill_rate_bps=unit.shown_rate(tick.enforcement.fill_rate),
        depth_bytes=_depth(tick.enforcement, unit),
        flows=tick.demand.flows,
    )


def change_report(
    changes: Iterable[reload.Difference], saved: str | None, needed_at: list[str]
) -> ChangeReport:
    """The report on a change of limits."""
    return ChangeReport(
        changes=[
            Difference(
                table=it.table,
                change=it.change,
                keys={key: [old, new] for key, (old, new) in it.keys.items()},
            )
            for it in changes
        ],
        saved=saved,
        needed_at=needed_at,
    )


def _fleet(managed: ManagedLimit, now_ns: int) -> FleetView:
    tick = managed.last
    age_ns = tick.view.age_ns if tick else None
    if age_ns is not None and managed.limiter.quiescent:
        age_ns = managed.limiter.membership.age_ns(now_ns)
    return FleetView(
        quantity="rate" if managed.limiter.fabric.quantity is Quantity.RATE else "weight",
        local=shared_value(tick.allocation.value, tick) if tick else 0.0,
        remote=shared_value(tick.view.remote, tick) if tick else 0.0,
        connected=sorted(tick.view.connected) if tick else [],
        unnamed=tick.view.unnamed if tick else 0,
        age_s=None if age_ns is None else age_ns / NS_PER_S,
    )


def shared_value(value: float, tick: Tick) -> float:
    """A shared value in operators' units: a weight is unchanged."""
    return tick.unit.shown_rate(value) if tick.quantity is Quantity.RATE else value


def _record(managed: ManagedLimit) -> Enforcement:
    """The record in force."""
    return managed.last.enforcement if managed.last else managed.limiter.initial()


def _depth(enforcement: Enforcement, unit: Unit) -> float | None:
    return None if enforcement.depth is None else unit.shown_amount(enforcement.depth)


def local_limit_bps(tick: Tick | None) -> float | None:
    """The rate in force here; None if there is none, or only a drop probability."""
    if tick is None or tick.enforcement == Enforcement():
        return None
    if tick.enforcement is not tick.allocation.enforcement:
        return tick.unit.shown_rate(tick.in_force.static_rate)
    limit = tick.allocation.local_limit
    return None if limit is None else tick.unit.shown_rate(limit)
