"""A series of runs: every allocator, as often as asked for, one result file."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from testbed import netns
from testbed.errors import HostError, MeasurementError
from testbed.experiment import Experiment
from testbed.progress import Progress
from testbed.result import median_and_range
from testbed.run import RunOptions, run_once

SCHEMA = 1
RESULT = "result.json"

_ATTEMPTS = 2
"""A run that could not be measured properly is done once more; both failures are recorded."""
_ROOT = Path(__file__).resolve().parent.parent
_GIT = ("git", "-c", f"safe.directory={_ROOT}", "-C", str(_ROOT))
"""The checkout may be another user's than root's."""


async def run_suite(
    experiment: Experiment, options: RunOptions, out: Path, progress: Progress
) -> dict[str, Any]:
    """Carry out all runs, writing the result so far to `out` after each; return the result.

    Raises:
        HostError: the host cannot do it.
    """
    result = _header(experiment)
    # Before the first run: an hour of measuring must not end at a directory that cannot be made.
    write(result, out)
    table = experiment.table
    total = len(table.allocators) * table.repeat
    number = 0
    # Allocators alternate, so that a change of the machine's mood meets all of them.
    for repetition in range(1, table.repeat + 1):
        for allocator in table.allocators:
            number += 1
            progress.begin(f"[{number}/{total}] {allocator}")
            for _ in range(_ATTEMPTS):
                try:
                    run = await run_once(experiment, allocator, repetition, options, progress)
                except MeasurementError as error:
                    progress.note(f"{allocator}, repetition {repetition} does not count: {error}")
                    result["discarded"].append(
                        {"allocator": allocator, "repetition": repetition, "reason": str(error)}
                    )
                    continue
                result["runs"].append(run)
                break
            write(result, out)
    return result


def failed(result: dict[str, Any]) -> list[str]:
    """The runs that are missing, for none of their attempts could be measured."""
    attempts = Counter((run["allocator"], run["repetition"]) for run in result["discarded"])
    return [
        f"{allocator}, repetition {repetition}"
        for (allocator, repetition), count in attempts.items()
        if count >= _ATTEMPTS
    ]


def write(result: dict[str, Any], out: Path) -> None:
    """Write result.json, whole or not at all."""
    out.mkdir(parents=True, exist_ok=True)
    unfinished = out / f".{RESULT}.{os.getpid()}"
    unfinished.write_text(json.dumps(result, separators=(",", ":")) + "\n", encoding="utf-8")
    unfinished.replace(out / RESULT)


def _header(experiment: Experiment) -> dict[str, Any]:
    table = experiment.table
    return {
        "schema": SCHEMA,
        "experiment": table.name,
        "definition": experiment.definition,
        "limiters": list(experiment.limiters),
        "groups": [
            {"name": group.name, "limiter": group.limiter, "flows": group.table.count}
            for group in experiment.groups
        ],
        "limit_bps": table.limit.rate * 8,
        "seed": table.seed,
        "started_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": _commit(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "versions": {
            "python": platform.python_version(),
            "iproute2": _version(["ip", "-V"]),
            "iptables": _version(["iptables", "-V"]),
        },
        "runs": [],
        "discarded": [],
    }


def _commit() -> str:
    try:
        commit = netns.run([*_GIT, "rev-parse", "HEAD"]).strip()
        changed = netns.run([*_GIT, "status", "--porcelain", "-uno"]).strip()
    except HostError:
        return "unknown"
    return f"{commit}-changed" if changed else commit


def _version(command: list[str]) -> str:
    try:
        return netns.run(command).strip()
    except HostError:
        return "none"


def table_of(result: dict[str, Any]) -> str:
    """The one table: a row for each allocator, medians over its runs."""
    limiters = result["limiters"]
    joins = any("convergence" in flow for run in result["runs"] for flow in run["flows"])
    header = ["allocator", "runs", "rate/limit", *limiters, "Jain", "1s<=1.10", "gossip B/s"]
    header += ["t80 first s", "t80 lasting s"] if joins else []
    rows = [header]
    for allocator in dict.fromkeys(run["allocator"] for run in result["runs"]):
        runs = [run for run in result["runs"] if run["allocator"] == allocator]

        joined = [
            flow["convergence"] for run in runs for flow in run["flows"] if "convergence" in flow
        ]
        rows.append(
            [
                allocator,
                str(len(runs)),
                _median([run["aggregate_bps"] / result["limit_bps"] for run in runs], 3),
                *(_median([run["share"][name] for run in runs], 3) for name in limiters),
                _median([run["jain"] for run in runs], 3),
                _median([run["windows_within_limit"] for run in runs], 2),
                _median([run["gossip"]["bytes_per_limiter_per_s"] for run in runs], 0),
                *(
                    _times([convergence[key] for convergence in joined])
                    for key in ("first_s", "lasting_s")
                    if joins
                ),
            ]
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def _median(values: Sequence[float | None], digits: int) -> str:
    """Median, with least and most where there are several values; a dash where there are none."""
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    median, least, most = median_and_range(known)
    spread = f" ({least:.{digits}f}..{most:.{digits}f})" if len(known) > 1 else ""
    return f"{median:.{digits}f}{spread}"


def _times(values: Sequence[float | None]) -> str:
    """Median and worst of the times of joining flows, and how many never got there."""
    known = [value for value in values if value is not None]
    parts = [f"{statistics.median(known):.1f} (max {max(known):.1f})"] if known else []
    never = len(values) - len(known)
    return ", ".join([*parts, f"{never} of {len(values)} never"] if never else parts) or "-"
