"""What the chaos suite makes of what it saw: overshoot, recovery, logs, the report."""

from __future__ import annotations

import json
import math
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from testbed.chaos import __main__ as command
from testbed.chaos import report
from testbed.chaos.fault import KERNEL, NFQUEUE, Check
from testbed.chaos.flood import checksummed
from testbed.chaos.forger import corrupted, forged, packet
from testbed.chaos.logs import Log, repeated
from testbed.chaos.registry import FAULTS, stages
from testbed.chaos.scene import Canary
from testbed.chaos.series import Series, depths, lowest, overshoot, recovery_s
from testbed.chaos.soak import Life


def series(**rates: list[tuple[float, float]]) -> Series:
    """Each limiter forwards at some rates for some seconds, one after another; sampled at 0.1 s."""
    found = Series()
    steps = {
        name: [rate / 10 for seconds, rate in spans for _ in range(round(seconds * 10))]
        for name, spans in rates.items()
    }
    total = dict.fromkeys(rates, 0.0)
    for index in range(min(map(len, steps.values()))):
        found.add(index / 10, {name: round(value) for name, value in total.items()})
        total = {name: value + steps[name][index] for name, value in total.items()}
    return found


def test_what_passes_at_the_rate_is_no_overshoot() -> None:
    even = series(a=[(5, 1000)])
    assert overshoot(even.times, even.total(), (0, 5), 1000, 1.0) == pytest.approx(0, abs=1e-6)


def test_a_burst_is_the_overshoot_whatever_window_it_is_in() -> None:
    burst = series(a=[(2, 1000), (0.3, 3000), (2, 1000)])
    seen = overshoot(burst.times, burst.total(), (0, 5), 1000, 1.0)
    assert seen == pytest.approx(600, abs=1)


def test_an_overshoot_that_lasts_counts_for_one_window() -> None:
    high = series(a=[(1, 1000), (5, 1500), (1, 1000)])
    assert overshoot(high.times, high.total(), (0, 9), 1000, 1.0) == pytest.approx(500, abs=1)
    assert overshoot(high.times, high.total(), (0, 9), 1000, 99.0) == pytest.approx(2500, abs=1)


def test_idle_time_is_no_credit() -> None:
    late = series(a=[(3, 0), (1, 1500), (1, 0)])
    assert overshoot(late.times, late.total(), (0, 5), 1000, 99.0) == pytest.approx(500, abs=1)


def test_only_the_span_counts() -> None:
    early = series(a=[(1, 9000), (3, 1000)])
    assert overshoot(early.times, early.total(), (1.5, 4), 1000, 1.0) == pytest.approx(0, abs=1e-6)
    assert overshoot(early.times, early.total(), (7, 8), 1000, 1.0) == 0


def test_recovery_is_the_start_of_the_first_full_and_even_second() -> None:
    seen = series(a=[(2, 500), (6, 500)], b=[(4, 0), (4, 500)])
    # From 3.8 s on b has 400 in a second: 0.9 of the total.
    assert recovery_s(seen, 1.0, 1000) == pytest.approx(2.8, abs=0.11)
    assert recovery_s(seen, 5.0, 1000) == 0


def test_who_is_full_for_a_moment_and_then_is_not_has_not_recovered_then() -> None:
    seen = series(a=[(3, 1000), (0.5, 0), (4, 1000)])
    # The first second that has no more than 0.1 s of the gap begins at 3.4 s.
    assert recovery_s(seen, 0.0, 1000) == pytest.approx(3.4, abs=0.11)
    assert recovery_s(seen, 0.0, 1000, lasts_s=2.9) == pytest.approx(3.4, abs=0.11)
    assert recovery_s(seen, 0.0, 1000, lasts_s=3.2) is None


def test_who_is_not_full_at_the_end_has_not_recovered() -> None:
    assert recovery_s(series(a=[(3, 1000), (0.5, 0)]), 0.0, 1000) is None


def test_the_course_of_what_passed() -> None:
    seen = series(a=[(2, 1000), (2, 500)], b=[(4, 100)])
    assert seen.steps(1.0, 3.0, 0.5) == {"a": [500, 500, 250, 250], "b": [50] * 4}


def test_a_fleet_that_is_full_but_not_even_has_not_recovered() -> None:
    seen = series(a=[(2, 900), (3, 500)], b=[(2, 100), (3, 500)])
    assert recovery_s(seen, 0.0, 1000, even=False) == 0
    assert recovery_s(seen, 0.0, 1000) == pytest.approx(1.4, abs=0.11)


def test_no_recovery_is_none() -> None:
    assert recovery_s(series(a=[(5, 800)]), 0.0, 1000) is None


def test_the_lowest_second() -> None:
    seen = series(a=[(2, 1000), (0.5, 0), (2, 1000)])
    assert lowest(seen, 0.0, 4.4) == pytest.approx(500, rel=0.01)
    assert math.isnan(lowest(seen, 0.0, 0.5))


def test_depths_of_a_fleet() -> None:
    assert depths(2, 50_000) == 100_000
    assert depths(8, 1_500) == 8 * 18_000


def test_canaries_that_did_not_come() -> None:
    canary = Canary(sent=[0.0, 1.0, 2.0, 3.0], received={0, 3})
    assert canary.lost(0.5, 9.0) == 2
    assert canary.lost(2.5, 9.0) == 0


