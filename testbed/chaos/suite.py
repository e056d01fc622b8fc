"""The command of faults done to a plane: `scripts/chaos requests` and `scripts/chaos messages`.

A fault of a suite is done to a fleet of its own, and answers a record: its `fault` and `title`, its
`promises` (`testbed.harness.finding.Check`), and facts beside them.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import click

from testbed.chaos.urgency import be_urgent
from testbed.harness.finding import Check, Verdict
from testbed.harness.markdown import aligned, prose, table
from testbed.harness.page import Page
from testbed.interrupt import run_to_end
from testbed.provenance import conditions, head

SECTION = "faults"
"""The section of a suite's page."""
_OWN = "its own"
"""The head of a column with the promises of one fault."""


class Titled(Protocol):
    """A fault, as the command knows it."""

    @property
    def title(self) -> str:
        """The faults and the fleet, in words."""


@dataclass(frozen=True)
class Suite:
    """Faults, and how their outcome is shown."""

    faults: Mapping[str, Titled]
    page: Page
    promises: Mapping[str, str]
    """Statements of the promises, by the heads of their columns."""
    facts: Mapping[str, str]
    """Keys of facts in a record, by the heads of their columns."""
    load: str
    """The traffic of the fleet, for the page."""
    own: bool = False
    """Whether faults have promises of their own."""

    @property
    def _header(self) -> list[str]:
        return ["fault", *self.promises, *([_OWN] if self.own else []), *self.facts]

    def row(self, found: Mapping[str, Any]) -> list[str]:
        """A line of the table."""
        cells = {it["statement"]: it for it in found["promises"]}

        def cell(statement: str) -> str:
            it = cells.pop(statement, None)
            if it is None:
                return ""
            broken = "" if it["verdict"] == Verdict.PASSED.value else " BROKEN"
            return f"{it['measured']} ({it['bounds']}){broken}"

        shared = list(map(cell, self.promises.values()))
        own = "; ".join(f"{statement}: {cell(statement)}" for statement in list(cells))
        return [
            f"{found['fault']}: {found['title']}",
            *shared,
            *([own] if self.own else []),
            *(f"{found[key]}" for key in self.facts.values()),
        ]

    def section(self, result: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> str:
        """The section of the page."""
        how = (
            f"{conditions(result, 'seed ' + str(result['seed']))}. The promise is in brackets. "
            f"{self.load} A fault lasts {result['seconds']:g} s."
        )
        lines = table(self._header, map(self.row, rows))
        return "\n".join(["## Faults", "", prose(how), "", *lines])

    def main(
        self,
        carry_out: Callable[[str, float, int], Awaitable[Iterable[dict[str, Any]]]],
        names: Sequence[str],
        *,
        seconds: float,
        seed: int,
        as_json: bool,
        docs: bool,
    ) -> None:
        """Do these faults, or all; `carry_out` gets the name of one, its length and the seed.

        Raises:
            SystemExit: with 1 if a promise does not hold, else with 0.
        """
        if docs and names:
            raise click.UsageError("--docs is for all faults")
        # The daemons and the clients have what scripts/drld.service gives a daemon.
        be_urgent()
        result = {**head(quick=False), "seed": seed, "seconds": seconds}
        rows: list[dict[str, Any]] = []
        for name in names or self.faults:
            for found in run_to_end(partial(carry_out, name, seconds, seed)):
                rows.append(found)
                shown = f"{found['fault']}: {'holds' if found['holds'] else 'FAILED'}"
                click.echo(json.dumps(found) if as_json else shown)
        if not as_json:
            click.echo(aligned([self._header, *map(self.row, rows)]))
        if docs:
            click.echo(f"{self.page.write({SECTION: self.section(result, rows)})}")
        raise SystemExit(0 if all(found["holds"] for found in rows) else 1)


def record(
    name: str, fault: Titled, promises: Sequence[Check], facts: Mapping[str, Any]
) -> dict[str, Any]:
    """The outcome of a fault."""
    return {
        "fault": name,
        "title": fault.title,
        **facts,
        "promises": [it.record for it in promises],
        "holds": all(it.verdict is Verdict.PASSED for it in promises),
    }
