"""All faults by name, and which share a fleet."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from testbed.chaos import deaths
from testbed.chaos.fault import KERNEL, NFQUEUE, Fault
from testbed.chaos.members import Member

FAULTS: Mapping[str, Fault] = {fault.name: fault for fault in (*deaths.FAULTS,)}
"""In the order of the report."""

_FLEETS: tuple[tuple[str, ...], ...] = (tuple(fault.name for fault in deaths.FAULTS),)
"""Faults that are done to one fleet, one after another."""
_QUICK: Mapping[str, str] = {}
"""The datapath that a fault is done to where there is time for one; if not said, the kernel's."""


def stages(
    names: Collection[str], datapath: str | None, quick: bool
) -> list[tuple[str, tuple[str, ...]]]:
    """Fleets by datapath, and the faults that are done to each; `names` are all if empty."""
    found = []
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
    fault = FAULTS[name]
    return _QUICK.get(name, fault.datapaths[0])


def preparation(faults: Sequence[Fault]) -> Callable[[Member, Path], None]:
    """How the daemons of a fleet are started to which these are done."""

    def prepare(member: Member, state: Path) -> None:
        for fault in faults:
            if fault.prepare is not None:
                fault.prepare(member, state)

    return prepare
