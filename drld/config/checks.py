"""Rules between the keys and the tables of a configuration.

Each check reads only tables without a mistake of their own, so that each mistake is reported once.
`None` in a list stands for a table with a mistake.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Sequence
from ipaddress import ip_address
from typing import TypeVar

from drld.config.problems import Location, Problems, dotted, hint, some
from drld.config.schema import LimiterTable, LimitTable, PeerTable
from drld.spec import format_endpoint

T = TypeVar("T", bound=Hashable)

SHARES_TOLERANCE = 1e-9


def check_fleet(
    limiter: LimiterTable | None, peers: Sequence[PeerTable | None], problems: Problems
) -> None:
    """Names and addresses are unique, and the addresses can reach each other."""
    names: dict[str, Location] = {}
    addresses: dict[str, Location] = {}
    if limiter:
        names[limiter.name] = ["limiter", "name"]
        addresses[format_endpoint(*limiter.listen)] = ["limiter", "listen"]
    for index, peer in enumerate(peers):
        if peer is None:
            continue
        _unique(["peer", index, "name"], peer.name, names, problems)
        _unique(["peer", index, "address"], format_endpoint(*peer.address), addresses, problems)
        if limiter:
            _check_reachable(limiter, index, peer, problems)


def _check_reachable(
    limiter: LimiterTable, index: int, peer: PeerTable, problems: Problems
) -> None:
    if reason := unreachable(limiter.listen[0], peer.address[0]):
        problems.refuse(["peer", index, "address"], peer.address[0], reason)


def unreachable(listen: str, address: str) -> str | None:
    """The phrase for addresses that `listen` can reach; None: it can reach `address`."""
    own, other = ip_address(listen), ip_address(address)
    if own.version != other.version:
        return f"IPv{own.version}, as limiter.listen"
    if own.is_loopback != other.is_loopback:
        return f"an address that limiter.listen ({own}) can reach: both loopback, or neither"
    return None


def check_limits(limits: Sequence[LimitTable | None], problems: Problems) -> None:
    """Ids and names are unique."""
    ids: dict[int, Location] = {}
    names: dict[str, Location] = {}
    for index, limit in enumerate(limits):
        if limit:
            _unique(["limit", index, "id"], limit.id, ids, problems)
            _unique(["limit", index, "name"], limit.name, names, problems)


def _unique(where: Location, value: T, seen: dict[T, Location], problems: Problems) -> None:
    if value in seen:
        other = problems.name(seen[value], beside=where)
        problems.refuse(where, value, f"unique, but {other} is the same")
    else:
        seen[value] = where


def check_shares(
    where: Location, shares: dict[str, float], members: Collection[str], problems: Problems
) -> None:
    """Shares, where given, name every limiter of the fleet and no other, and sum to 1."""
    if not shares:
        return
    check_limiters(where, shares, members, problems)
    if missing := sorted(set(members) - set(shares)):
        problems.add(where, f"must name every limiter of the fleet (missing: {some(missing)})")
    check_sum(where, shares, problems)


def check_limiters(
    where: Location, names: Iterable[str], members: Collection[str], problems: Problems
) -> None:
    """Names are those of limiters of the fleet."""
    for name in names:
        if name not in members:
            known = hint(name, sorted(members))
            stranger = dotted([name])
            problems.add([*where, name], f"{stranger} is not a limiter of this fleet; {known}")


def check_sum(where: Location, shares: dict[str, float], problems: Problems) -> None:
    """Shares, where given, sum to 1; a limiter that is not named has none."""
    if not shares:
        return
    total = math.fsum(shares.values())
    if abs(total - 1) > SHARES_TOLERANCE:
        problems.add(where, f"must sum to 1 (got {total:.12g})")


def check_alone(where: Location, allocator: str, size: int, problems: Problems) -> None:
    """The central token bucket is a fleet of one."""
    if allocator == "ctb" and size > 1:
        problems.refuse(
            where, allocator, "an allocator for several limiters: ctb is for one limiter alone"
        )


def check_fabric(where: Location, allocator: str, fabric: str, problems: Problems) -> None:
    """Refuse `adaptive` with push-sum, whose sums have no bound on their age."""
    if allocator == "adaptive" and fabric == "pushsum":
        problems.refuse(
            where, allocator, "an allocator for the fabric pushsum: adaptive needs a mesh or a tree"
        )
