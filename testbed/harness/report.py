"""Figures in a few lines for a terminal, and the conditions of their runs. Pure.

Everything is made from the figures' summaries (`testbed.harness.summary`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from testbed.harness.finding import Verdict
from testbed.harness.summary import missing, unmet

Summary = Mapping[str, Any]


def text(summaries: Sequence[Summary]) -> str:
    """Each figure in a few lines."""
    lines = []
    for summary in summaries:
        lines.append(f"{summary['title']}: {score(summary)}")
        lines += [
            f"  {check['verdict']}: {check['statement']}: {check['measured']} ({check['bounds']})"
            for verdict in (Verdict.FAILED, Verdict.MISSING)
            for check in unmet(summary, verdict)
        ]
        lines += [f"  missing: {run}" for run in missing(summary)]
    return "\n".join(lines)


def score(summary: Summary) -> str:
    """The numbers of checks that hold, and of checks without a value."""
    checks = summary["checks"]
    held = sum(check["verdict"] == Verdict.PASSED.value for check in checks)
    unknown = len(unmet(summary, Verdict.MISSING))
    missed = f", {unknown} not measured" if unknown else ""
    quick = " (a quick run: few and short)" if summary["quick"] else ""
    return f"{held} of {len(checks)} checks hold{missed}{quick}"


def conditions(summaries: Sequence[Summary]) -> list[str]:
    """The conditions of the runs: a line for each series, or family of series (`family/member`)."""
    families: dict[tuple[Any, ...], list[Summary]] = {}
    for summary in summaries:
        for series in summary["series"]:
            if series["runs"]:
                place = f"{series['where']}, {', '.join(series['datapaths'])} datapath"
                key = (
                    f"{series['name'].split('/')[0]}{' (quick)' if summary['quick'] else ''}",
                    series["where"] if series["where"] == "simulator" else place,
                    series["seconds"], series["commit"], series["kernel"], series["cpus"],
                    1 if series["where"] == "simulator" else series.get("jobs") or 1,
                )  # fmt: skip
                families.setdefault(key, []).append(series)
    lines = []
    for (name, place, seconds, commit, kernel, cpus, jobs), members in families.items():
        # Figures share series.
        own = {series["name"]: series for series in members}.values()
        runs, wanted, discarded, disturbed = (
            sum(series.get(key, 0) for series in own)
            for key in ("runs", "wanted", "discarded", "disturbed")
        )
        remark = f", {disturbed} of them disturbed by the host (--once)" if disturbed else ""
        lines.append(
            f"{name}: {runs} of {wanted} runs of {seconds:g} s ({place}"
            f"{f', {jobs} at a time' if jobs > 1 else ''}), {discarded} attempts "
            f"discarded{remark}; commit {commit[:12]}, Linux {kernel.partition('-')[0]}, "
            f"{cpus} processors, {min(series['started_at'] for series in own)}"
        )
    return lines
