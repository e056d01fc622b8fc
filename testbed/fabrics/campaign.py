"""Measures the cases, several at a time, and keeps each at once.

OUT/result.json has all runs. A repeated command does only the missing ones. Runs of a fabric whose
code has changed are repeated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testbed.fabrics import worker
from testbed.fabrics.case import Case
from testbed.harness.ledger import PREVIOUS, RESULT, read, write
from testbed.harness.pool import Pool
from testbed.harness.progress import Board
from testbed.harness.schedule import Room, Task
from testbed.provenance import digest, provenance

_DECISIVE = (
    "drld/model.py", "drld/record.py",
    *(f"drld/gossip/fabrics/{name}.py" for name in (
        "base", "link", "membership", "quiescence", "sliding_min",
    )),
    *(f"drld/gossip/wire/{name}.py" for name in (
        "layout", "message", "sequence", "update_codec",
    )),
    *("testbed/sim/network.py", "testbed/sim/lives.py"),
    *("testbed/fabrics/fleet.py", "testbed/fabrics/measure.py"),
)  # fmt: skip
"""Files that decide the results of every fabric."""
OWN = {
    "mesh": ("drld/gossip/fabrics/mesh*.py",),
    "pushsum": ("drld/gossip/fabrics/pushsum*.py",),
    "tree": ("drld/gossip/fabrics/tree*.py",),
}
"""Files that decide the results of one fabric."""


def decisive(fabric: str) -> tuple[str, ...]:
    """Patterns of the files that decide a fabric's results."""
    return *_DECISIVE, *OWN[fabric]


def code(fabric: str) -> str:
    """A digest of the files that decide a fabric's results."""
    return digest(decisive(fabric))


async def carry_out(wanted: Sequence[Case], out: Path, jobs: int, board: Board) -> dict[str, Any]:
    """Measure the missing cases, `jobs` at a time; return the result."""
    codes = {case.fabric: code(case.fabric) for case in wanted}
    earlier = read(out)
    runs = [] if earlier is None else earlier["runs"]
    kept = [run for run in runs if codes.get(run["case"]["fabric"], run["code"]) == run["code"]]
    if len(kept) < len(runs):
        (out / RESULT).replace(out / PREVIOUS)
        board.note(
            f"{out}: {len(runs) - len(kept)} runs are of other code, and are kept in {PREVIOUS}"
        )
    result = {**provenance(simulated=True), "runs": kept}
    write(result, out)
    known = [run["case"] for run in kept]
    tasks = {
        Task(f"{case.limiters:,} limiters, {case.part}, {case.variant}:", case.fabric, case.seed,
             simulated=True, seconds=case.expected_s): case
        for case in wanted
        if case.document not in known
    }  # fmt: skip
    pool = Pool(tasks, Room(jobs=1, processors=jobs), board)

    async def measure(task: Task) -> bool:
        answer = await pool.ask(task, worker.__name__, tasks[task].document, math.inf)
        result["runs"].append({**answer[worker.RECORD], "code": codes[task.allocator]})
        write(result, out)
        return True

    await pool.work_off(measure)
    return result
