"""The comparison of fabrics: its cases, what it measures, what it keeps and shows."""

import io
import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner

from drld.gossip.fabrics import FABRICS
from testbed.fabrics import campaign, document
from testbed.fabrics.__main__ import main
from testbed.fabrics.case import CHURN, DEATH, DEMAND, SIZES, Case, cases
from testbed.fabrics.measure import STEP, Errors, measure
from testbed.fabrics.results import Results
from testbed.harness.ledger import PREVIOUS, RESULT
from testbed.harness.progress import Board
from tests.test_layering import ROOT, imports

SMALL = 3


def test_every_case_is_there_once() -> None:
    found = cases(tuple(FABRICS), SIZES, quick=False)
    assert len(set(found)) == len(found)
    assert {case.fabric for case in found} == set(FABRICS)
    assert {case.loss for case in found} == {0.0, 0.01, 0.05, 0.2, 0.4}
    for fabric in FABRICS:
        assert {case.limiters for case in found if case.fabric == fabric} == set(SIZES)


def test_a_quick_comparison_is_a_part_of_the_whole() -> None:
    few = cases(tuple(FABRICS), SIZES[:2], quick=True)
    assert set(few) < set(cases(tuple(FABRICS), SIZES, quick=False))


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (Case(DEMAND, "tree", 10), "nothing lost"),
        (Case(DEMAND, "tree", 10, loss=0.05, delay_ms=200), "5 % lost and paths of 200 ms"),
        (Case(CHURN, "tree", 10, every=10), "a death every 0.5 s"),
        (Case(DEMAND, "tree", 10, jitter_ms=120, duplicate=0.2), "jitter of 120 ms and 20 % twice"),
    ],
)
def test_a_case_says_what_it_varies(case: Case, said: str) -> None:
    assert case.variant == said


def test_when_a_change_is_known() -> None:
    assert Errors(series=[0.5, 0.2, 0.01, 0.04]).close_after == 3
    assert Errors(series=[0.5, 0.01, 0.2, 0.04]).close_after == 4
    assert Errors(series=[0.01]).close_after == 1
    assert Errors(series=[0.01, 0.2]).close_after is None


@pytest.mark.parametrize("fabric", FABRICS)
def test_demands_are_believed_exactly_without_loss(fabric: str) -> None:
    record = measure(Case(DEMAND, fabric, SMALL))
    rounding = 7e-5 if fabric == "pushsum" else 1e-6  # of running sums (`pushsum_pair.py`)
    assert record["steady"]["rms"] < rounding
    assert record["steady"]["allotted"]["mean"] == pytest.approx(1, abs=1e-6)
    assert record["restless"]["rms"] > 1e-3
    assert record["up"]["lowest"] == pytest.approx(-0.5, abs=0.01)
    assert 1 <= record["up"]["close_after"] < 8
    assert record["down"]["highest"] == pytest.approx(1, abs=0.02)
    assert len(record["series"]["up"]) == STEP
    told = {"mesh": SMALL - 1, "pushsum": SMALL - 1, "tree": 2 * (SMALL - 1) / SMALL}[fabric]
    assert record["updates"] == pytest.approx(told, abs=1e-3)
    assert record["bytes_s"] == pytest.approx(told * 48 * 20, abs=1)


@pytest.mark.parametrize("fabric", FABRICS)
def test_a_death_and_a_return_are_counted_in_time(fabric: str) -> None:
    record = measure(Case(DEATH, fabric, SMALL))
    assert 10 < record["death"]["counted_after"] < 60
    assert record["death"]["close_after"] is not None
    # Until it is known the total is believed to be what it was, twice what it is.
    assert record["death"]["highest"] == pytest.approx(1, abs=0.4)
    assert record["return"]["counted_after"] < 30
    assert record["return"]["close_after"] < 30


def test_churn_is_worse_than_peace() -> None:
    assert measure(Case(CHURN, "mesh", SMALL, every=40))["churn"]["rms"] > 0.01


def test_the_same_case_gives_the_same_record() -> None:
    case = Case(CHURN, "tree", SMALL, every=40, loss=0.2, seed=2)
    assert measure(case) == measure(case)
    assert "series" not in measure(case)


