"""The limits that a packet falls under: tuple-space search (Srinivasan, Suri, Varghese 1999).

The limits of one interface, direction and address family are grouped by the bits that they compare:
lengths of both prefixes, mask of the packet mark, protocol or not. The fields of a packet, side by
side, make one integer. A group is a mask over this integer, and a hash table from the masked
integer to the limits that want these bits. So a packet costs one lookup for each group, not for
each limit: ten thousand limits on a /24 each are one group. Only port ranges are compared one by
one, among the limits of one table entry.

All conditions of a limit must hold. A packet may fall under several limits, in the order of the
configuration. docs/matching.md states the rules, and tests/ hold a linear matcher as the reference.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from drld.capture.packet import Header
from drld.capture.patterns import covers, is_pattern
from drld.capture.spec import Match, match_of
from drld.police.direction import Direction
from drld.spec import LimitSpec

MEMORY = 3 * 4096
"""Entries for interfaces and families that are kept; the kernel has fewer interfaces at a time."""
_MARK_SHIFT = 8
_ADDRESS_SHIFT = 40
_ADDRESS_BITS = {4: 32, 6: 128}


class _Entry(NamedTuple):
    position: int
    """Place in the configuration."""
    limit: LimitSpec
    ports: Match | None
    """The limit's conditions, if it has port ranges to compare."""


_Groups = list[tuple[int, dict[int, list[_Entry]]]]


class Matcher:
    """An index of limits. Interfaces that only patterns name are indexed when they are met."""

    def __init__(self, limits: Iterable[LimitSpec]) -> None:
        """Index the limits; their order is the order of the answers."""
        self._in: dict[tuple[str, int], _Groups] = {}
        self._out: dict[tuple[str, int], _Groups] = {}
        self._entries: dict[tuple[Direction, str], list[_Entry]] = {}
        """Limits by direction and name or pattern."""
        for position, limit in enumerate(limits):
            match = match_of(limit)
            ports = match.source_ports or match.destination_ports
            entry = _Entry(position, limit, match if ports else None)
            self._entries.setdefault((match.direction, match.interface), []).append(entry)
        self._patterns = any(is_pattern(interface) for _, interface in self._entries)
        for direction, interface in self._entries:
            if not is_pattern(interface):
                self._index(interface, direction)

    def _index(self, interface: str, direction: Direction) -> None:
        """Index the limits of an interface, those of patterns included."""
        index = self._in if direction is Direction.IN else self._out
        tables: dict[int, dict[int, dict[int, list[_Entry]]]] = {0: {}, 4: {}, 6: {}}
        for (its_direction, name), entries in self._entries.items():
            if its_direction is not direction or not covers(name, interface):
                continue
            for entry in entries:
                match = match_of(entry.limit)
                for family in match.families():
                    value, mask = _bits(match, family)
                    tables[family].setdefault(mask, {}).setdefault(value, []).append(entry)
        for family, groups in tables.items():
            index[interface, family] = list(groups.items())

    def classify(
        self, header: Header, interface: str, direction: Direction, mark: int
    ) -> tuple[LimitSpec, ...]:
        """The limits that a packet falls under, in the order of the configuration.

        Args:
            header: the packet's headers (`packet.parse`).
            interface: the interface of arrival (`IN`) or departure (`OUT`).
            direction: the packet's direction at the hook.
            mark: the packet's mark, 32 bits.
        """
        family = header.family
        index = self._in if direction is Direction.IN else self._out
        groups = index.get((interface, family))
        if groups is None:
            if not self._patterns:
                return ()
            if len(index) >= MEMORY:  # names of containers come and go
                index.clear()
            self._index(interface, direction)
            groups = index[interface, family]
        flow = header.flow
        bits = mark << _MARK_SHIFT | flow.protocol
        if family:
            bits |= int.from_bytes(flow.source + flow.destination, "big") << _ADDRESS_SHIFT
        found: list[_Entry] = []
        for mask, table in groups:
            entries = table.get(bits & mask)
            if entries is not None:
                for entry in entries:
                    if entry.ports is None or _ports_match(entry.ports, header):
                        found.append(entry)
        if len(found) > 1:
            found.sort()  # by position, which is unique
        return tuple([entry.limit for entry in found])


def _bits(match: Match, family: int) -> tuple[int, int]:
    """Value and mask of a match over the integer that `classify` builds."""
    value = mask = 0
    width = _ADDRESS_BITS.get(family, 0)
    for prefix in (match.source, match.destination):
        value <<= width
        mask <<= width
        if prefix is not None:
            value |= int(prefix.network_address)
            mask |= int(prefix.netmask)
    mark_value, mark_mask = match.mark or (0, 0)
    value = value << 32 | mark_value
    mask = mask << 32 | mark_mask
    value <<= _MARK_SHIFT
    mask <<= _MARK_SHIFT
    if match.protocol is not None:
        value |= match.protocol
        mask |= 0xFF
    return value, mask


def _ports_match(match: Match, header: Header) -> bool:
    if not header.ports_known:
        return False
    flow = header.flow
    return _within(flow.source_port, match.source_ports) and _within(
        flow.destination_port, match.destination_ports
    )


def _within(port: int, ranges: tuple[tuple[int, int], ...]) -> bool:
    if not ranges:
        return True
    return any(low <= port <= high for low, high in ranges)
