"""The runs of a series as result.json has them: those that count, and those that are missing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from testbed.experiment import Experiment
from testbed.harness.progress import Board
from testbed.harness.resume import resume
from testbed.provenance import provenance

SCHEMA = 1
RESULT = "result.json"
PREVIOUS = "result.previous.json"
"""The name of the earlier result after a new series began."""


class Ledger:
    """The result of a series in its directory, and its missing runs.

    Runs may come in any order; the file has them in that of `wanted`.
    """

    def __init__(
        self,
        name: str,
        wanted: list[tuple[str, int]],
        header: dict[str, Any],
        out: Path,
        notes: Board,
        *,
        resumed: bool,
    ) -> None:
        """`name` is the series' name in messages; `wanted` has allocator and repetition.

        A resumed series takes over the runs in `out` that still count.
        """
        self.wanted = wanted
        runs, discarded, self._changed = resume(read(out) if resumed else None, header)
        self.result: dict[str, Any] = {**header, "runs": runs, "discarded": discarded}
        self._name = name
        self._out = out
        self._notes = notes

    def missing(self) -> list[tuple[str, int]]:
        """The missing runs: allocator and repetition."""
        done = {(run["allocator"], run["repetition"]) for run in self.result["runs"]}
        return [run for run in self.wanted if run not in done]

    def open(self) -> None:
        """Write the present result; rename an earlier one that no longer counts.

        Done before the first run, so that an unusable directory is found early.
        """
        out = self._out
        if self._changed:
            (out / RESULT).replace(out / PREVIOUS)
            self._notes.note(
                f"{self._name}: all runs are repeated, because these changed: "
                f"{'; '.join(self._changed)} (the earlier runs are in {out / PREVIOUS})"
            )
        elif self.result["runs"]:
            self._notes.note(f"{self._name}: {len(self.result['runs'])} runs exist already")
        write(self.result, out)

    def add(self, run: dict[str, Any]) -> None:
        """Add a run that counts."""
        self.result["runs"].append(run)
        place = {key: index for index, key in enumerate(self.wanted)}
        self.result["runs"].sort(
            key=lambda run: place.get((run["allocator"], run["repetition"]), len(place))
        )
        write(self.result, self._out)

    def discard(self, allocator: str, repetition: int, reason: str) -> None:
        """Add a failed attempt."""
        self._notes.note(
            f"{self._name}: an attempt at {allocator}, run {repetition} does not count: {reason}"
        )
        self.result["discarded"].append(
            {"allocator": allocator, "repetition": repetition, "reason": reason}
        )
        write(self.result, self._out)


def read(out: Path) -> dict[str, Any] | None:
    """The result in a directory; None if there is none."""
    try:
        text = (out / RESULT).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    found: dict[str, Any] = json.loads(text)
    return found


def failed(result: dict[str, Any]) -> list[str]:
    """The runs without a successful attempt."""
    done = {(run["allocator"], run["repetition"]) for run in result["runs"]}
    attempted = [(run["allocator"], run["repetition"]) for run in result["discarded"]]
    return [
        f"{allocator}, repetition {repetition}"
        for allocator, repetition in dict.fromkeys(attempted)
        if (allocator, repetition) not in done
    ]


def write(result: dict[str, Any], out: Path) -> None:
    """Write result.json, whole or not at all."""
    out.mkdir(parents=True, exist_ok=True)
    unfinished = out / f".{RESULT}.{os.getpid()}"
    unfinished.write_text(json.dumps(result, separators=(",", ":")) + "\n", encoding="utf-8")
    unfinished.replace(out / RESULT)


def header(
    experiment: Experiment, setting: dict[str, str], *, simulated: bool = False
) -> dict[str, Any]:
    """The header of a result without runs; `setting`: the user's choices besides the experiment."""
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
        "web": [{"name": group.name, "limiter": group.limiter} for group in experiment.web],
        "udp": [
            {"name": group.name, "limiter": group.limiter, "sources": group.table.count}
            for group in experiment.udp
        ],
        "limit_bps": table.limit.rate * 8,
        "seed": table.seed,
        "setting": setting,
        **provenance(simulated=simulated),
    }
