"""Smallest packets per second, and per busy processor, that each datapath passes.

One processor sends 64-byte frames as fast as it can, and a full queue drops the excess. Datapaths
are compared with an empty lane, in pairs of slices. For nfqueue the figure is another: drld against
a loop on the same library that accepts every packet, the most that one process can do. A program in
C on the same queue is measured, too.
"""

from __future__ import annotations

from testbed.bench.contestants import Drld, bare_loop, loop_in_c
from testbed.bench.lanes import Contestant, Setting, contest, ratios, values
from testbed.bench.summary import Outcome, Row
from testbed.bench.traffic import SMALLEST_FRAME, Blast

RATIO = ("ratio", "")
_RATE, _PER_CORE = ("packets/s", "k"), ("packets/s and busy core", "k")
_SLICE_S, _WARMUP_S = 0.5, 0.2


async def measure(setting: Setting) -> Outcome:
    """Compare the datapaths, two at a time."""
    contestants = {
        each.name: each
        for each in (Contestant(), Drld("kernel"), Drld("nfqueue"), bare_loop(), loop_in_c())
    }
    none, kernel, nfqueue, bare, in_c = contestants
    pairs = [(none, kernel, None), (none, nfqueue, None), (bare, nfqueue, 0.85),
             (bare, in_c, None)]  # fmt: skip
    rows: list[Row] = []
    async with contest(setting, list(contestants.values())) as field:
        blast = Blast(field, SMALLEST_FRAME, _SLICE_S, warmup_s=_WARMUP_S)
        places = {name: place for place, name in enumerate(contestants)}
        for reference, rival, goal in pairs:
            first, second = await field.alternate(
                f"{rival} over {reference}", setting.choose(15, 3), blast.measure,
                (places[reference], places[rival]),
            )  # fmt: skip
            group = f"over {reference}"
            found = ratios(second, first, "pps")
            rows.append(Row(group, rival, *RATIO, found, at_least=goal))
            for name, seen in ((reference, first), (rival, second)):
                for metric, quantity in ((_RATE, "pps"), (_PER_CORE, "pps_per_core")):
                    rates = [pps / 1e3 for pps in values(seen, quantity)]
                    rows.append(Row(group, name, *metric, rates))
    return Outcome(rows, RATIO[0])
