"""The firewall rules that lead packets to the queue, and nothing but our own rules.

For each interface and direction with a limit there is one rule (one for each address family where
the tool wants it so), however many limits there are. Limits on packets coming in hang on the
prerouting hook, those on packets going out on postrouting, each right after the mangle tables of
everybody else, so that packet marks are set by then; addresses are those before destination NAT
on the way in, and before source NAT on the way out.

Where packets are charged when they arrived (`nfqueue.arrival`), a limit on packets going out
has three rules instead: the kernel forgets a packet's arrival between forward and postrouting. The
first takes what is forwarded at the forward hook, behind everybody's filters; the others take what
this host sends, at postrouting where its source is an address of this host, and at the output hook
where it is not (a transparent proxy, DHCP). A packet meets one of the three. A hook with a limit
that matches marks keeps its one rule, for marks may be set in postrouting.

A hook is bypassed when no daemon listens if its limits say `on_failure = "open"`; otherwise its
packets are dropped then. All of them have to agree, for they have one rule, and none may ask for a
share, for a dead daemon enforces none: those are refused.

Two tools: nft (an own table; narrowed to the prefixes that the limits name, where all of them
name some) and iptables (own chains in mangle; narrowed to the address family and, where there is
but one, to the prefix). Everything is named after the limiter, so that the leftovers of a killed
run are found again. Here is what the tools are told; `drld.capture.nfqueue.firewall` tells them.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from ipaddress import IPv4Network, IPv6Network

from drld.errors import DatapathError
from drld.spec import Direction, LimitSpec, OnFailure

NFT_PRIORITY = -149
"""One behind mangle, so that marks set there are seen whoever registered first."""

NFT_LATE_PRIORITY = 51
"""One behind security, which is behind filter."""


class Point(Enum):
    """Where in a packet's way a chain of ours hangs.

    The value is part of its name, and so none of nft's own words ("fwd").
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
    # Behind filter, so that nobody is charged for what a firewall refuses.
    "security": (Point.FORWARDED, Point.GENERATED),
    "mangle": (Point.IN, Point.OUT),
}
_TABLE_OF = {point: table for table, points in _TABLES.items() for point in points}
_PRIORITIES = {"security": NFT_LATE_PRIORITY, "mangle": NFT_PRIORITY}
_LABEL_BYTES = 19  # iptables chain names have 28: "drld-" + label + "-out"
_INTERFACE = re.compile(r"(?!-)[A-Za-z0-9._-]{1,15}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Hook:
    """The limits of one interface and direction, as far as the firewall is concerned."""

    interface: str
    direction: Direction
    bypass: bool
    """Packets pass when nobody listens to the queue."""
    families: tuple[int, ...]
    """4, 6 or both: what the limits can match at all."""
    side: str | None = None
    """`daddr` or `saddr`, if every limit names such a prefix."""
    prefixes: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Of that side, by family, disjoint and sorted."""
    stamped: bool = False
    """Packets going out are taken while the kernel knows when they arrived."""

    def places(self) -> tuple[tuple[Point, bool | None], ...]:
        """Where its packets are taken; and if told, whether they come from an own address."""
        if self.direction is Direction.IN:
            return ((Point.IN, None),)
        if not self.stamped:
            return ((Point.OUT, None),)
        return ((Point.FORWARDED, None), (Point.OUT, True), (Point.GENERATED, False))


def plan(limits: Iterable[LimitSpec], *, stamped: bool = False) -> tuple[Hook, ...]:
    """The hooks that these limits need, sorted by direction and interface.

    Args:
        limits: all of them.
        stamped: packets bear the time of their arrival.

    Raises:
        DatapathError: an interface name that a firewall could take for something else, or an
            `on_failure` that a queue cannot do.
    """
    groups: dict[tuple[str, str], list[LimitSpec]] = {}
    for limit in limits:
        match = limit.match
        if not _INTERFACE.fullmatch(match.interface):
            raise DatapathError(
                f"limit {limit.name}: no interface can be called {match.interface!r}"
            )
        groups.setdefault((match.direction.value, match.interface), []).append(limit)
    return tuple(
        _hook(interface, Direction(direction), group, stamped)
        for (direction, interface), group in sorted(groups.items())
    )


def _hook(interface: str, direction: Direction, limits: list[LimitSpec], stamped: bool) -> Hook:
    bypass = _bypass(f"{direction.value} {interface}", limits)
    stamped = (
        stamped and direction is Direction.OUT and all(limit.match.mark is None for limit in limits)
    )
    whole = Hook(interface, direction, bypass, (), stamped=stamped)
    families: set[int] = set()
    for match in (limit.match for limit in limits):
        prefix = match.destination or match.source
        families |= {4, 6} if prefix is None else {prefix.version}
    for side, name in (("daddr", "destination"), ("saddr", "source")):
        networks: list[IPv4Network | IPv6Network | None] = [
            getattr(limit.match, name) for limit in limits
        ]
        prefixes = {
            family: _disjoint([n for n in networks if n is not None and n.version == family])
            for family in sorted(families)
        }
        if None not in networks:
            return replace(whole, families=tuple(sorted(families)), side=side, prefixes=prefixes)
    return replace(whole, families=tuple(sorted(families)))


def _bypass(where: str, limits: Sequence[LimitSpec]) -> bool:
    for limit in limits:
        if limit.on_failure is OnFailure.SHARE:
            raise DatapathError(
                f'limit {limit.name}: on_failure = "share": only the kernel datapath keeps up a '
                'share when the daemon is dead; nfqueue has "open" and "closed"'
            )
    passing = [limit for limit in limits if limit.on_failure is OnFailure.OPEN]
    if passing and len(passing) < len(limits):
        other = next(limit for limit in limits if limit.on_failure is not OnFailure.OPEN)
        raise DatapathError(
            f'limit {passing[0].name}: on_failure = "open", but not of limit {other.name}: with '
            f"nfqueue the limits on {where} share a rule; only the kernel datapath can do both"
        )
    return bool(passing)


def _disjoint(networks: Iterable[IPv4Network | IPv6Network]) -> tuple[str, ...]:
    collapsed = ipaddress.collapse_addresses(networks)  # type: ignore[type-var]  # of one family
    return tuple(str(network) for network in collapsed)


def label(limiter: str) -> str:
    """What rules of this limiter are called: its name if that is simple, else part and hash."""
    if re.fullmatch(rf"[A-Za-z0-9._-]{{1,{_LABEL_BYTES}}}", limiter, re.ASCII):
        return limiter
    digest = hashlib.blake2s(limiter.encode(), digest_size=4).hexdigest()
    return f"{re.sub('[^A-Za-z0-9._-]', '_', limiter, flags=re.ASCII)[:10]}-{digest}"


# nft


def nft_table(limiter: str) -> str:
    """Name of the limiter's table in family inet."""
    return f"drld-{label(limiter)}"


def nft_install(limiter: str, hooks: Iterable[Hook], queue: int) -> str:
    """One transaction that makes the limiter's table hold these rules, whatever it held before.

    The chains stay across a reload and only their rules are exchanged: no packet finds none.
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
    """What narrows a hook: one condition for each rule that it takes, perhaps empty."""
    if hook.side is not None:
        return [
            f"{'ip' if family == 4 else 'ip6'} {hook.side} {{ {', '.join(prefixes)} }} "
            for family, prefixes in hook.prefixes.items()
            if prefixes
        ]
    return [""] if len(hook.families) == 2 else [f"meta nfproto ipv{hook.families[0]} "]


def nft_release(limiter: str) -> str:
    """One transaction after which the limiter's table has no rules."""
    table = f"inet {nft_table(limiter)}"
    return f"add table {table}\nflush table {table}\n"


def nft_remove(limiter: str) -> str:
    """One transaction after which the limiter's table is gone, existing or not before."""
    table = f"inet {nft_table(limiter)}"
    return f"add table {table}\ndelete table {table}\n"


# iptables


def iptables_chain(limiter: str, point: Point) -> str:
    """Name of the limiter's chain that hangs there."""
    return f"drld-{label(limiter)}-{point.value}"


@dataclass(frozen=True, slots=True)
class ChainState:
    """What there is of one of our chains."""

    exists: bool = False
    jumps: int = 0
    """Rules in the built-in chain that jump to it."""
    rules: tuple[str, ...] = ()
    """In it, as the tool lists them."""


def iptables_state(limiter: str, saved: str) -> dict[Point, ChainState]:
    """What the output of `iptables-save` holds of this limiter."""
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
    """Input of `iptables-restore --noflush` that makes our chains hold these rules.

    Our jump comes last in the built-in chain: whoever marks packets there does so before, and an
    accepted packet skips nobody's rules. Empty if there is nothing to do.
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
    """The same, that makes our chains what they were before; empty if they are."""
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
        # While a hook moves between one rule and three, a packet may meet two of them, not none.
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
    packets = f"{'-i' if hook.direction is Direction.IN else '-o'} {hook.interface}"
    prefixes = hook.prefixes.get(family, ())
    if len(prefixes) == 1:  # more would take a rule each
        packets += f" {'-d' if hook.side == 'daddr' else '-s'} {prefixes[0]}"
    if own is not None:
        packets += f" -m addrtype {'' if own else '! '}--src-type LOCAL"
    return packets


def operator_rules(limiter: str, hooks: Sequence[Hook], queue: int) -> str:
    """The rules in the words of both tools, for an operator who installs them by hand."""
    nothing = dict.fromkeys(Point, ChainState())
    parts = [f"# nft -f -\n{nft_install(limiter, hooks, queue)}"]
    for tool, family in (("iptables", 4), ("ip6tables", 6)):
        script = iptables_install(limiter, hooks, queue, family, nothing)
        if script:
            parts.append(f"# or: {tool}-restore --noflush\n{script}")
    return "\n".join(parts)
