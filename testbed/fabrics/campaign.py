"""Measuring all cases: several at a time, each kept as soon as it is there.

OUT/result.json has all of them. What is interrupted goes on where it was, as long as the code that
decides what is measured is the same.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from testbed.fabrics.case import Case
from testbed.fabrics.measure import measure
from testbed.progress import Progress
from testbed.provenance import digest, provenance

RESULT = "result.json"
PREVIOUS = "result.previous.json"
"""What other code has measured."""
_LOW_PRIORITY = 10
_DECISIVE = (
    "drld/gossip/*.py",
    "drld/model.py",
    "testbed/sim/network.py",
    "testbed/fabrics/case.py",
    "testbed/fabrics/fleet.py",
    "testbed/fabrics/measure.py",
)


def read(out: Path) -> dict[str, Any] | None:
    """What is there."""
    file = out / RESULT
    if not file.is_file():
        return None
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def carry_out(wanted: Sequence[Case], out: Path, jobs: int, progress: Progress) -> dict[str, Any]:
    """Measure what is missing, `jobs` at a time; return the result."""
    out.mkdir(parents=True, exist_ok=True)
    result = {**provenance(simulated=True), "code": digest(_DECISIVE), "runs": []}
    earlier = read(out)
    if earlier is not None:
        if earlier["code"] == result["code"]:
            result = earlier
        else:
            (out / RESULT).replace(out / PREVIOUS)
            progress.note(f"what {out} had was measured by other code: it is {PREVIOUS} now")
    known = [run["case"] for run in result["runs"]]
    missing = [case for case in wanted if case.document not in known]
    begun_s = time.monotonic()
    with ProcessPoolExecutor(
        jobs, multiprocessing.get_context("spawn"), os.nice, (_LOW_PRIORITY,)
    ) as pool:
        try:
            futures = {pool.submit(measure, case): case for case in missing}
            for number, future in enumerate(as_completed(futures), 1):
                result["runs"].append(future.result())
                _write(result, out)
                progress.begin(f"{number} of {len(missing)}, {time.monotonic() - begun_s:.0f} s")
                progress.step(futures[future].title)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in multiprocessing.active_children():
                child.terminate()
            raise
    _write(result, out)
    return result


def _write(result: dict[str, Any], out: Path) -> None:
    """Replace the file as a whole, so that it can be read at any time."""
    new = out / f"{RESULT}.new"
    new.write_text(json.dumps(result) + "\n", encoding="utf-8")
    new.replace(out / RESULT)
