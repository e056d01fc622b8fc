"""The hooks of the nfqueue datapath as iptables rules, pure.

The rules are in chains of their own, in mangle and security, narrowed to the address family and to
a single prefix.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from drld.capture.patterns import STAR
from drld.capture.queue_hooks import KERNEL_HOOKS, TABLE_OF, TABLES, Hook, Point, label
from drld.police.direction import Direction


def iptables_chain(limiter: str, point: Point) -> str:
    """Name of the limiter's chain at a point."""
    return f"drld-{label(limiter)}-{point.value}"


def iptables_others(limiter: str, saved: str) -> list[tuple[str, Direction, str]]:
    """The rules of other limiters in what `iptables-save` prints.

    They are given by interface or pattern, direction, and the limiter's label.
    """
    points = "|".join(point.value for point in Point)
    found = re.findall(rf"^-A drld-(.+)-(?:{points}) .*?-([io]) (\S+)", saved, re.MULTILINE)
    return [
        (name.replace("+", STAR), Direction.IN if way == "i" else Direction.OUT, other)
        for other, way, name in found
        if other != label(limiter)
    ]


@dataclass(frozen=True, slots=True)
class ChainState:
    """The state of one of the limiter's chains."""

    exists: bool = False
    jumps: int = 0
    """Rules in the built-in chain that jump to the limiter's chain."""
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
    for point, hook in KERNEL_HOOKS.items():
        chain = iptables_chain(limiter, point)
        there = tables.get(TABLE_OF[point], [])
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
    """Input of `iptables-restore --noflush` that fills the limiter's chains with these rules.

    Our jump comes last in the built-in chain, so that rules that mark packets come first, and a
    packet that drld accepts has passed all other rules. Empty if there is nothing to do.
    """
    return _iptables_exchange(limiter, _iptables_wanted(limiter, hooks, queue, family), states)


def iptables_complete(
    limiter: str, hooks: Iterable[Hook], family: int, states: Mapping[Point, ChainState]
) -> bool:
    """Whether the limiter's chains have as many rules as these hooks need, and are reached."""
    wanted = _iptables_wanted(limiter, hooks, 0, family)
    return all(
        len(state.rules) == len(wanted[point]) and (state.jumps > 0 or not wanted[point])
        for point, state in states.items()
    )


def iptables_put_back(
    limiter: str, before: Mapping[Point, ChainState], states: Mapping[Point, ChainState]
) -> str:
    """Input of `iptables-restore` that restores the chains; empty if they have not changed."""
    if states == before:
        return ""
    reached = {point: state.rules if state.jumps else () for point, state in before.items()}
    return _iptables_exchange(limiter, reached, states)


def _iptables_wanted(
    limiter: str, hooks: Iterable[Hook], queue: int, family: int
) -> dict[Point, list[str]]:
    """The rules of each of the limiter's chains."""
    relevant = [hook for hook in hooks if family in hook.families]
    return {
        point: [
            f"-A {iptables_chain(limiter, point)} {_iptables_match(hook, family, own)} -j NFQUEUE"
            f" --queue-num {queue}{' --queue-bypass' if hook.bypass else ''}"
            for hook in relevant
            for place, own in hook.places()
            if place is point
        ]
        for point in Point
    }


def _iptables_exchange(
    limiter: str, wanted: Mapping[Point, Sequence[str]], states: Mapping[Point, ChainState]
) -> str:
    text: list[str] = []
    tables = list(TABLES.items())
    if len(wanted[Point.FORWARDED]) < len(states[Point.FORWARDED].rules):
        # While a hook changes between one rule and three, a packet may meet two rules, never none.
        tables.reverse()
    for table, points in tables:
        chains: list[str] = []
        rules: list[str] = []
        for point in points:
            chain = iptables_chain(limiter, point)
            state = states[point]
            jump = f"{KERNEL_HOOKS[point].upper()} -j {chain}"
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
