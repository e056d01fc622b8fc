"""The hooks of the nfqueue datapath as nft rules, pure.

The rules are in a table of their own, narrowed to the limits' prefixes if every limit has one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from drld.capture.queue_hooks import KERNEL_HOOKS, TABLE_OF, TABLES, Hook, Point, label
from drld.police.direction import Direction

PRIORITY = -149
"""Right after mangle, so that packet marks set there count, in any order of registration."""
LATE_PRIORITY = 51
"""Right after security, which is after filter."""
_PREFIX = "drld-"
"""Beginning of the names of all limiters' tables."""
_PRIORITIES = {"security": LATE_PRIORITY, "mangle": PRIORITY}


def nft_table(limiter: str) -> str:
    """Name of the limiter's table in family inet."""
    return f"{_PREFIX}{label(limiter)}"


def nft_others(limiter: str, tables: str) -> list[tuple[str, str]]:
    """The tables of other limiters in what `nft list tables` prints, and these limiters' labels."""
    names = (line.removeprefix("table inet ") for line in tables.splitlines())
    return [
        (name, name.removeprefix(_PREFIX))
        for name in names
        if name.startswith(_PREFIX) and name != nft_table(limiter)
    ]


def nft_interfaces(table: str) -> list[tuple[str, Direction]]:
    """The interfaces and patterns of the rules in what `nft list table` prints."""
    found = re.findall(r'\b([io])ifname "([^"]+)"', table)
    return [(name, Direction.IN if way == "i" else Direction.OUT) for way, name in found]


def nft_install(limiter: str, hooks: Iterable[Hook], queue: int) -> str:
    """A transaction that replaces the contents of the limiter's table by these rules.

    The chains stay across a reload and only their rules are exchanged: no packet misses a rule.
    """
    table = f"inet {nft_table(limiter)}"
    hooks = list(hooks)
    lines = [f"add table {table}"]
    for point in _nft_points(hooks):
        chain = f"type filter hook {KERNEL_HOOKS[point]} priority {_PRIORITIES[TABLE_OF[point]]}"
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


def nft_complete(limiter: str, hooks: Iterable[Hook], listed: str) -> bool:
    """Whether the limiter's table, as `nft list table` prints it, has as many rules as these hooks
    need."""
    wanted = nft_install(limiter, hooks, 0).count("\nadd rule ")
    return len(re.findall(r"\bqueue (?:num|to|flags) ", listed)) == wanted


def _nft_points(hooks: Iterable[Hook]) -> list[Point]:
    wanted = {point for hook in hooks for point, _ in hook.places()} | set(TABLES["mangle"])
    return [point for point in KERNEL_HOOKS if point in wanted]


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
