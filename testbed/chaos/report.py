"""A result as a table for a terminal, and as a section of results/chaos.md. Pure.

A result is a JSON document: `taken` (date), `commit`, `quick`, `seed`, `host`, and `stages`, each
with its `datapath`, the `records` of its faults (with the attempts at them that were `discarded`),
what was `left` after it, and an `error` or none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from testbed.harness.finding import Verdict
from testbed.harness.markdown import aligned, item, prose, table
from testbed.provenance import conditions


def broken_of(record: Mapping[str, Any]) -> list[str]:
    """Descriptions of a fault's broken promises."""
    return [
        f"{record['fault']} ({record['datapath']}): {check['statement']}: {_figure(check)}, "
        f"promised {_bound(check)}"
        for check in record["checks"]
        if not _holds(check)
    ]


def broken(result: Mapping[str, Any]) -> list[str]:
    """Descriptions of all broken promises and leftovers."""
    found = []
    for stage in result["stages"]:
        where = f"{' '.join(stage['faults'])} ({stage['datapath']})"
        for record in stage["records"]:
            found += broken_of(record)
        found += [f"{where}: left behind: {each}" for each in stage["left"]]
        if stage["error"] is not None:
            found.append(f"{where}: {stage['error']}")
        elif len(stage["records"]) < len(stage["faults"]):
            found.append(f"{where}: interrupted")
    return found


def spoiled(result: Mapping[str, Any]) -> list[str]:
    """Descriptions of disturbed measurements, which were discarded and repeated."""
    return [
        f"discarded, as the host stood still for {attempt['late_s']:g} s in a second: {each}"
        for record in _records(result)
        for attempt in record["discarded"]
        for each in attempt["broken"]
    ]


def _number(value: float, unit: str) -> str:
    if unit in ("B", "B/h"):
        return f"{value / 1000:.0f} k{unit}"
    text = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else f"{value}"
    return f"{text} {unit}".strip() if unit != "of the limit" else text


def _figure(check: Mapping[str, Any]) -> str:
    return "never" if check["value"] is None else _number(check["value"], check["unit"])


def _bound(check: Mapping[str, Any]) -> str:
    sign, bound = ("≤", check["most"]) if check["least"] is None else ("≥", check["least"])
    return f"{sign} {_number(bound, check['unit'])}"


def _holds(check: Mapping[str, Any]) -> bool:
    """Whether a promise is kept; it is not, if it never came to that."""
    return bool(check["verdict"] == Verdict.PASSED.value)


def _cell(check: Mapping[str, Any]) -> str:
    broken = "" if _holds(check) else " BROKEN"
    return f"{_figure(check)} ({_bound(check)}){broken}"


_COLUMNS = (
    "beyond limit x time",
    "recovery",
    "in use at least",
    "in use once it is known",
    "lost to the fault",
    "log lines of a daemon",
)
"""Promises of nearly every fault; other promises follow them."""
_USUAL = (
    "log lines of one thing about peers",
    "traces in logs",
    "memory of a daemon grew by",
    "descriptors of a daemon grew by",
)
"""Further promises of every fault."""


def _records(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [record for stage in result["stages"] for record in stage["records"]]


def rows(result: Mapping[str, Any]) -> Iterator[list[str]]:
    """A line for each fault, without usual promises that hold; the first line is the header."""
    yield ["fault", "datapath", *_COLUMNS, "besides"]
    for record in _records(result):
        checks = {check["statement"]: check for check in record["checks"]}
        named = [_cell(checks.pop(what)) if what in checks else "" for what in _COLUMNS]
        besides = "; ".join(
            f"{what} {_cell(check)}"
            for what, check in checks.items()
            if what not in _USUAL or not _holds(check)
        )
        yield [record["fault"], record["datapath"], *named, besides]


def _usual(result: Mapping[str, Any]) -> str:
    """The worst figures of the promises of every fault."""
    worst: dict[str, Mapping[str, Any]] = {}
    for record in _records(result):
        for check in record["checks"]:
            what = check["statement"]
            if what in _USUAL and (what not in worst or check["value"] > worst[what]["value"]):
                worst[what] = check
    return "; ".join(f"{what} {_cell(check)}" for what, check in worst.items())


def text(result: Mapping[str, Any]) -> str:
    """The text for a terminal: the usual figures, and all broken promises."""
    lines = [row[:-1] for row in rows(result)]
    parts = [aligned(lines)]
    parts += [
        f"{record['fault']} ({record['datapath']}): {check['statement']}: {_cell(check)}"
        for record in _records(result)
        for check in record["checks"]
        if check["statement"] not in (*_COLUMNS, *_USUAL)
    ]
    parts += ["", *spoiled(result)]
    found = broken(result)
    parts += [f"BROKEN: {each}" for each in found]
    count = sum(len(record["checks"]) for record in _records(result))
    verdict = f"{len(found)} do not hold" if found else "all hold, and nothing is left behind"
    parts.append(
        f"{count} promises of {len(lines) - 1} faults in {result['seconds']:.0f} s: {verdict}"
    )
    return "\n".join(parts)


def section(result: Mapping[str, Any], title: str) -> str:
    """The section of a page."""
    header, *lines = rows(result)
    chosen = f"seed {result['seed']}", result["fabric"], result["allocator"]
    how = (
        f"{conditions(result, *chosen)}. The promise is in brackets. The worst of any fault: "
        f"{_usual(result)}."
    )
    notes = [*spoiled(result), *(f"broken: {each}" for each in broken(result))]
    return "\n".join(
        [f"## {title}", "", prose(how), "", *table(header, lines), "", *map(item, notes)]
    )
