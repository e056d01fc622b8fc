"""A result as a table for a terminal, and as a section of results/chaos.md. Pure.

A result is a JSON document: `taken` (date), `commit`, `quick`, `seed`, `host`, and `stages`, each
with its `datapath`, the `records` of its faults (with the attempts at them that were `discarded`),
what was `left` after it, and an `error` or none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from testbed.markdown import item, prose, table


def broken_of(record: Mapping[str, Any]) -> list[str]:
    """Descriptions of a fault's broken promises."""
    return [
        f"{record['fault']} ({record['datapath']}): {check['what']}: {_figure(check)}, "
        f"promised {_bound(check)}"
        for check in record["checks"]
        if not check["holds"]
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
    return "never" if check["measured"] is None else _number(check["measured"], check["unit"])


def _bound(check: Mapping[str, Any]) -> str:
    sign = "≥" if check["at_least"] else "≤"
    return f"{sign} {_number(check['bound'], check['unit'])}"


def _cell(check: Mapping[str, Any]) -> str:
    broken = "" if check["holds"] else " BROKEN"
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
        checks = {check["what"]: check for check in record["checks"]}
        named = [_cell(checks.pop(what)) if what in checks else "" for what in _COLUMNS]
        besides = "; ".join(
            f"{what} {_cell(check)}"
            for what, check in checks.items()
            if what not in _USUAL or not check["holds"]
        )
        yield [record["fault"], record["datapath"], *named, besides]


def _usual(result: Mapping[str, Any]) -> str:
    """The worst figures of the promises of every fault."""
    worst: dict[str, Mapping[str, Any]] = {}
    for record in _records(result):
        for check in record["checks"]:
            what = check["what"]
            if what in _USUAL and (
                what not in worst or check["measured"] > worst[what]["measured"]
            ):
                worst[what] = check
    return "; ".join(f"{what} {_cell(check)}" for what, check in worst.items())


def text(result: Mapping[str, Any]) -> str:
    """The text for a terminal: the usual figures, and all broken promises."""
    lines = [row[:-1] for row in rows(result)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    parts = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    parts += [
        f"{record['fault']} ({record['datapath']}): {check['what']}: {_cell(check)}"
        for record in _records(result)
        for check in record["checks"]
        if check["what"] not in (*_COLUMNS, *_USUAL)
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
    host = result["host"]
    header, *lines = rows(result)
    kind = "quick" if result["quick"] else "full"
    conditions = (
        f"A {kind} run of {result['taken']}, commit {result['commit'][:7]}, seed "
        f"{result['seed']}, {result['fabric']}, {result['allocator']}: {host['processors']} "
        f"processors ({host['model']}), Linux {host['kernel']}, Python {host['python']}. The "
        f"promise is in brackets. The worst of any fault: {_usual(result)}."
    )
    notes = [*spoiled(result), *(f"broken: {each}" for each in broken(result))]
    return "\n".join(
        [f"## {title}", "", prose(conditions), "", *table(header, lines), "", *map(item, notes)]
    )
