"""The classification tables of a hook's BPF program (bpf/classify.h): pure.

The tables hold the tuple space of `drld.capture.matcher`. A group is a combination of source prefix
length, destination prefix length and mark mask. A packet costs one hash lookup for each group,
however many limits the group holds. Limits without prefixes and mark form a group without a lookup.
Limits with the same key that differ in protocol or ports are compared one by one.
The kernel's longest-prefix trie was no better: among 10,000 addresses in turn a lookup took 278 ns,
and one in a hash table 198 ns (2026-11-22).

The program's bounds are checked here. A refusal names the limits beyond the bound, the last ones of
the configuration: the tables fit without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from drld.capture.kernel_layout import (
    ANY_PROTOCOL,
    ENTRY,
    FAMILIES,
    FAMILY,
    FAMILY_BYTES,
    FOUND,
    GROUP,
    HOOK,
    KEY4,
    KEY6,
    MAX_COMPARISONS,
    MAX_ENTRIES,
    MAX_GROUPS,
    MAX_LIST,
    MAX_RANGES,
    PORTS,
    RANGE,
)
from drld.capture.spec import match_of
from drld.errors import DatapathError
from drld.spec import LimitSpec

_ADDRESS_BYTES = {4: 4, 6: 16, 0: 0}


@dataclass(frozen=True, slots=True)
class Tables:
    """The contents of one hook's maps."""

    hook: bytes
    entries: Sequence[bytes]
    ports: Sequence[bytes]
    keys4: Mapping[bytes, bytes]
    keys6: Mapping[bytes, bytes]


class _Placed(NamedTuple):
    position: int
    slot: int
    limit: LimitSpec


_Group = tuple[int, int, int]
"""Source prefix length, destination prefix length (-1: none), mark mask."""
_Key = tuple[bytes, bytes, int]
"""Source, destination and mark that a packet must have in the bits of the group."""