def test_a_log_is_read_as_it_grows(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text("one\ntw")
    log = Log(file)
    assert log.look() == 1
    with file.open("a") as more:
        more.write("o\nthree\n")
    assert log.look() == 3
    assert log.lines == ["one", "two", "three"]


def test_lines_that_differ_by_numbers_are_the_same() -> None:
    assert repeated(["error 1 of 20", "error 22 of 3", "else"]) == 2
    assert repeated([]) == 0


@pytest.mark.parametrize(
    ("measured", "at_least", "holds"),
    [(5.0, False, True), (5.1, False, False), (5.0, True, True), (4.9, True, False),
     (None, False, False), (math.nan, False, False), (math.nan, True, False)],
)  # fmt: skip
def test_a_check(measured: float | None, at_least: bool, holds: bool) -> None:
    assert Check("it", "s", measured, 5.0, at_least).holds is holds


def result(*checks: Check, left: list[str] | None = None, error: str | None = None) -> Any:
    record = {
        "fault": "kill-one",
        "datapath": "kernel",
        "checks": [check.record() for check in checks],
    }
    return {
        "taken": "2026-01-01",
        "quick": True,
        "seed": 1,
        "fabric": "mesh",
        "seconds": 9.0,
        "host": {"model": "m", "processors": 2, "kernel": "6.1", "python": "3.11"},
        "stages": [
            {
                "faults": ["kill-one"],
                "datapath": "kernel",
                "records": [record],
                "left": left or [],
                "error": error,
            }
        ],
    }


KEPT = Check("recovery", "s", 1.25, 6.0)
BROKEN = Check("beyond limit x time", "B", 200_000, 150_000)


def test_a_report_of_kept_promises() -> None:
    good = result(KEPT, Check("odd", "", 3, 3))
    assert report.broken(good) == []
    assert "all hold" in report.text(good)
    assert "1.25 s (≤ 6 s)" in report.text(good)
    assert "odd 3 (≤ 3)" in report.markdown(good)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (result(KEPT, BROKEN), "beyond limit x time: 200 kB, promised ≤ 150 kB"),
        (result(KEPT, left=["l1: a rule"]), "left behind: l1: a rule"),
        (result(KEPT, error="no such host"), "no such host"),
        (result(Check("recovery", "s", None, 6.0)), "recovery: never"),
    ],
)
def test_a_report_of_broken_promises(bad: Any, words: str) -> None:
    (line,) = report.broken(bad)
    assert words in line
    assert f"BROKEN: {line}" in report.text(bad)
    assert f"- broken: {line}" in report.markdown(bad)


def test_what_was_interrupted_is_not_kept() -> None:
    unfinished = result(KEPT)
    unfinished["stages"][0]["records"] = []
    assert "interrupted" in report.broken(unfinished)[0]


def test_every_fault_is_done_on_every_datapath_it_is_for() -> None:
    done = [(way, name) for way, names in stages([], None, quick=False) for name in names]
    assert len(done) == len(set(done))
    assert set(done) == {(way, fault.name) for fault in FAULTS.values() for way in fault.datapaths}


def test_quick_does_every_fault_once() -> None:
    done = [name for _, names in stages([], None, quick=True) for name in names]
    assert sorted(done) == sorted(FAULTS)


def test_names_and_datapath_choose() -> None:
    assert stages(["kill-all"], None, quick=False) == [
        (KERNEL, ("kill-all",)),
        (NFQUEUE, ("kill-all",)),
    ]
    assert stages(["kill-all"], NFQUEUE, quick=True) == [(NFQUEUE, ("kill-all",))]


@given(st.binary(min_size=1, max_size=60), st.randoms(use_true_random=False))
def test_what_is_corrupted_is_not_what_was_recorded(recorded: bytes, rng: Random) -> None:
    assert corrupted(rng, recorded) != recorded


@given(st.randoms(use_true_random=False))
def test_what_is_forged_is_of_the_size_of_gossip(rng: Random) -> None:
    assert len(forged(rng, 3)) <= 200


def test_a_packet_has_the_lengths_of_its_headers() -> None:
    made = packet(bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]), 7946, b"abc")
    assert (len(made), made[12:20]) == (31, bytes([10, 0, 0, 1, 10, 0, 0, 2]))
    assert made[20:26] == bytes([0x1F, 0x0A, 0x1F, 0x0A, 0, 11])


def test_a_header_s_checksum_makes_its_sum_all_ones() -> None:
    made = packet(bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]), 7946, b"abc")
    header = checksummed(made[:20], len(made))
    total = sum(int.from_bytes(header[at : at + 2], "big") for at in range(0, 20, 2))
    assert total % 0xFFFF == 0
    assert header[2:4] == bytes([0, 31])


def test_a_life_that_grows() -> None:
    life = Life()
    for time_s in range(0, 1000, 10):
        life.times.append(time_s)
        life.resident.append(50_000_000 + (0 if time_s < 300 else (time_s - 300) * 10))
    assert life.slope(300.0) == pytest.approx(36_000)


@pytest.mark.parametrize(("check", "status"), [(KEPT, 0), (BROKEN, 1)])
def test_the_exit_status_says_whether_promises_are_kept(
    check: Check, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Done:
        def __init__(self, *_: object) -> None:
            self.stages = result(check)["stages"]

        async def carry_out(self) -> None:
            pass

    monkeypatch.setattr(command, "Campaign", Done)
    monkeypatch.setattr(command, "probed", lambda backend: backend)
    monkeypatch.setattr(command, "run_to_end", trio.run)
    done = CliRunner().invoke(command.main, ["kill-one", "--out", str(tmp_path)])
    assert done.exit_code == status, done.output
    assert ("BROKEN: " in done.output) == bool(status)
    assert json.loads((tmp_path / "chaos.json").read_text())["seed"] == 1
