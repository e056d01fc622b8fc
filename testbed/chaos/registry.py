"""All faults by name, and their distribution to fleets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from testbed.chaos import (
    clocks,
    configs,
    deaths,
    floods,
    interfaces,
    partitions,
    rekey,
    resources,
    upgrades,
)
from testbed.chaos.fault import KERNEL, NFQUEUE, Fault
from testbed.chaos.soak import BOTH, SOAK

FAULTS: Mapping[str, Fault] = {
    fault.name: fault
    for kind in (
        deaths, partitions, floods, rekey, clocks, configs, resources, interfaces, upgrades,
    )
    for fault in kind.FAULTS
}  # fmt: skip
"""The faults by name, in the order of the help."""

_WAYS = (KERNEL, NFQUEUE)

_FLEETS = (
    ("kill-one", "kill-most", "kill-all", "kill-change", "freeze", "corrupt", "forge", "replay"),
    ("partition", "partition-one-way", "partition-chain", "partition-flapping", "gossip-loss"),
    ("overflow", "wrong-config", "reload-storm", "interface-down", "interface-new"),
    ("clock-jumps", "disk-full", "descriptors", "rekey"),
    ("upgrade", "upgrade-default"),
)
"""Faults that share a fleet, one after another."""
_QUICK_FLEETS = (
    (KERNEL, ("kill-most", "kill-all", "kill-change", "corrupt", "forge", "replay", "disk-full")),
    (KERNEL, (*_FLEETS[1], "rekey", "clock-jumps")),
    (NFQUEUE, ("kill-one", "freeze", "overflow", "wrong-config", "descriptors")),
    (KERNEL, ("reload-storm", "interface-down", "interface-new")),
)
"""The stages of a quick run, with one datapath for each fault. Three run at a time: the last one
follows the third, and all end at about the same time."""
NOT_QUICK = (KERNEL, _FLEETS[-1])
"""Stages that a quick run leaves out unless their faults are named: they take minutes, and a fresh
clone may be shallow."""

Stage = tuple[str, tuple[str, ...]]
"""A fleet's datapath, and its faults."""


def stages(names: Collection[str], datapath: str | None, quick: bool) -> list[Stage]:
    """All stages, with the faults `names`, or with all faults if there are none."""
    fleets: Iterable[Stage] = (
        (*_QUICK_FLEETS, *((NOT_QUICK,) if names else ()))
        if quick and datapath is None
        else [(way, fleet) for way in ((datapath,) if datapath else _WAYS) for fleet in _FLEETS]
    )
    found: list[Stage] = [(BOTH, (SOAK,))] if SOAK in names else []
    for way, fleet in fleets:
        chosen = tuple(
            name for name in fleet if (not names or name in names) and way in FAULTS[name].datapaths
        )
        if chosen:
            found.append((way, chosen))
    return found