def tables(
    limits: Sequence[LimitSpec], slots: Mapping[int, int], cpus: int, link_bytes: int, seed: int
) -> Tables:
    """Make the tables of one hook from its limits, in the order of the configuration.

    Raises:
        DatapathError: the limits exceed a bound of the program; it names the last ones.
    """
    placed = [_Placed(position, slots[limit.id], limit) for position, limit in enumerate(limits)]
    builder = _Builder()
    families = []
    entries: list[Sequence[_Placed]] = []
    longest = 1
    for family in FAMILIES:
        groups = _groups(placed, family)
        longest = max(longest, _longest(groups))
        families.append(builder.family(groups, family))
        entries += (members for keys in groups.values() for members in keys.values())
    keys = max(1, builder.most_groups)
    if keys * builder.most_entries > MAX_COMPARISONS:
        beyond = [each for members in entries for each in members[MAX_COMPARISONS // keys :]]
        raise _refusal(
            f"the kernel datapath compares a packet with at most {MAX_COMPARISONS} limits, not "
            f"{keys * builder.most_entries}: {keys} combinations of prefix lengths and masks, "
            f"{builder.most_entries} limits that differ in protocol and ports; {_names(beyond)}",
            beyond,
        )
    by_source = any(limit.policy.flow is not None for limit in limits)
    hook = HOOK.pack(
        *(cpus, link_bytes, longest, builder.most_entries),
        *(len(builder.ports) > 1, by_source, seed),
    )
    return Tables(
        hook + b"".join(families), builder.entries, builder.ports, builder.keys4, builder.keys6
    )


class _Builder:
    def __init__(self) -> None:
        self.entries: list[bytes] = []
        self.ports: list[bytes] = [bytes(PORTS.size)]
        self.keys4: dict[bytes, bytes] = {}
        self.keys6: dict[bytes, bytes] = {}
        self.most_entries = 1
        self.most_groups = 0

    def family(
        self, groups: Mapping[_Group, Mapping[_Key, Sequence[_Placed]]], family: int
    ) -> bytes:
        hashed = [group for group in groups if group != (-1, -1, 0)]
        if len(hashed) > MAX_GROUPS:
            names = _names(next(iter(groups[group].values()))[0] for group in hashed)
            beyond = [groups[group].values() for group in hashed[MAX_GROUPS:]]
            raise _refusal(
                f"the kernel datapath takes at most {MAX_GROUPS} combinations of prefix lengths "
                f"and mark masks per interface and direction, not {len(hashed)}: limits {names}",
                [each for keys in beyond for members in keys for each in members],
            )
        self.most_groups = max(self.most_groups, len(groups))
        always = groups.get((-1, -1, 0), {})
        found = self._found(next(iter(always.values()))) if always else (0, 0)
        packed = FAMILY.pack(len(hashed), *found, _sole(groups))
        for number, group in enumerate(hashed):
            source, destination, mask = group
            packed += GROUP.pack(_mask(source, family), _mask(destination, family), mask)
            for key, members in groups[group].items():
                self._add(family, number, key, members)
        return packed.ljust(FAMILY_BYTES, b"\0")

    def _add(self, family: int, number: int, key: _Key, members: Sequence[_Placed]) -> None:
        source, destination, mark = key
        found = FOUND.pack(*self._found(members))
        if family == 6:
            self.keys6[KEY6.pack(number, mark, source, destination)] = found
        else:
            number += 0 if family else MAX_GROUPS
            self.keys4[KEY4.pack(number, mark, source, destination)] = found

    def _found(self, members: Sequence[_Placed]) -> tuple[int, int]:
        self.most_entries = max(self.most_entries, len(members))
        first = len(self.entries)
        for each in members:
            protocol = match_of(each.limit).protocol
            self.entries.append(
                ENTRY.pack(
                    each.slot,
                    each.position,
                    ANY_PROTOCOL if protocol is None else protocol,
                    self._ports(each),
                )
            )
        return first, len(members)

    def _ports(self, placed: _Placed) -> int:
        match = match_of(placed.limit)
        ranges = (match.source_ports, match.destination_ports)
        if not any(ranges):
            return 0
        if max(map(len, ranges)) > MAX_RANGES:
            raise _refusal(
                f"the kernel datapath takes at most {MAX_RANGES} port ranges: limit "
                f"{placed.limit.name} has more",
                [placed],
            )
        padded = [[*side, *[(1, 0)] * (MAX_RANGES - len(side))] for side in ranges]
        packed = [b"".join(RANGE.pack(*each) for each in side) for side in padded]
        self.ports.append(PORTS.pack(*map(len, ranges), *packed))
        return len(self.ports) - 1


def _groups(placed: Iterable[_Placed], family: int) -> dict[_Group, dict[_Key, list[_Placed]]]:
    """The limits that can match packets of a family, by group and key."""
    groups: dict[_Group, dict[_Key, list[_Placed]]] = {}
    for each in placed:
        match = match_of(each.limit)
        if family not in match.families():
            continue
        mark, mask = match.mark or (0, 0)
        width = _ADDRESS_BYTES[family]
        lengths = []
        values = []
        for prefix in (match.source, match.destination):
            lengths.append(-1 if prefix is None or not prefix.prefixlen else prefix.prefixlen)
            values.append(bytes(width) if prefix is None else prefix.network_address.packed)
        group = (lengths[0], lengths[1], mask)
        # A value outside its mask matches no packet, as in the matcher.
        if mark & ~mask:
            continue
        groups.setdefault(group, {}).setdefault((values[0], values[1], mark), []).append(each)
    return groups


def _sole(groups: Mapping[_Group, Mapping[_Key, Sequence[_Placed]]]) -> int:
    """1 + the slot of the only limit, if there is one limit and it matches every packet; else 0."""
    placed = [each for keys in groups.values() for members in keys.values() for each in members]
    if len(placed) != 1 or (-1, -1, 0) not in groups:
        return 0
    match = match_of(placed[0].limit)
    narrowed = match.protocol is not None or match.source_ports or match.destination_ports
    return 0 if narrowed else placed[0].slot + 1


def _mask(length: int, family: int) -> bytes:
    width = _ADDRESS_BYTES[family] * 8
    ones = (1 << width) - (1 << (width - max(length, 0)))
    return ones.to_bytes(width // 8, "big")


def _longest(groups: Mapping[_Group, Mapping[_Key, Sequence[_Placed]]]) -> int:
    """A bound on the number of limits that one packet can fall under.

    Each packet has a key that matches in a group, and no matching group covers that group. The key
    decides the packet's keys in all groups that its group covers. In groups that neither cover it
    nor are covered, the packet meets at most the longest entry.

    Raises:
        DatapathError: the bound is above `MAX_LIST`.
    """
    most = {group: max(map(_overlap, keys.values())) for group, keys in groups.items()}
    longest = 1
    for group, keys in groups.items():
        others = [other for other in groups if not _covers(group, other)]
        others = [other for other in others if not _covers(other, group)]
        beside = sum(most[other] for other in others)
        within = [other for other in groups if other != group and _covers(group, other)]
        for key, members in keys.items():
            met = [members, *(groups[other].get(_project(key, other), []) for other in within)]
            length = sum(map(_overlap, met)) + beside
            if length > MAX_LIST:
                met += (max(groups[other].values(), key=_overlap) for other in others)
                raise _refusal(
                    f"the kernel datapath takes at most {MAX_LIST} limits that one packet may "
                    f"fall under, not {length}: {_names(each for some in met for each in some)}",
                    _beyond_the_list(met),
                )
            longest = max(longest, length)
    return longest


def _beyond_the_list(entries: Iterable[Sequence[_Placed]]) -> list[_Placed]:
    """The limits to leave out, the last ones first, so that a packet falls under `MAX_LIST`."""
    kept: list[list[_Placed]] = []
    beyond = []
    places = ((place, each) for place, some in enumerate(entries) for each in some)
    for place, each in sorted(places, key=lambda placed: placed[1].position):
        kept += ([] for _ in range(len(kept), place + 1))
        kept[place].append(each)
        if sum(map(_overlap, kept)) > MAX_LIST:
            beyond.append(kept[place].pop())
    return beyond


def _overlap(members: Sequence[_Placed]) -> int:
    """A bound on the limits of one key that a packet can fall under, by protocol and ports.

    Raises:
        DatapathError: the key has more than `MAX_ENTRIES` limits.
    """
    if len(members) < 2:
        return len(members)
    if len(members) > MAX_ENTRIES:
        raise _refusal(
            f"the kernel datapath takes at most {MAX_ENTRIES} limits that differ only in "
            f"protocol and ports, not {len(members)}: {_names(members)}",
            members[MAX_ENTRIES:],
        )
    matches = [match_of(each.limit) for each in members]
    return max(
        min(
            _deepest([match.source_ports for match in some]),
            _deepest([match.destination_ports for match in some]),
        )
        for protocol in {match.protocol for match in matches}
        if (some := [match for match in matches if match.protocol in (None, protocol)])
    )


def _deepest(sides: Sequence[tuple[tuple[int, int], ...]]) -> int:
    """The most of these lists of ranges that hold one port; an empty list holds every port."""
    ports = {low for ranges in sides for low, _ in ranges} | {0}
    return max(
        sum(not ranges or any(low <= port <= high for low, high in ranges) for ranges in sides)
        for port in ports
    )


def _covers(group: _Group, other: _Group) -> bool:
    """Whether a packet's key of `group` decides its key of `other`."""
    return group[0] >= other[0] and group[1] >= other[1] and group[2] & other[2] == other[2]


def _project(key: _Key, group: _Group) -> _Key:
    return (_cut(key[0], group[0]), _cut(key[1], group[1]), key[2] & group[2])


def _cut(address: bytes, length: int) -> bytes:
    width = len(address) * 8
    kept = width - max(length, 0)
    return (int.from_bytes(address, "big") >> kept << kept).to_bytes(len(address), "big")


def _refusal(why: str, beyond: Iterable[_Placed]) -> DatapathError:
    return DatapathError(why, {each.limit.id: why for each in beyond})


def _names(placed: Iterable[_Placed]) -> str:
    names = [each.limit.name for each in placed]
    shown = ", ".join(names[:MAX_LIST])
    return shown + (f" and {len(names) - MAX_LIST} more" if len(names) > MAX_LIST else "")
