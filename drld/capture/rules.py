"""The firewall rules that lead packets to the queue, and nothing but our own rules.

For each interface and direction with a limit there is one rule (one for each address family where
the tool wants it so), however many limits there are. Limits on packets coming in hang on the
prerouting hook, those on packets going out on postrouting, each right after the mangle tables of
everybody else, so that packet marks are set by then; addresses are those before destination NAT
on the way in, and before source NAT on the way out.

A hook is bypassed when no daemon listens only if every limit of it says `on_failure = "open"`;
otherwise its packets are dropped then. A dead daemon cannot enforce a share, so `share` counts as
closed here.

Two tools: nft (an own table; narrowed to the prefixes that the limits name, where all of them
name some) and iptables (own chains in mangle; narrowed to the address family and, where there is
but one, to the prefix). Everything is named after the limiter, so that the leftovers of a killed
run are found again. Here is what the tools are told; `drld.capture.firewall` tells them.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network

from drld.errors import DatapathError
from drld.spec import Direction, LimitSpec, OnFailure

NFT_PRIORITY = -149
"""One behind mangle, so that marks set there are seen whoever registered first."""

_HOOKS = {Direction.IN: "prerouting", Direction.OUT: "postrouting"}
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


def plan(limits: Iterable[LimitSpec]) -> tuple[Hook, ...]:
    """The hooks that these limits need, sorted by direction and interface.

    Raises:
        DatapathError: an interface name that a firewall could take for something else.
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
        _hook(interface, Direction(direction), group)
        for (direction, interface), group in sorted(groups.items())
    )


def _hook(interface: str, direction: Direction, limits: list[LimitSpec]) -> Hook:
    bypass = all(limit.on_failure is OnFailure.OPEN for limit in limits)
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
            return Hook(interface, direction, bypass, tuple(sorted(families)), side, prefixes)
    return Hook(interface, direction, bypass, tuple(sorted(families)))


def _disjoint(networks: Iterable[IPv4Network | IPv6Network]) -> tuple[str, ...]:
    # collapse_addresses wants one family, which is what it gets.
    return tuple(str(network) for network in ipaddress.collapse_addresses(networks))  # type: ignore[type-var]


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
    lines = [f"add table {table}"]
    for direction, hook_name in _HOOKS.items():
        chain = f"type filter hook {hook_name} priority {NFT_PRIORITY}; policy accept;"
        lines.append(f"add chain {table} {direction.value} {{ {chain} }}")
    lines.append(f"flush table {table}")
    for hook in hooks:
        interface = "iifname" if hook.direction is Direction.IN else "oifname"
        verdict = f"queue num {queue}{' bypass' if hook.bypass else ''}"
        rule = f'add rule {table} {hook.direction.value} {interface} "{hook.interface}"'
        if hook.side is not None:
            for family, prefixes in hook.prefixes.items():
                network = "ip" if family == 4 else "ip6"
                elements = ", ".join(prefixes)
                if elements:
                    lines.append(f"{rule} {network} {hook.side} {{ {elements} }} {verdict}")
        elif len(hook.families) == 2:
            lines.append(f"{rule} {verdict}")
        else:
            lines.append(f"{rule} meta nfproto ipv{hook.families[0]} {verdict}")
    return "\n".join(lines) + "\n"


def nft_release(limiter: str) -> str:
    """One transaction after which the limiter's table has no rules."""
    table = f"inet {nft_table(limiter)}"
    return f"add table {table}\nflush table {table}\n"


def nft_remove(limiter: str) -> str:
    """One transaction after which the limiter's table is gone, existing or not before."""
    table = f"inet {nft_table(limiter)}"
    return f"add table {table}\ndelete table {table}\n"


# iptables


def iptables_chain(limiter: str, direction: Direction) -> str:
    """Name of the limiter's chain in table mangle."""
    return f"drld-{label(limiter)}-{direction.value}"


@dataclass(frozen=True, slots=True)
class ChainState:
    """What there is of one of our chains."""

    exists: bool = False
    jumps: int = 0
    """Rules in the built-in chain that jump to it."""


def iptables_state(limiter: str, saved: str) -> dict[Direction, ChainState]:
    """What the output of `iptables-save` holds of this limiter."""
    mangle: list[str] = []
    table = ""
    for line in saved.splitlines():
        if line.startswith("*"):
            table = line[1:].strip()
        elif table == "mangle":
            mangle.append(line.strip())
    states = {}
    for direction, hook in _HOOKS.items():
        chain = iptables_chain(limiter, direction)
        states[direction] = ChainState(
            exists=any(line.startswith(f":{chain} ") for line in mangle),
            jumps=mangle.count(f"-A {hook.upper()} -j {chain}"),
        )
    return states


def iptables_install(
    limiter: str,
    hooks: Iterable[Hook],
    queue: int,
    family: int,
    states: Mapping[Direction, ChainState],
) -> str:
    """Input of `iptables-restore --noflush` that makes our chains hold these rules.

    Our jump comes last in the built-in chain: whoever marks packets there does so before, and an
    accepted packet skips nobody's rules. Empty if there is nothing to do.
    """
    relevant = [hook for hook in hooks if family in hook.families]
    chains: list[str] = []
    rules: list[str] = []
    for direction, builtin in _HOOKS.items():
        chain = iptables_chain(limiter, direction)
        state = states[direction]
        jump = f"{builtin.upper()} -j {chain}"
        wanted = [hook for hook in relevant if hook.direction is direction]
        if wanted:
            chains.append(f":{chain} - [0:0]")  # creates it, or empties it
            for hook in wanted:
                packets = f"{'-i' if direction is Direction.IN else '-o'} {hook.interface}"
                prefixes = hook.prefixes.get(family, ())
                if len(prefixes) == 1:  # more would take a rule each
                    packets += f" {'-d' if hook.side == 'daddr' else '-s'} {prefixes[0]}"
                target = f"NFQUEUE --queue-num {queue}{' --queue-bypass' if hook.bypass else ''}"
                rules.append(f"-A {chain} {packets} -j {target}")
            rules += [f"-D {jump}"] * (state.jumps - 1)
            if not state.jumps:
                rules.append(f"-A {jump}")
        else:
            rules += [f"-D {jump}"] * state.jumps
            if state.exists:
                rules += [f"-F {chain}", f"-X {chain}"]
    if not rules:
        return ""
    return "\n".join(["*mangle", *chains, *rules, "COMMIT"]) + "\n"


def operator_rules(limiter: str, hooks: Sequence[Hook], queue: int) -> str:
    """The rules in the words of both tools, for an operator who installs them by hand."""
    nothing = dict.fromkeys(_HOOKS, ChainState())
    parts = [f"# nft -f -\n{nft_install(limiter, hooks, queue)}"]
    for tool, family in (("iptables", 4), ("ip6tables", 6)):
        script = iptables_install(limiter, hooks, queue, family, nothing)
        if script:
            parts.append(f"# or: {tool}-restore --noflush\n{script}")
    return "\n".join(parts)
