"""The firewall rules that send packets to the queue: input for nft and iptables, as pure functions.

Each interface and direction with a limit has one rule, however many limits it has (one rule for
each address family if the tool needs it). Rules for incoming packets are in prerouting, rules for
outgoing packets in postrouting. Both come right after the mangle tables of other programs, when
packet marks are set. Addresses are those before destination NAT for incoming packets, and before
source NAT for outgoing ones.

If packets are charged at their arrival (`nfqueue.arrival`), an outgoing hook has three rules,
because the kernel clears a packet's time stamp between forward and postrouting. The first takes
forwarded packets at the forward hook, after all filters. The others take the packets of this host:
at postrouting if the source is an address of this host, and at the output hook if it is not (a
transparent proxy, DHCP). A packet meets one of the three. A hook with a limit that matches packet
marks keeps its one rule, as marks may be set in postrouting.

While no daemon listens, packets of a hook pass if its limits say `on_failure = "open"`; otherwise
the kernel drops them. The limits of a hook share a rule, so they must agree. `"share"` is refused,
as a dead daemon enforces no share.

With nft the rules are in a table of their own, narrowed to the limits' prefixes if every limit has
one. With iptables they are in chains of their own, in mangle and security, narrowed to the address
family and to a single prefix. All names contain the limiter's name, by which the next run finds the
leftovers of a killed one. `drld.capture.nfqueue.firewall` runs the tools.
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

NFT_PRIORITY = -149
"""Right after mangle, so that packet marks set there count, in any order of registration."""

NFT_LATE_PRIORITY = 51
"""Right after security, which is after filter."""


class Point(Enum):
    """The place of one of our chains on a packet's path.

    The value is part of the chain's name, so it must not be a keyword of nft ("fwd").
    """

    IN = "in"
    OUT = "out"
    FORWARDED = "via"
    GENERATED = "gen"


_HOOKS = {
    Point.IN: "prerouting",
    Point.OUT: "postrouting",
    Point.FORWARDED: "forward",
    Point.GENERATED: "output",
}
_TABLES = {
    # After filter, so that no limit is charged for packets that a firewall refuses.
    "security": (Point.FORWARDED, Point.GENERATED),
    "mangle": (Point.IN, Point.OUT),
}
_TABLE_OF = {point: table for table, points in _TABLES.items() for point in points}
_PRIORITIES = {"security": NFT_LATE_PRIORITY, "mangle": NFT_PRIORITY}
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
    """4, 6 or both: the address families that the limits can match."""
    side: str | None = None
    """`daddr` or `saddr`, if every limit has a prefix of that side."""
    prefixes: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Prefixes of that side by family, disjoint and sorted."""
    stamped: bool = False
    """Whether outgoing packets are queued before the kernel clears their time stamp."""

    def places(self) -> tuple[tuple[Point, bool | None], ...]:
        """The points of the hook's rules, each for packets from this host's addresses or not.

        None in the place of the truth value: for all packets.
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
    """Whether there can be an interface for which both stand."""
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
        raise DatapathError(
            f'limit {passing[0].name}: on_failure = "open", but limit {other.name} has another: '
            f"with nfqueue all limits on {where} need the same; the kernel datapath can do both"
        )
    return passes


def _disjoint(networks: Iterable[IPv4Network | IPv6Network]) -> tuple[str, ...]:
    collapsed = ipaddress.collapse_addresses(networks)  # type: ignore[type-var]  # of one family
    return tuple(str(network) for network in collapsed)


def label(limiter: str) -> str:
    """The limiter's part of the names of its rules: its name if simple, else a part and a hash."""
    if re.fullmatch(rf"[A-Za-z0-9._-]{{1,{_LABEL_BYTES}}}", limiter, re.ASCII):
        return limiter
    digest = hashlib.blake2s(limiter.encode(), digest_size=4).hexdigest()
    return f"{re.sub('[^A-Za-z0-9._-]', '_', limiter, flags=re.ASCII)[:10]}-{digest}"


# nft


def nft_table(limiter: str) -> str:
    """Name of the limiter's table in family inet."""
    return f"drld-{label(limiter)}"


def nft_install(limiter: str, hooks: Iterable[Hook], queue: int) -> str:
    """A transaction that replaces the contents of the limiter's table by these rules.

    The chains stay across a reload and only their rules are exchanged: no packet misses a rule.
    """
    table = f"inet {nft_table(limiter)}"
    hooks = list(hooks)
    lines = [f"add table {table}"]
    for point in _nft_points(hooks):
        chain = f"type filter hook {_HOOKS[point]} priority {_PRIORITIES[_TABLE_OF[point]]}"
        lines.append(f"add chain {table} {point.value} {{ {chain}; policy accept; }}")
    lines.append(f"flush table {table}")
    for hook in hooks:
        interface = "iifname" if hook.direction is Direction.IN else "oifname"
        verdict = f"queue num {queue}{' bypass' if hook.bypass else ''}"
        for point, own in hook.places():
            rule = f'add rule {table} {point.value} {interface} "{hook.interface}"'
            if own is not None:
                rule += f" fib saddr type {'' if own else '!= '}local"
            lines += (f"{rule} {condition}{verdict}" for condition in _nft_conditions(hook))
    return "\n".join(lines) + "\n"


def _nft_points(hooks: Iterable[Hook]) -> list[Point]:
    wanted = {point for hook in hooks for point, _ in hook.places()} | set(_TABLES["mangle"])
    return [point for point in _HOOKS if point in wanted]


