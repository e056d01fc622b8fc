"""The section of a figure on its page of results/."""

from __future__ import annotations

from typing import Any

from testbed.harness.document import pages, section
from testbed.reproduce.registry import FIGURES


def a_summary(name: str = "fig3", **changes: Any) -> dict[str, Any]:
    check = {"statement": "as CTB", "measured": "0.5", "bounds": "at least 0.9"}
    series = {
        "name": "two", "where": "testbed", "datapaths": ["kernel"], "seconds": 60.0, "wanted": 4,
        "runs": 2, "discarded": 1, "commit": "0123456789abcdef", "kernel": "6.1", "cpus": 2,
        "jobs": 4, "started_at": "2020", "missing": [{"reason": "late"}, {"reason": "late"}],
    }  # fmt: skip
    return {
        "name": name,
        "title": f"Title of {name}",
        "paper": "it says so",
        "ours": "1.0",
        "quick": True,
        "difference": "TCP is another.",
        "checks": [{**check, "verdict": "ok"}, {**check, "verdict": "failed"}],
        "series": [series],
        "tables": [{"title": "Rates", "header": ["", "Mbit/s"], "rows": [["FPS", "10"]]}],
        "plots": ["fig3.png"],
        **changes,
    }


def test_a_section_says_what_differs_and_how_it_was_taken() -> None:
    taken = (
        "- two (quick): 2 of 4 runs of 60 s (testbed, kernel datapath, 4 at a time), 1 attempts "
        "discarded; commit 0123456789ab,\n  Linux 6.1, 2 processors, 2020"
    )
    expected = f"""\
## Title of fig3

**The paper:** it says so.

**Here:** 1.0.

**Difference:** TCP is another.

**Checks:** 1 of 2 checks hold (a quick run: few and short)

- Does not hold: as CTB: 0.5, not at least 0.9
- 2 runs are missing
{taken}

Rates:

|  | Mbit/s |
| --- | --- |
| FPS | 10 |

![Title of fig3](plots/fig3.png)"""
    assert section(a_summary()) == expected


def test_a_check_that_was_not_measured_is_told_from_one_that_failed() -> None:
    checks = [{"verdict": verdict} for verdict in ("ok", "not measured", "not measured")]
    found = section(a_summary(checks=checks, quick=False, difference=""))
    assert "**Checks:** 1 of 3 checks hold, 2 not measured\n" in found
    assert "Does not hold" not in found
    assert "Difference" not in found


def test_each_figure_has_a_page_with_an_overview() -> None:
    found = pages(FIGURES)
    assert sorted(name for page in found.values() for name in page.sections) == sorted(FIGURES)
    assert found["any-traffic"].sections == ["any-traffic", "phantom-queues", "random-fleets"]
    page = found["reproduction"].updated(
        "", {name: section(a_summary(name)) for name in ("fig4", "fig3")}
    )
    held = "1 of 2 checks hold (a quick run: few and short)"
    assert f"| Title of fig3 | {held} |\n| Title of fig4 | {held} |\n\n<!-- fig3 -->" in page
