"""The tables of a comparison, for the terminal and for results/fabrics.md. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from testbed.fabrics.case import CHURN, DEATH, DEMAND, LOSSES, SIZES, Case
from testbed.fabrics.fleet import INTERVAL_NS
from testbed.fabrics.measure import STEP
from testbed.fabrics.results import Results
from testbed.harness.finding import Table
from testbed.harness.page import Page, image

PAGE = Page(
    "fabrics", "The fabrics compared", "python -m testbed.fabrics --docs", "../docs/gossip.md",
    [*map(str, SIZES), "plots"],
)  # fmt: skip
"""A section for each size of fleets: a run of some sizes replaces only their sections."""


def tables(results: Results) -> list[Table]:
    """All tables that have rows."""
    lost = {f"{100 * loss:g} %": Case(DEMAND, "", 0, loss=loss) for loss in LOSSES}
    found = [
        _costs(results),
        _by_variant(results, "Restless demands: error over the true total", lost, _restless),
        _by_variant(
            results, "Doubled: known after (error from 0.75 to 2.25 s)", lost, _known
        ),
        _by_variant(
            results, "Doubled, then halved: highest and lowest error of any limiter", lost,
            _extremes,
        ),
        _by_variant(
            results, "Paths: error of restless demands, doubled total known after",
            _variants(results, DEMAND, lambda case: replace(case, loss=0.0)), _restless_and_known,
        ),
        _deaths(results),
        _by_variant(
            results, "Limiters die and return 3 s later: error (floor); allotted, mean and "
            "most",
            _variants(results, CHURN, lambda _: None), _churn,
        ),
    ]  # fmt: skip
    return [table for table in found if table.rows]


def text(results: Results) -> str:
    """The tables for a terminal."""
    return "\n\n".join("\n".join(table.lines) for table in tables(results))


def sections(results: Results, plots: Sequence[Path], origin: str) -> dict[str, str]:
    """The tables of each measured size, and the plots if every size was measured.

    `origin` is a sentence about the date and the commit of the runs.
    """
    sizes = [size for size in SIZES if any(case.limiters == size for case in results.cases)]
    found = {
        str(size): f"## {size:,} limiters\n\n{origin}\n\n{text(results.of_size(size))}"
        for size in sizes
    }
    if len(sizes) == len(SIZES):
        images = "\n\n".join(image(plot.stem, plot.name) for plot in plots)
        found["plots"] = f"## All sizes\n\n{origin}\n\n{images}"
    return found


def _cases(results: Results, part: str, **changes: Any) -> Iterator[Case]:
    for size in SIZES:
        for fabric in results.fabrics():
            case = Case(part, fabric, size, **changes)
            if case in results:
                yield case


def _costs(results: Results) -> Table:
    rows = [
        [f"{case.limiters:,}", case.fabric,
         f"{results.mean(case, 'updates') or 0:.1f}",
         f"{results.mean(case, 'bytes_s') or 0:,.0f}",
         _seconds(results.seconds(case, "start", "close_after")),
         _seconds(results.seconds(case, "up", "close_after")),
         _seconds(results.seconds(case, "down", "close_after"))]
        for case in _cases(results, DEMAND)
    ]  # fmt: skip
    return Table(
        "Nothing lost: a limiter's updates, and the time until the error stays below 5 %",
        ["limiters", "fabric", "updates an interval", "bytes/s", "all start at once",
         "the total doubles", "it halves"],
        rows,
    )  # fmt: skip


def _variants(results: Results, part: str, plain: Callable[[Case], Case | None]) -> dict[str, Case]:
    """Variants of a part by their words, without fabric and size; the plain ones are left out."""
    found = {}
    for case in results.cases:
        bare = replace(case, fabric="", limiters=0)
        if case.part == part and plain(bare) != Case(part, "", 0):
            found[case.variant] = bare
    return found


def _by_variant(
    results: Results,
    title: str,
    variants: Mapping[str, Case],
    cell: Callable[[Results, Case], str],
) -> Table:
    """A row for each fleet, a column for each variant."""
    rows = []
    for size in SIZES:
        for fabric in results.fabrics():
            cases = [replace(it, fabric=fabric, limiters=size) for it in variants.values()]
            if any(case in results for case in cases):
                cells = [cell(results, case) if case in results else "" for case in cases]
                rows.append([f"{size:,}", fabric, *cells])
    return Table(title, ["limiters", "fabric", *variants], rows)


def _restless(results: Results, case: Case) -> str:
    return _percent(results.rms(case, "restless", "rms"))


def _doubled(results: Results, case: Case) -> str:
    """The time until it is known; a time at the end of the phase counts as never."""
    after = results.seconds(case, "up", "close_after")
    late = (STEP - 5) * INTERVAL_NS / 1e9
    return _seconds(math.inf if after is not None and after > late else after)


def _known(results: Results, case: Case) -> str:
    return f"{_doubled(results, case)} ({_percent(results.rms(case, 'up', 'doubled'))})"


def _extremes(results: Results, case: Case) -> str:
    highest = _signed(results.extreme(case, "up", "highest"))
    return f"{highest}, {_signed(results.extreme(case, 'down', 'lowest'))}"


def _restless_and_known(results: Results, case: Case) -> str:
    return f"{_restless(results, case)}, {_doubled(results, case)}"


def _churn(results: Results, case: Case) -> str:
    mean = results.mean(case, "churn", "allotted", "mean") or 0.0
    most = max(results.values(case, "churn", "allotted", "highest"))
    error, floor = (_percent(results.rms(case, "churn", key)) for key in ("rms", "floor"))
    return f"{error} ({floor}); {mean:.2f}, {most:.2f}"


def _deaths(results: Results) -> Table:
    rows = []
    for loss in LOSSES:
        for case in _cases(results, DEATH, loss=loss):
            rows.append([
                f"{case.limiters:,}", case.fabric, case.variant,
                _seconds(results.seconds(case, "death", "counted_after")),
                _seconds(results.seconds(case, "death", "close_after")),
                _signed(results.extreme(case, "death", "highest")),
                _signed(results.extreme(case, "death", "lowest")),
                _seconds(results.seconds(case, "return", "counted_after")),
                _seconds(results.seconds(case, "return", "close_after")),
                _allotted(results, case, "death"),
                _allotted(results, case, "return"),
            ])  # fmt: skip
    rows.sort(key=lambda row: (int(row[0].replace(",", "")), row[1]))
    return Table(
        "A limiter with half of the demand dies and returns",
        ["limiters", "fabric", "", "counted out after", "total right after", "highest total",
         "lowest", "counted in after", "total right after", "most allotted: death", "return"],
        rows,
    )  # fmt: skip


def _allotted(results: Results, case: Case, phase: str) -> str:
    return f"{max(results.values(case, phase, 'allotted', 'highest')):.2f}"


def _percent(error: float | None) -> str:
    if error is None:
        return ""
    return f"{100 * error:.0f} %" if error >= 0.1 else f"{100 * error:.1f} %"


def _signed(error: float | None) -> str:
    return "" if error is None else f"{100 * error:+,.0f} %".replace("-0 %", "+0 %")


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return "never" if math.isinf(seconds) else f"{seconds:.2f} s"
