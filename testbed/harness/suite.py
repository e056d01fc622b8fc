"""A series of runs: every allocator several times, one result file."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from testbed.attempts import ATTEMPTS
from testbed.errors import MeasurementError
from testbed.experiment import Experiment
from testbed.harness.markdown import aligned
from testbed.harness.progress import Progress
from testbed.harness.resume import resume
from testbed.provenance import provenance
from testbed.result import median_and_range
from testbed.run import RunOptions, refuse, run_once

SCHEMA = 1
RESULT = "result.json"
PREVIOUS = "result.previous.json"
"""The name of the earlier result after a new series began."""

_MOST_COLUMNS = 10
"""Most limiters with a column of their share in the table."""
RunOne = Callable[[Experiment, str, int], Awaitable[dict[str, Any]]]
"""Does one run of an allocator and a repetition, and returns its record."""


class Notes(Protocol):
    """An output for lines that stay."""

    def note(self, text: str) -> None:
        """Print a line."""


async def run_suite(
    experiment: Experiment,
    options: RunOptions,
    out: Path,
    progress: Progress,
    *,
    resumed: bool = False,
) -> dict[str, Any]:
    """Carry out all runs in namespaces; see `carry_out`.

    Raises:
        ConfigError: the experiment needs the simulator.
        HostError: the host cannot do it.
    """

    async def run(experiment: Experiment, allocator: str, repetition: int) -> dict[str, Any]:
        return await run_once(experiment, allocator, repetition, options, progress)

    refuse(experiment)
    setting = {"datapath": options.datapath, "links": options.make_links().name}
    head = header(experiment, setting)
    return await carry_out(experiment, run, head, out, progress, resumed=resumed)


async def carry_out(
    experiment: Experiment,
    run_one: RunOne,
    header: dict[str, Any],
    out: Path,
    progress: Progress,
    *,
    resumed: bool,
) -> dict[str, Any]:
    """Carry out the runs, writing the result so far to `out` after each; return the result.

    A resumed series takes over the runs in `out` that still count (`testbed.harness.resume`).
    """
    ledger = Ledger(experiment.table.name, experiment, header, out, progress, resumed=resumed)
    ledger.open()
    missing, wanted = ledger.missing(), len(ledger.wanted)
    for allocator, repetition in missing:
        number = ledger.wanted.index((allocator, repetition)) + 1
        progress.begin(f"{experiment.table.name} [{number}/{wanted}] {allocator}")
        for _ in range(ATTEMPTS):
            try:
                run = await run_one(experiment, allocator, repetition)
            except MeasurementError as error:
                ledger.discard(allocator, repetition, str(error))
            else:
                ledger.add(run)
                break
    return ledger.result


class Ledger:
    """The result of a series in its directory, and its missing runs.

    Runs may come in any order; the file has them in that of `wanted`.
    """

    def __init__(
        self,
        name: str,
        experiment: Experiment,
        header: dict[str, Any],
        out: Path,
        notes: Notes,
        *,
        resumed: bool,
    ) -> None:
        """`name` is the series' name in messages.

        A resumed series takes over the runs in `out` that still count.
        """
        self.wanted = experiment.runs
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
                f"{self._name}: all runs are done anew, for what changed is "
                f"{'; '.join(self._changed)} (the earlier ones are in {out / PREVIOUS})"
            )
        elif self.result["runs"]:
            self._notes.note(f"{self._name}: {len(self.result['runs'])} runs are there already")
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
            f"{self._name}: {allocator}, repetition {repetition} does not count: {reason}"
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


def table_of(result: dict[str, Any]) -> str:
    """The main table: a row for each allocator, with medians over its runs."""
    limiters = result["limiters"] if len(result["limiters"]) <= _MOST_COLUMNS else []
    header = ["allocator", "runs", "rate/limit", *limiters, "Jain", "1s<=1.10", "gossip B/s"]
    web = any("web" in run for run in result["runs"])
    udp = any("udp" in run for run in result["runs"])
    header += ["bulk Mbit/s"] if web or udp else []
    header += ["web Mbit/s"] if web else []
    header += ["UDP Mbit/s"] if udp else []
    rows = [header]
    for allocator in dict.fromkeys(run["allocator"] for run in result["runs"]):
        runs = [run for run in result["runs"] if run["allocator"] == allocator]
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
                    _median([rate / 1e6 for rate in rates], 2)
                    for rates in (
                        *([[run["bulk_goodput_bps"] for run in runs]] if web or udp else []),
                        *([[run["web"]["goodput_bps"] for run in runs]] if web else []),
                        *([[_udp_bps(run) for run in runs]] if udp else []),
                    )
                ),
            ]
        )
    return aligned(rows, left=1)


def disturbances_of(result: dict[str, Any]) -> list[str]:
    """A sentence for each disturbance of a run that still counts."""
    return [
        f"The host disturbed a run of {run['allocator']}, so its figures are no measurement: {text}"
        for run in result["runs"]
        for text in run.get("disturbances", ())
    ]


def _udp_bps(run: dict[str, Any]) -> float:
    """Goodput of all UDP sources of a run, bits/s."""
    return sum(float(source["goodput_bps"]) for source in run.get("udp", ()))


def event_table_of(result: dict[str, Any]) -> str:
    """The flows' reaction times to events: a row for each kind and allocator.

    Empty without events.
    """
    runs = result["runs"]
    kinds = dict.fromkeys(event["kind"] for run in runs for event in run["events"])
    rows = [
        ["event", "allocator", "events", "flows", "t80 s", "lasting s", "in force s", "highest 1s"]
    ]
    for kind in kinds:
        for allocator in dict.fromkeys(run["allocator"] for run in runs):
            events = [
                event
                for run in runs
                if run["allocator"] == allocator
                for event in run["events"]
                if event["kind"] == kind
            ]
            grown = [flow for event in events for flow in event["flows"]]
            highest = [
                event["highest_1s_bps"] / event["limit_bps"]
                for event in events
                if event["highest_1s_bps"] is not None
            ]
            in_force = [event["in_force_s"] for event in events if event["in_force_s"] is not None]
            rows.append(
                [
                    kind,
                    allocator,
                    str(len(events)),
                    str(len(grown)),
                    _times([flow["t80_s"] for flow in grown]),
                    _times([flow["lasting_s"] for flow in grown]),
                    _times(in_force),
                    f"{max(highest):.2f}" if highest else "-",
                ]
            )
    return aligned(rows, left=2) if kinds else ""


def _median(values: Sequence[float | None], digits: int) -> str:
    """Median, with minimum and maximum of several values; a dash without values."""
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    median, least, most = median_and_range(known)
    spread = f" ({least:.{digits}f}..{most:.{digits}f})" if len(known) > 1 else ""
    return f"{median:.{digits}f}{spread}"


def _times(values: Sequence[float | None]) -> str:
    """Median, minimum and maximum; None counts as the longest time."""
    times = [float("inf") if value is None else value for value in values]
    if not times:
        return "-"
    shown = [
        "never" if time == float("inf") else f"{time:.2f}"
        for time in (statistics.median(times), min(times), max(times))
    ]
    return f"{shown[0]} ({shown[1]}..{shown[2]})"
