"""A result as a table for a terminal, and as a section of results/chaos.md. Pure.

A result is a JSON document: `testbed.provenance.head`, `seed`, `fabric`, `seconds`, and `stages`. A
stage has its `faults` and `datapath`, the `records` of its faults (with the attempts that were
`discarded`), what was `left` behind, and an `error` or none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from testbed.harness.finding import Verdict
from testbed.harness.markdown import aligned, item, prose, table
from testbed.provenance import conditions

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


def broken_of(record: Mapping[str, Any]) -> list[str]:
    """Descriptions of a fault's broken promises."""
    return [
        f"{_of(record)}: {check['statement']}: {_figure(check)}, promised {check['bounds']}"
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


def _of(record: Mapping[str, Any]) -> str:
    return f"{record['fault']} ({record['datapath']})"


def _figure(check: Mapping[str, Any]) -> str:
    """The measured figure. A state that never came has none."""
    return "never" if check["value"] is None else str(check["measured"])


def _holds(check: Mapping[str, Any]) -> bool:
    """Whether a promise is kept; a promise without a figure is not."""
    return bool(check["verdict"] == Verdict.PASSED.value)


def _cell(check: Mapping[str, Any]) -> str:
    return f"{_figure(check)} ({check['bounds']}){'' if _holds(check) else ' BROKEN'}"


def _records(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [record for stage in result["stages"] for record in stage["records"]]


def rows(result: Mapping[str, Any]) -> Iterator[list[str]]:
    """A line for each fault, without usual promises that hold; the first line is the header."""
    yield ["fault", "datapath", *_COLUMNS, "further checks"]
    for record in _records(result):
        checks = {check["statement"]: check for check in record["checks"]}
        named = [_cell(checks.pop(name)) if name in checks else "" for name in _COLUMNS]
        further = "; ".join(
            f"{name} {_cell(check)}"
            for name, check in checks.items()
            if name not in _USUAL or not _holds(check)
        )
        yield [record["fault"], record["datapath"], *named, further]


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
    """The text for a terminal: the figures of the columns, other promises, all broken ones."""
    lines = [row[:-1] for row in rows(result)]
    records, found = _records(result), broken(result)
    count = sum(len(record["checks"]) for record in records)
    verdict = f"{len(found)} do not hold" if found else "all hold, and nothing is left behind"
    parts = [
        aligned(lines),
        *(
            f"{_of(record)}: {check['statement']}: {_cell(check)}"
            for record in records
            for check in record["checks"]
            if check["statement"] not in (*_COLUMNS, *_USUAL)
        ),
        "",
        *spoiled(result),
        *(f"BROKEN: {each}" for each in found),
        f"{count} promises of {len(records)} faults in {result['seconds']:.0f} s: {verdict}",
    ]
    return "\n".join(parts)


def section(result: Mapping[str, Any], title: str) -> str:
    """The section of a page."""
    header, *lines = rows(result)
    chosen = f"seed {result['seed']}", result["fabric"]
    how = (
        f"{conditions(result, *chosen)}. The promise is in brackets. The worst of any fault: "
        f"{_usual(result)}."
    )
    notes = [*spoiled(result), *(f"broken: {each}" for each in broken(result))]
    return "\n".join(
        [f"## {title}", "", prose(how), "", *table(header, lines), "", *map(item, notes)]
    )