def _nft_conditions(hook: Hook) -> list[str]:
    """The conditions of a hook, one for each rule that it takes; a condition may be empty."""
    if hook.side is not None:
        return [
            f"{'ip' if family == 4 else 'ip6'} {hook.side} {{ {', '.join(prefixes)} }} "
            for family, prefixes in hook.prefixes.items()
            if prefixes
        ]
    return [""] if len(hook.families) == 2 else [f"meta nfproto ipv{hook.families[0]} "]


def nft_release(limiter: str) -> str:
    """A transaction that removes all rules from the limiter's table."""
    table = f"inet {nft_table(limiter)}"
    return f"add table {table}\nflush table {table}\n"


def nft_remove(limiter: str) -> str:
    """A transaction that removes the limiter's table, if it exists."""
    table = f"inet {nft_table(limiter)}"
    return f"add table {table}\ndelete table {table}\n"


# iptables


def iptables_chain(limiter: str, point: Point) -> str:
    """Name of the limiter's chain at a point."""
    return f"drld-{label(limiter)}-{point.value}"


@dataclass(frozen=True, slots=True)
class ChainState:
    """The state of one of our chains."""

    exists: bool = False
    jumps: int = 0
    """Rules in the built-in chain that jump to ours."""
    rules: tuple[str, ...] = ()
    """The chain's rules, as the tool lists them."""


def iptables_state(limiter: str, saved: str) -> dict[Point, ChainState]:
    """The state of this limiter's chains, from the output of `iptables-save`."""
    tables: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in saved.splitlines():
        if line.startswith("*"):
            lines = tables.setdefault(line[1:].strip(), [])
        else:
            lines.append(line.strip())
    states = {}
    for point, hook in _HOOKS.items():
        chain = iptables_chain(limiter, point)
        there = tables.get(_TABLE_OF[point], [])
        states[point] = ChainState(
            exists=any(line.startswith(f":{chain} ") for line in there),
            jumps=there.count(f"-A {hook.upper()} -j {chain}"),
            rules=tuple(line for line in there if line.startswith(f"-A {chain} ")),
        )
    return states


def iptables_install(
    limiter: str,
    hooks: Iterable[Hook],
    queue: int,
    family: int,
    states: Mapping[Point, ChainState],
) -> str:
    """Input of `iptables-restore --noflush` that replaces our chains' contents by these rules.

    Our jump comes last in the built-in chain, so that rules that mark packets come first, and a
    packet that we accept has passed all other rules. Empty if there is nothing to do.
    """
    relevant = [hook for hook in hooks if family in hook.families]
    wanted = {
        point: [
            f"-A {iptables_chain(limiter, point)} {_iptables_match(hook, family, own)} -j NFQUEUE"
            f" --queue-num {queue}{' --queue-bypass' if hook.bypass else ''}"
            for hook in relevant
            for place, own in hook.places()
            if place is point
        ]
        for point in Point
    }
    return _iptables_exchange(limiter, wanted, states)


def iptables_put_back(
    limiter: str, before: Mapping[Point, ChainState], states: Mapping[Point, ChainState]
) -> str:
    """Input of `iptables-restore` that restores our chains; empty if they have not changed."""
    if states == before:
        return ""
    reached = {point: state.rules if state.jumps else () for point, state in before.items()}
    return _iptables_exchange(limiter, reached, states)


def _iptables_exchange(
    limiter: str, wanted: Mapping[Point, Sequence[str]], states: Mapping[Point, ChainState]
) -> str:
    text: list[str] = []
    tables = list(_TABLES.items())
    if len(wanted[Point.FORWARDED]) < len(states[Point.FORWARDED].rules):
        # While a hook changes between one rule and three, a packet may meet two rules, never none.
        tables.reverse()
    for table, points in tables:
        chains: list[str] = []
        rules: list[str] = []
        for point in points:
            chain = iptables_chain(limiter, point)
            state = states[point]
            jump = f"{_HOOKS[point].upper()} -j {chain}"
            rules += wanted[point]
            rules += [f"-D {jump}"] * (state.jumps - 1 if wanted[point] else state.jumps)
            if wanted[point]:
                chains.append(f":{chain} - [0:0]")  # creates it, or empties it
                rules += [] if state.jumps else [f"-A {jump}"]
            elif state.exists:
                rules += [f"-F {chain}", f"-X {chain}"]
        if rules:
            text += [f"*{table}", *chains, *rules, "COMMIT"]
    return "\n".join([*text, ""])


def _iptables_match(hook: Hook, family: int, own: bool | None) -> str:
    interface = hook.interface.replace(STAR, "+")
    packets = f"{'-i' if hook.direction is Direction.IN else '-o'} {interface}"
    prefixes = hook.prefixes.get(family, ())
    if len(prefixes) == 1:  # several prefixes would take a rule each
        packets += f" {'-d' if hook.side == 'daddr' else '-s'} {prefixes[0]}"
    if own is not None:
        packets += f" -m addrtype {'' if own else '! '}--src-type LOCAL"
    return packets


def operator_rules(limiter: str, hooks: Sequence[Hook], queue: int) -> str:
    """The rules in the languages of both tools, for an operator to install by hand."""
    nothing = dict.fromkeys(Point, ChainState())
    parts = [f"# nft -f -\n{nft_install(limiter, hooks, queue)}"]
    for tool, family in (("iptables", 4), ("ip6tables", 6)):
        script = iptables_install(limiter, hooks, queue, family, nothing)
        if script:
            parts.append(f"# or: {tool}-restore --noflush\n{script}")
    return "\n".join(parts)
