"""Measures the cases, several at a time, and keeps each at once.

OUT/result.json has all runs. A repeated command does only the missing ones. Runs of a fabric whose
code has changed are repeated.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from testbed.fabrics.case import Case
from testbed.fabrics.measure import measure
from testbed.harness.ledger import PREVIOUS, RESULT, read, write
from testbed.harness.progress import Progress
from testbed.provenance import digest, provenance

_LOW_PRIORITY = 10
_DECISIVE = (
    "drld/model.py",
    *(f"drld/gossip/fabrics/{name}.py" for name in (
        "base", "link", "membership", "quiescence", "sliding_extreme",
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


def carry_out(wanted: Sequence[Case], out: Path, jobs: int, progress: Progress) -> dict[str, Any]:
    """Measure the missing cases, `jobs` at a time; return the result."""
    codes = {case.fabric: code(case.fabric) for case in wanted}
    earlier = read(out)
    runs = [] if earlier is None else earlier["runs"]
    kept = [run for run in runs if codes.get(run["case"]["fabric"], run["code"]) == run["code"]]
    if len(kept) < len(runs):
        (out / RESULT).replace(out / PREVIOUS)
        progress.note(
            f"{out}: {len(runs) - len(kept)} runs are of other code, and are kept in {PREVIOUS}"
        )
    result = {**provenance(simulated=True), "runs": kept}
    known = [run["case"] for run in kept]
    missing = [case for case in wanted if case.document not in known]
    begun_s = time.monotonic()
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _begin) as pool:
        try:
            futures = {pool.submit(measure, case): case for case in missing}
            for number, future in enumerate(as_completed(futures), 1):
                fabric = futures[future].fabric
                result["runs"].append({**future.result(), "code": codes[fabric]})
                write(result, out)
                progress.begin(f"{number} of {len(missing)}, {time.monotonic() - begun_s:.0f} s")
                progress.step(futures[future].title)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in multiprocessing.active_children():
                child.terminate()
            raise
    write(result, out)
    return result


def _begin() -> None:
    """Set up a process, without garbage collection: its millions of objects have no cycles."""
    os.nice(_LOW_PRIORITY)
    gc.disable()