async def test_an_interrupted_comparison_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [Case(DEMAND, "tree", SMALL), Case(DEMAND, "mesh", SMALL)]
    board = Board(io.StringIO())
    await campaign.carry_out(wanted[:1], tmp_path, 1, board)
    file = tmp_path / RESULT
    kept = json.loads(file.read_text())
    kept["runs"][0]["updates"] = 77.0
    file.write_text(json.dumps(kept))
    runs = (await campaign.carry_out(wanted, tmp_path, 1, board))["runs"]
    assert [run["case"]["fabric"] for run in runs] == ["tree", "mesh"]
    assert runs[0]["updates"] == 77.0
    monkeypatch.setattr(campaign, "code", lambda fabric: "other")
    runs = (await campaign.carry_out(wanted[:1], tmp_path, 1, board))["runs"]
    assert [run["case"]["fabric"] for run in runs] == ["mesh", "tree"]
    assert runs[1]["updates"] != 77.0
    assert (tmp_path / PREVIOUS).is_file()


@pytest.mark.parametrize("fabric", FABRICS)
def test_every_decisive_file_makes_results_stale(fabric: str) -> None:
    """All that is imported, from wherever a fabric or its measuring begins; but other fabrics."""
    found: set[Path] = set()
    todo = [ROOT / f"drld/gossip/fabrics/{fabric}.py", ROOT / "testbed/fabrics/measure.py"]
    while todo:
        path = todo.pop()
        found.add(path)
        names = (ROOT / f"{name.replace('.', '/')}.py" for name in imports(path))
        todo += [name for name in names if name.is_file() and name not in found]
    found -= {ROOT / "drld/errors.py", ROOT / "testbed/fabrics/case.py"}
    for other in set(FABRICS) - {fabric}:
        found -= {path for pattern in campaign.OWN[other] for path in ROOT.glob(pattern)}
    assert found <= {path for it in campaign.decisive(fabric) for path in ROOT.glob(it)}


def test_a_section_of_the_page_has_one_size() -> None:
    made = [
        measure(Case(part, fabric, SMALL, every=40 if part == CHURN else 0))
        for part in (DEMAND, DEATH, CHURN)
        for fabric in ("tree", "mesh")
    ]
    for run in made:
        run["case"]["limiters"] = 10
    results = Results(made)
    sections = document.sections(results, [Path("fabrics-time.png")], "A run.")
    assert sections.keys() == {"10"}
    assert sections["10"].startswith("## 10 limiters\n\nA run.\n\nNothing lost")
    assert "| 10 | tree | 1.3 |" in sections["10"]
    assert len(document.tables(results)) == 6
    assert results.fabrics() == ["mesh", "tree"]


def test_the_page_has_plots_if_every_size_was_measured() -> None:
    runs = [measure(Case(DEMAND, "tree", SMALL)) for _ in SIZES]
    for run, size in zip(runs, SIZES, strict=True):
        run["case"]["limiters"] = size
    sections = document.sections(Results(runs), [Path("fabrics-time.png")], "A run.")
    assert [*sections] == [*map(str, SIZES), "plots"]
    assert sections["plots"].endswith("![fabrics-time](plots/fabrics-time.png)")
    assert "| 100 |" not in sections["490"]


def test_results_combine_the_seeds() -> None:
    runs = [
        {"case": Case(DEMAND, "tree", 10, seed=seed).document, "a": a, "t": t}
        for seed, a, t in ((1, 3.0, 4), (2, -4.0, None))
    ]
    results = Results(runs)
    case = Case(DEMAND, "tree", 10)
    assert results.rms(case, "a") == pytest.approx(math.sqrt(12.5))
    assert results.mean(case, "a") == -0.5
    assert results.extreme(case, "a") == -4.0
    assert results.seconds(case, "t") == math.inf
    assert results.rms(Case(DEMAND, "tree", 100), "a") is None


def test_a_report_without_runs_is_an_error(tmp_path: Path) -> None:
    ran = CliRunner().invoke(main, ["--only-report", "--out", f"{tmp_path / 'none'}"])
    assert ran.exit_code == 1
    assert "has no result yet" in ran.output


async def test_a_report_shows_the_present_runs(tmp_path: Path) -> None:
    await campaign.carry_out([Case(DEMAND, "tree", 10)], tmp_path, 1, Board(io.StringIO()))
    ran = CliRunner().invoke(main, ["--only-report", "--out", f"{tmp_path}"])
    assert ran.exit_code == 0, ran.output
    assert "| 10 | tree |" in ran.output
    assert {file.name for file in tmp_path.glob("*.png")} == {
        "fabrics-time.png",
        "fabrics-loss.png",
        "fabrics-size.png",
    }
