"""Attaches the datapaths of all planes to the limits of a configuration: all of them, or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from drld.errors import DatapathError
from drld.limiter import share_of, static_share
from drld.managed_limit import ManagedLimit
from drld.model import Enforcement
from drld.planes.plane import Plane
from drld.spec import LimiterSpec, LimitSpec

Records: TypeAlias = Mapping[Plane, Sequence[tuple[LimitSpec, Enforcement]]]
"""The limits of each plane, with the records that its datapath enforces at first."""


def attach_all(records: Records, before: Callable[[], Records] | None, now_ns: int) -> None:
    """Attach each plane's datapath.

    Args:
        records: what the datapaths are attached to.
        before: makes the records that those in `records` replace, to which the datapaths are
            attached again if one of them refuses; None: they are detached then.
        now_ns: the time, ns.

    Raises:
        DatapathError: a datapath refuses.
    """
    done = []
    try:
        for plane, its in records.items():
            plane.datapath.attach(its, now_ns)
            done.append(plane)
    except BaseException:
        for plane in done:
            if before is None:
                plane.datapath.detach()
            else:
                plane.datapath.attach(before()[plane], now_ns)
        raise


def records_of(
    planes: Sequence[Plane], spec: LimiterSpec, kept: Mapping[int, ManagedLimit], members: int
) -> Records:
    """Return the records of a configuration, for a fleet of so many members.

    A limit that is kept has the record of its last tick, and another limit its static share.

    Raises:
        DatapathError: no plane has the target of a limit.
    """
    records: dict[Plane, list[tuple[LimitSpec, Enforcement]]] = {it: [] for it in planes}
    for limit in spec.limits:
        if (managed := kept.get(limit.id)) is not None:
            record = managed.last.enforcement if managed.last else managed.limiter.initial()
        else:
            part = share_of(limit.policy.shares, spec.name, members)
            record = static_share(limit.policy, part)
        expected = limit
        if limit.policy.interval_ns > (look_ns := spec.gossip.interval_ns):
            # The datapath expects a heartbeat of the daemon in this interval: at every look.
            expected = replace(limit, policy=replace(limit.policy, interval_ns=look_ns))
        records[plane_of(limit, planes)].append((expected, record))
    return records


def plane_of(limit: LimitSpec, planes: Sequence[Plane]) -> Plane:
    """Return the plane of a limit's target.

    Raises:
        DatapathError: there is none.
    """
    for plane in planes:
        if isinstance(limit.match, plane.target):
            return plane
    reason = f"limit {limit.name}: this daemon has no plane for its target"
    raise DatapathError(reason, {limit.id: reason})
