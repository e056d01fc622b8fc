"""A figure's summary: its findings as data (OUT/NAME/summary.json). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from testbed.harness.figure import Figure
from testbed.harness.finding import Finding, Verdict
from testbed.harness.series import Planned

SCHEMA = 1
NOT_RUN = "not run"


def summarize(
    figure: Figure,
    finding: Finding,
    plots: Sequence[str],
    results: Mapping[str, Mapping[str, Any]],
    *,
    quick: bool,
) -> dict[str, Any]:
    """The contents of a figure's report; `plots` are file names beside the summary."""
    return {
        "schema": SCHEMA,
        "name": figure.name,
        "title": figure.title,
        "quick": quick,
        "paper": figure.paper,
        "source": figure.source,
        "ours": finding.ours,
        "difference": finding.difference,
        "checks": [check.record for check in finding.checks],
        "tables": [asdict(table) for table in finding.tables],
        "plots": list(plots),
        "series": [
            _series(series, results.get(series.name), quick) for series in figure.series(quick)
        ],
    }


def _series(series: Planned, result: Mapping[str, Any] | None, quick: bool) -> dict[str, Any]:
    """A series, its conditions, and its missing runs with reasons."""
    plan = series.plan(quick)
    runs = result["runs"] if result else []
    done = {(run["allocator"], run["repetition"]) for run in runs}
    reasons = {
        (run["allocator"], run["repetition"]): run["reason"]
        for run in (result["discarded"] if result else [])
    }
    return {
        "name": series.name,
        "where": "simulator" if series.simulated else "testbed",
        "wanted": len(plan.runs),
        "runs": len(done),
        "seconds": plan.seconds,
        "discarded": len(result["discarded"]) if result else 0,
        "disturbed": sum("disturbances" in run for run in runs),
        "missing": [
            {
                "allocator": allocator,
                "repetition": repetition,
                "reason": reasons.get((allocator, repetition), NOT_RUN),
            }
            for allocator, repetition in plan.runs
            if (allocator, repetition) not in done
        ],
        "datapaths": sorted({run["datapath"] for run in runs}),
        # Older results lack the key: they had one run at a time.
        "jobs": result.get("jobs", 1) if result else None,
        **{
            key: result[key] if result else None
            for key in ("commit", "kernel", "cpus", "started_at")
        },
    }


def unmet(summary: Mapping[str, Any], verdict: Verdict) -> list[Mapping[str, Any]]:
    """The checks of a summary with this verdict."""
    return [check for check in summary["checks"] if check["verdict"] == verdict.value]


def missing(summary: Mapping[str, Any]) -> list[str]:
    """The missing runs in words: a line for each series."""
    lines = []
    for series in summary["series"]:
        if absent := series["missing"]:
            failed = [
                f"{run['allocator']}, repetition {run['repetition']}: {run['reason']}"
                for run in absent
                if run["reason"] != NOT_RUN
            ]
            reasons = f" ({'; '.join(failed)})" if failed else ""
            lines.append(f"{series['name']}: {len(absent)} of {series['wanted']} runs{reasons}")
    return lines


def missing_count(summary: Mapping[str, Any]) -> int:
    """The number of missing runs."""
    return sum(len(series["missing"]) for series in summary["series"])
