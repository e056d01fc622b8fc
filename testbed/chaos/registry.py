"""All faults by name, and which share a fleet."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from testbed.chaos import (
    clocks,
    configs,
    deaths,
    hostile,
    interfaces,
    overload,
    partitions,
    resources,
)
from testbed.chaos.fault import KERNEL, NFQUEUE, Fault
from testbed.chaos.members import Member
from testbed.chaos.soak import BOTH, SOAK

FAULTS: Mapping[str, Fault] = {
    fault.name: fault
    for kind in (deaths, partitions, hostile, clocks, overload, configs, resources, interfaces)
    for fault in kind.FAULTS
}
"""In the order of the report."""

_FLEETS = (
    ("kill-one", "kill-most", "kill-all", "freeze", "corrupt", "forge", "replay"),
    ("partition", "partition-one-way", "partition-chain", "partition-flapping", "gossip-loss"),
    ("overflow", "wrong-config", "reload-storm", "interface-down", "interface-new"),
    ("clock-jumps", "disk-full", "descriptors"),
)
"""Faults that are done to one fleet, one after another."""
_QUICK_ON_NFQUEUE = frozenset({"kill-one", "freeze", "overflow", "wrong-config", "descriptors"})
"""Where there is time for one datapath. All others: the kernel's."""


def stages(
    names: Collection[str], datapath: str | None, quick: bool
) -> list[tuple[str, tuple[str, ...]]]:
    """Fleets by datapath, and the faults that are done to each; `names` are all if empty."""
    found: list[tuple[str, tuple[str, ...]]] = [(BOTH, (SOAK,))] if SOAK in names else []
    for way in (KERNEL, NFQUEUE) if datapath is None else (datapath,):
        for fleet in _FLEETS:
            chosen = tuple(
                name
                for name in fleet
                if (not names or name in names)
                and way in FAULTS[name].datapaths
                and not (quick and datapath is None and _quick_on(name) != way)
            )
            if chosen:
                found.append((way, chosen))
    return found


def _quick_on(name: str) -> str:
    return NFQUEUE if name in _QUICK_ON_NFQUEUE else KERNEL


def preparation(faults: Sequence[Fault]) -> Callable[[Member, Path], None]:
    """How the daemons of a fleet are started to which these are done."""

    def prepare(member: Member, state: Path) -> None:
        for fault in faults:
            if fault.prepare is not None:
                fault.prepare(member, state)

    return prepare
