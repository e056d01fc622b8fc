"""Interfaces by pattern: `eth*` stands for every interface whose name begins with `eth`.

A packet often crosses several interfaces of one host: a VLAN and the interface below it, a bond and
its member, a bridge and its port. A limit must count it once. So of interfaces that lie on each
other, a pattern stands for the lowest alone: what crosses the upper one crosses a lower one, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

STAR = "*"


def is_pattern(interface: str) -> bool:
    """Whether the name is a pattern, which stands for any number of interfaces."""
    return interface.endswith(STAR)


def covers(interface: str, name: str) -> bool:
    """Whether a name or a pattern stands for the interface of this name."""
    return name.startswith(interface[:-1]) if is_pattern(interface) else name == interface


class Followed(NamedTuple):
    """The interfaces that match a pattern."""

    names: list[str]
    """The names of the interfaces, sorted."""
    twice: list[str]
    """The interfaces whose packets may be counted twice: some, not all, of the interfaces below
    them match."""


def followed(pattern: str, below: Mapping[str, Sequence[str]]) -> Followed:
    """The interfaces that a pattern stands for, on a host with these interfaces.

    Args:
        pattern: such as `eth*`.
        below: by interface those that it lies on.
    """

    def counted(name: str) -> bool:
        """Whether all packets of an interface cross others below it that the pattern covers."""
        lower = below.get(name, ())
        return bool(lower) and all(covers(pattern, each) or counted(each) for each in lower)

    def touched(name: str) -> bool:
        return any(covers(pattern, each) or touched(each) for each in below.get(name, ()))

    names = sorted(name for name in below if covers(pattern, name) and not counted(name))
    return Followed(names, [name for name in names if touched(name)])
