"""Verdicts, summaries, and the report for a terminal and as pages."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from testbed.harness import document, report, runner
from testbed.harness.figure import Figure, series_of
from testbed.harness.finding import Check, Finding, Table, Verdict, near
from testbed.harness.pool import duration
from testbed.harness.results import Results
from testbed.harness.schedule import Room
from testbed.harness.series import Series
from testbed.harness.summary import missing, missing_count, summarize, unmet
from testbed.reproduce import __main__ as command
from testbed.reproduce.registry import FIGURES, GROUPS
from tests.reproduce_factories import a_result, a_run, constant

PNG = b"\x89PNG\r\n\x1a\nplot"
SERIES = Series("two", "baseline", full={"allocators": ["ctb", "fps"], "repeat": 2})


@pytest.mark.parametrize(
    ("check", "verdict"),
    [
        (Check("at least", 1.0, least=1.0), Verdict.PASSED),
        (Check("below", 0.999, least=1.0), Verdict.FAILED),
        (Check("at most", 1.0, most=1.0), Verdict.PASSED),
        (Check("above", 1.001, most=1.0), Verdict.FAILED),
        (near("within", 1.05, 1.0, 0.05), Verdict.PASSED),
        (near("outside", 1.06, 1.0, 0.05), Verdict.FAILED),
        (near("outside", 0.94, 1.0, 0.05), Verdict.FAILED),
        (Check("never", float("inf"), most=5.0), Verdict.FAILED),
        (Check("no number", float("nan"), most=5.0), Verdict.MISSING),
        (Check("absent", None, least=1.0), Verdict.MISSING),
    ],
)
def test_a_check_holds_within_its_bounds(check: Check, verdict: Verdict) -> None:
    assert check.verdict is verdict


@pytest.mark.parametrize(
    ("check", "measured", "bounds"),
    [
        (near("", 0.98765, 1.0, 0.05), "0.988", "0.95 to 1.05"),
        (Check("", 12.345, "Mbit/s", least=10), "12.3 Mbit/s", "at least 10"),
        (Check("", None, "s", most=5000), "-", "at most 5,000"),
        (Check("", float("inf"), "s", most=5), "inf s", "at most 5"),
    ],
)
def test_a_check_is_said_in_words(check: Check, measured: str, bounds: str) -> None:
    assert (check.measured, check.bounds) == (measured, bounds)


def evaluate(results: Results) -> Finding:
    fps = results.used("two", "fps")
    return Finding(
        [near("FPS holds <the> limit", fps, 1.0, 0.03), Check("as CTB", 0.5, least=0.9),
         Check("absent", None, least=0.9)],
        "fps | 1.0",
        "TCP is another.",
        [Table("Rates", ["", "Mbit/s"], [["FPS", "10"]])],
    )  # fmt: skip


def draw(results: Results, directory: Path) -> list[Path]:
    (directory / "two.png").write_bytes(PNG)
    return [directory / "two.png"]


FIGURE = Figure("two", "Two & more", "The paper says so", [SERIES], evaluate, draw)


def canned() -> dict[str, Any]:
    """One of four runs is missing, for it was discarded; another was never done."""
    limiters = {"l1": constant(3), "l2": constant(7)}
    result = a_result(
        a_run("ctb", 1, limiters=limiters), a_run("fps", 1, limiters=limiters),
        discarded=[{"allocator": "fps", "repetition": 2, "reason": "the delay line stalled"}],
    )  # fmt: skip
    results = {"two": result}
    found = summarize(FIGURE, evaluate(Results(results)), ["two.png"], results, quick=True)
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]  # JSON


def test_a_summary_says_what_holds_and_what_is_missing() -> None:
    summary = canned()
    assert [check["verdict"] for check in summary["checks"]] == ["ok", "failed", "not measured"]
    assert missing(summary) == [
        "two: 2 of 4 runs (fps, repetition 2: the delay line stalled)",
    ]
    assert missing_count(summary) == 2
    (series,) = summary["series"]
    assert (series["runs"], series["wanted"], series["datapaths"]) == (2, 4, ["kernel"])
    assert [check["statement"] for check in unmet(summary, Verdict.FAILED)] == ["as CTB"]


def test_a_series_without_any_run_is_missing_altogether() -> None:
    summary = summarize(FIGURE, Finding([], ""), [], {}, quick=False)
    assert missing(summary) == ["two: 4 of 4 runs"]
    assert report.conditions([summary]) == []


def test_the_page_of_out_has_all_checks_and_plots(tmp_path: Path) -> None:
    draw(Results({}), tmp_path)
    (tmp_path / "two").mkdir()
    (tmp_path / "two.png").rename(tmp_path / "two/two.png")
    (file,) = document.write({"two": FIGURE}, [canned()], tmp_path, tmp_path)
    page = file.read_text()
    assert "| FPS holds <the> limit | 1 | 0.97 to 1.03 | ok |" in page
    assert "| as CTB | 0.5 | at least 0.9 | failed |" in page
    assert "| absent | - | at least 0.9 | not measured |" in page
    assert "- 2 runs are missing" in page
    assert (file.name, (tmp_path / "plots/two.png").read_bytes()) == ("reproduction.md", PNG)


def test_the_document_names_every_figure() -> None:
    path = Path(__file__).parents[2] / "docs/reproduction.md"
    document = path.read_text(encoding="utf-8")
    named = set(re.findall("`([a-z0-9-]+)`", document))
    assert {"fig3", "fig9"} <= named, "`fig3` to `fig9`"
    named |= {f"fig{number}" for number in range(3, 10)}
    named |= {name for group in named & GROUPS.keys() for name in GROUPS[group]}
    assert [name for name in FIGURES if name not in named] == []


def test_the_terminal_lists_checks_that_do_not_hold() -> None:
    said = report.text([canned()])
    assert "Two & more: 1 of 3 checks hold" in said
    assert "failed: as CTB: 0.5 (at least 0.9)" in said
    assert "not measured: absent" in said


def test_only_report_measures_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "FIGURES", {"two": FIGURE})
    runs = tmp_path / "runs/two"
    runs.mkdir(parents=True)
    result = a_result(a_run("fps", limiters={"l1": constant(10)}))
    (runs / "result.json").write_text(json.dumps(result))
    done = CliRunner().invoke(command.main, ["--only-report", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "1 of 3 checks hold" in done.output
    assert "## Two & more" in (tmp_path / "reproduction.md").read_text()
    assert json.loads((tmp_path / "two/summary.json").read_text())["name"] == "two"


def test_a_pattern_that_names_no_series_is_refused(tmp_path: Path) -> None:
    asked = ["thesis-d", "--runs", "thesis/nothing*", "--out", str(tmp_path)]
    done = CliRunner().invoke(command.main, asked)
    assert done.exit_code == 2
    assert "no series is called thesis/nothing* (there are thesis/" in done.output


def test_the_help_names_every_figure_and_its_time() -> None:
    said = CliRunner().invoke(command.main, ["--help"]).output
    assert all(f"  {name} " in said for name in FIGURES)
    assert "quick" in said


@pytest.mark.parametrize("figure", FIGURES.values(), ids=lambda figure: figure.name)
@pytest.mark.parametrize("quick", [False, True])
def test_every_series_can_be_run(figure: Figure, quick: bool) -> None:
    assert all(series.tasks(quick, Room(1, 2)) for series in figure.series(quick))


@pytest.mark.parametrize("figure", FIGURES.values(), ids=lambda figure: figure.name)
def test_a_figure_without_runs_is_not_measured_and_says_so(figure: Figure, tmp_path: Path) -> None:
    found = figure.evaluate(Results({}))
    assert found.checks
    assert {check.verdict for check in found.checks} == {Verdict.MISSING}
    assert figure.draw(Results({}), tmp_path) == []


def test_series_that_share_a_name_are_one() -> None:
    series = [one for figure in FIGURES.values() for one in figure.all_series]
    assert all(one == other for one in series for other in series if one.name == other.name)
    shared = series_of([FIGURES["fig3"], FIGURES["fig5"]], True)
    assert [one.name for one in shared] == ["baseline"]


def test_a_quick_run_leaves_out_what_is_not_for_it() -> None:
    long = Series("long", "baseline", quick=None)
    figure = Figure("two", "Two", "", [SERIES, long], evaluate, draw)
    assert series_of([figure], False) == [SERIES, long]
    assert series_of([figure], True) == [SERIES]
    quick = summarize(figure, Finding([], ""), [], {}, quick=True)
    assert [series["name"] for series in quick["series"]] == ["two"]


@pytest.mark.parametrize(
    ("seconds", "said"), [(53.2, "53 s"), (900, "15 min"), (3900, "1 h 05 min")]
)
def test_durations_are_said_in_words(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_two_runs_do_not_share_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "FIGURES", {"two": FIGURE})
    monkeypatch.setattr(command, "probed", lambda backend: "netem")
    call = ["--out", str(tmp_path / "new")]
    with runner.claimed(tmp_path / "new"):
        refused = CliRunner().invoke(command.main, call)
    assert refused.exit_code == 1
    assert "is being written by another" in refused.output
    monkeypatch.setattr(command, "run_to_end", lambda _: None)
    assert CliRunner().invoke(command.main, call).exit_code == 0


def test_an_interrupted_run_leaves_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: object) -> None:
        raise SystemExit(130)

    monkeypatch.setattr(command, "FIGURES", {"two": FIGURE})
    monkeypatch.setattr(command, "run_to_end", interrupted)
    monkeypatch.setattr(command, "probed", lambda backend: "netem")
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / runner.SUMMARY).write_text(json.dumps({**canned(), "plots": []}))
    done = CliRunner().invoke(command.main, ["--out", str(tmp_path)])
    assert done.exit_code == 130
    assert "## Two & more" in (tmp_path / "reproduction.md").read_text()
