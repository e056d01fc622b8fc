"""The firewall hooks of the nfqueue datapath: where packets of the limits are queued, pure.

Each interface and direction with a limit has one hook, however many limits it has. Hooks of
incoming packets are in prerouting, those of outgoing packets in postrouting. Both come right after
the mangle tables of other programs, when packet marks are set. Addresses are those before
destination NAT for incoming packets, and before source NAT for outgoing ones.

If packets are charged at their arrival (`nfqueue.arrival`), an outgoing hook has three rules,
because the kernel clears a packet's time stamp between forward and postrouting. The first takes
forwarded packets at the forward hook, after all filters. The others take the packets of this host.
They are at postrouting if the source is an address of this host, and at the output hook if not (a
transparent proxy, DHCP). A packet meets one of the three. A hook with a limit that matches packet
marks keeps its one rule, as marks may be set in postrouting.

While no daemon listens, packets of a hook pass if its limits say `on_failure = "open"`; otherwise
the kernel drops them. The limits of a hook share a rule, so they must agree. `"share"` is refused,
as a dead daemon enforces no share.

`nft_rules` and `iptables_rules` write these hooks in the languages of the tools. All names contain
the limiter's name, by which its next run finds the rules that a killed run left.
`drld.capture.nfqueue.firewall` runs the tools.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from ipaddress import IPv4Network, IPv6Network

from drld.capture.patterns import STAR, covers, is_pattern
from drld.capture.spec import match_of
from drld.errors import DatapathError
from drld.police.direction import Direction
from drld.policy import Mode
from drld.spec import LimitSpec, OnFailure


class Point(Enum):
    """The place of one of the limiter's chains on a packet's path.

    The value is part of the chain's name, so it must not be a keyword of nft ("fwd").
    """

    IN = "in"
    OUT = "out"
    FORWARDED = "via"
    GENERATED = "gen"


KERNEL_HOOKS = {
    Point.IN: "prerouting",
    Point.OUT: "postrouting",
    Point.FORWARDED: "forward",
    Point.GENERATED: "output",
}
"""The kernel's hook at each point."""
TABLES = {
    # After filter, so that no limit is charged for packets that a firewall refuses.
    "security": (Point.FORWARDED, Point.GENERATED),
    "mangle": (Point.IN, Point.OUT),
}
"""The points that come right after each table of the kernel."""
TABLE_OF = {point: table for table, points in TABLES.items() for point in points}
"""The table of each point."""
_LABEL_BYTES = 19  # iptables chain names have 28: "drld-" + label + "-out"
_INTERFACE = re.compile(r"(?!-)[A-Za-z0-9._-]{1,15}|(?!-)[A-Za-z0-9._-]{1,14}\*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Hook:
    """The firewall's view of the limits of one interface, or pattern, and direction."""

    interface: str
    direction: Direction
    bypass: bool
    """Whether packets pass while no daemon listens to the queue."""
    families: tuple[int, ...]
    """The address families that the limits can match: 4, 6 or both."""
    side: str | None = None
    """The side of which every limit has a prefix, `daddr` or `saddr`; None: there is no such
    side."""
    prefixes: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """The prefixes of this side by family, disjoint and sorted."""
    stamped: bool = False
    """Whether outgoing packets are queued before the kernel clears their time stamp."""

    def places(self) -> tuple[tuple[Point, bool | None], ...]:
        """The points of the hook's rules; whether each is for packets from this host's addresses.

        None in place of the truth value: the rule is for all packets.
        """
        if self.direction is Direction.IN:
            return ((Point.IN, None),)
        if not self.stamped:
            return ((Point.OUT, None),)
        return ((Point.FORWARDED, None), (Point.OUT, True), (Point.GENERATED, False))


def plan(limits: Iterable[LimitSpec], *, stamped: bool = False) -> tuple[Hook, ...]:
    """The hooks that these limits need, sorted by direction and interface.

    Args:
        limits: all limits.
        stamped: whether packets have a time stamp of their arrival.

    Raises:
        DatapathError: an interface name is unsafe in firewall rules, or a queue cannot do what
            `on_failure` says.
    """
    groups: dict[tuple[str, str], list[LimitSpec]] = {}
    for limit in limits:
        match = match_of(limit)
        if not _INTERFACE.fullmatch(match.interface):
            raise DatapathError(
                f"limit {limit.name}: no interface can be called {match.interface!r}"
            )
        groups.setdefault((match.direction.value, match.interface), []).append(limit)
    outgoing = {interface: theirs for (way, interface), theirs in groups.items() if way == "out"}
    if any(map(is_pattern, outgoing)):
        # Else a packet could meet a rule of a pattern at one point, and one of a name at another.
        every = [match_of(limit) for theirs in outgoing.values() for limit in theirs]
        stamped = stamped and all(match.mark is None for match in every)
    hooks = []
    for (way, interface), group in sorted(groups.items()):
        # A packet meets the first rule that covers it, for all of its limits.
        beside = [
            limit
            for (other, pattern), theirs in groups.items()
            if other == way and pattern != interface and _overlap(pattern, interface)
            for limit in theirs
        ]
        bypass = _bypass(f"{way} {interface}", [*group, *beside])
        hooks.append(_hook(interface, Direction(way), group, stamped, bypass))
    return tuple(hooks)


def _overlap(one: str, other: str) -> bool:
    """Whether both names or patterns may stand for one interface."""
    return covers(one, other.rstrip(STAR)) or covers(other, one.rstrip(STAR))


def _hook(
    interface: str, direction: Direction, limits: list[LimitSpec], stamped: bool, bypass: bool
) -> Hook:
    matches = [match_of(limit) for limit in limits]
    stamped = (
        stamped and direction is Direction.OUT and all(match.mark is None for match in matches)
    )
    whole = Hook(interface, direction, bypass, (), stamped=stamped)
    families: set[int] = set()
    for match in matches:
        prefix = match.destination or match.source
        families |= {4, 6} if prefix is None else {prefix.version}
    for side, name in (("daddr", "destination"), ("saddr", "source")):
        networks: list[IPv4Network | IPv6Network | None] = [
            getattr(match, name) for match in matches
        ]
        prefixes = {
            family: _disjoint([n for n in networks if n is not None and n.version == family])
            for family in sorted(families)
        }
        if None not in networks:
            return replace(whole, families=tuple(sorted(families)), side=side, prefixes=prefixes)
    return replace(whole, families=tuple(sorted(families)))


def pass_without_daemon(limits: Iterable[LimitSpec]) -> bool:
    """Whether the packets of these limits pass while no daemon judges them: no limit stops them.

    A limit that is not in mode `enforce` stops nothing, unless `on_failure` is written for it.
    """
    return all(limit.on_failure is OnFailure.OPEN or _is_silent(limit) for limit in limits)


def _is_silent(limit: LimitSpec) -> bool:
    return limit.on_failure is OnFailure.DEFAULT and limit.policy.mode is not Mode.ENFORCE


def _bypass(where: str, limits: Sequence[LimitSpec]) -> bool:
    for limit in limits:
        if limit.on_failure is OnFailure.SHARE:
            raise DatapathError(
                f'limit {limit.name}: on_failure = "share": only the kernel datapath enforces a '
                'share while the daemon is dead; nfqueue has "open" and "closed"'
            )
    passing = [limit for limit in limits if limit.on_failure is OnFailure.OPEN]
    passes = pass_without_daemon(limits)
    if passing and not passes:
        other = next(limit for limit in limits if not pass_without_daemon([limit]))
        closed = '"closed"' if other.on_failure is OnFailure.CLOSED else 'the default, "closed"'
        raise DatapathError(
            f'limit {passing[0].name}: on_failure = "open", but limit {other.name} has {closed}: '
            f"with nfqueue all limits on {where} need the same; the kernel datapath can do both"
        )
    return passes


def _disjoint(networks: Iterable[IPv4Network | IPv6Network]) -> tuple[str, ...]:
    collapsed = ipaddress.collapse_addresses(networks)  # type: ignore[type-var]  # one family
    return tuple(str(network) for network in collapsed)


def label(limiter: str) -> str:
    """Return the limiter's part of the names of its rules: its name if that is simple, otherwise a
    part of the name and a hash."""
    if re.fullmatch(rf"[A-Za-z0-9._-]{{1,{_LABEL_BYTES}}}", limiter, re.ASCII):
        return limiter
    digest = hashlib.blake2s(limiter.encode(), digest_size=4).hexdigest()
    return f"{re.sub('[^A-Za-z0-9._-]', '_', limiter, flags=re.ASCII)[:10]}-{digest}"
