"""The report of all figures: a page, and a few lines for a terminal. Pure.

Everything is made from the figures' summaries (`testbed.harness.summary`).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from testbed.harness.finding import Verdict
from testbed.harness.summary import missing, missing_count, unmet

Summary = Mapping[str, Any]

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; max-width: 62rem; margin: 2rem auto;
       padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 3rem; }
table { border-collapse: collapse; margin: .8rem 0; font-size: .9rem; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { text-align: left; vertical-align: top; padding: .25rem .8rem .25rem 0;
         border-bottom: 1px solid #e4e4e4; }
img { max-width: 100%; }
.ok { color: #00704f; } .failed, .missing { color: #b00020; font-weight: 600; }
.muted { color: #5a5a5a; font-size: .85rem; }
"""
_CLASSES = {
    Verdict.PASSED.value: "ok",
    Verdict.FAILED.value: "failed",
    Verdict.MISSING.value: "missing",
}


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


def difference(summary: Summary) -> str:
    """The difference from the paper, failed checks, and missing runs."""
    parts = [summary["difference"]] if summary["difference"] else []
    failed = [
        f"{check['statement']}: {check['measured']}, not {check['bounds']}"
        for check in unmet(summary, Verdict.FAILED)
    ]
    if failed:
        parts.append(f"Does not hold: {'; '.join(failed)}.")
    if absent := missing_count(summary):
        parts.append(f"{absent} runs are missing.")
    return " ".join(parts) or "None."


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


def html(summaries: Sequence[Summary], plots: Mapping[str, Sequence[bytes]]) -> str:
    """The whole page, with its plots (PNG, by figure)."""
    rows = "".join(
        f'<tr><td><a href="#{summary["name"]}">{escape(summary["title"])}</a></td>'
        f"<td>{escape(summary['paper'])}</td><td>{escape(summary['ours'])}</td>"
        f"<td>{escape(score(summary))}</td><td>{escape(difference(summary))}</td></tr>"
        for summary in summaries
    )
    sections = "".join(_section(summary, plots.get(summary["name"], ())) for summary in summaries)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>drld: the paper, reproduced</title><style>{_STYLE}</style></head><body>"
        "<h1>Cloud control with distributed rate limiting (SIGCOMM 2007), reproduced</h1>"
        "<table><thead><tr><th></th><th>The paper</th><th>Ours</th><th>Checks</th>"
        f"<th>Difference</th></tr></thead><tbody>{rows}</tbody></table>{sections}</body></html>\n"
    )


def _section(summary: Summary, plots: Sequence[bytes]) -> str:
    """One figure: plots, tables, checks, conditions."""
    images = "".join(
        f'<p><img alt="{escape(summary["title"])}" '
        f'src="data:image/png;base64,{base64.b64encode(plot).decode()}"></p>'
        for plot in plots
    )
    checks = _table(
        f"Checks: {score(summary)}",
        ["", "measured", "to reach", ""],
        [
            [escape(check["statement"]), escape(check["measured"]), escape(check["bounds"]),
             f'<span class="{_CLASSES[check["verdict"]]}">{check["verdict"]}</span>']
            for check in summary["checks"]
        ],
    )  # fmt: skip
    tables = "".join(
        _table(table["title"], table["header"], [[escape(cell) for cell in row]
                                                 for row in table["rows"]])
        for table in summary["tables"]
    )  # fmt: skip
    absent = "".join(f'<li class="missing">missing: {escape(run)}</li>' for run in missing(summary))
    taken = "".join(f"<li>{escape(line)}</li>" for line in conditions([summary]))
    return (
        f'<section id="{summary["name"]}"><h2>{escape(summary["title"])}</h2>'
        f"<p><b>{summary.get('source', 'The paper')}:</b> {escape(summary['paper'])}.</p>"
        f"<p><b>Ours:</b> {escape(summary['ours'])}.</p>"
        f"<p><b>Difference:</b> {escape(difference(summary))}</p>"
        f'{images}{tables}{checks}<ul class="muted">{absent}{taken}</ul></section>'
    )


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; its cells are HTML."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f"<table><caption>{escape(title)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )
