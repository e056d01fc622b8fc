"""Smallest packets: how many a second, and how many for each busy processor, each datapath passes.

One processor sends 64-byte frames as fast as it can; what it sends beyond what passes is dropped
by a queue that is full. Datapaths against none, as pairs of slices. For nfqueue the figure of merit
is another: drld against a loop on the same library that accepts every packet, for that is what one
process can do at most; and what a program in C does with the same queue.
"""

from __future__ import annotations

from testbed.bench.contestants import Daemon, Nothing, bare_loop, loop_in_c
from testbed.bench.lanes import Contestant, Setting, contest, ratios, values
from testbed.bench.summary import Outcome, Row, Target, row
from testbed.bench.traffic import SMALLEST_FRAME, Blast

RATIO = ("ratio", "")
_RATE, _PER_CORE = ("packets/s", "k"), ("packets/s and busy core", "k")
_SLICE_S = 1.0


async def measure(setting: Setting) -> Outcome:
    """Compare them, two at a time."""
    none, bare = "over none", "over a bare netfilterqueue loop"
    return Outcome(
        [
            *await _pair(setting, none, Nothing(), Daemon("kernel")),
            *await _pair(setting, none, Nothing(), Daemon("nfqueue")),
            *await _pair(setting, bare, bare_loop(), Daemon("nfqueue"), Target(0.85)),
            *await _pair(setting, bare, bare_loop(), loop_in_c()),
        ],
        RATIO[0],
    )


async def _pair(
    setting: Setting,
    group: str,
    reference: Contestant,
    rival: Contestant,
    target: Target | None = None,
) -> list[Row]:
    async with contest(setting, [reference, rival]) as field:
        blast = Blast(field, SMALLEST_FRAME, _SLICE_S)
        first, second = await field.alternate(
            f"{rival.name} {group}", setting.choose(9, 3), blast.measure
        )
    rows = [row(group, rival.name, RATIO, ratios(second, first, "pps"), target=target)]
    for contestant, seen in ((reference, first), (rival, second)):
        for metric, quantity in ((_RATE, "pps"), (_PER_CORE, "pps_per_core")):
            found = [pps / 1e3 for pps in values(seen, quantity)]
            rows.append(row(group, contestant.name, metric, found))
    return rows
