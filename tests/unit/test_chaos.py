"""What the chaos suite makes of what it saw: overshoot, recovery, logs, the report."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
import trio
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from testbed.chaos import __main__ as command
from testbed.chaos import report, stage
from testbed.chaos.fault import KERNEL, NFQUEUE, Check
from testbed.chaos.flood import checksummed
from testbed.chaos.forger import corrupted, forged, packet
from testbed.chaos.logs import Log, most_news, news, repeated
from testbed.chaos.meter import NICE, Counters, timed
from testbed.chaos.registry import FAULTS, stages
from testbed.chaos.scene import Canary, Scene
from testbed.chaos.series import SAMPLE_S, Seen, depths, lowest, overshoot, recovery_s
from testbed.chaos.soak import Life
from testbed.chaos.stage import Job
from testbed.markdown import replace_section


def series(**rates: list[tuple[float, float]]) -> Seen:
    """Each limiter forwards at some rates for some seconds, one after another."""
    found = Seen()
    steps = {
        name: [rate / 50 for seconds, rate in spans for _ in range(round(seconds * 50))]
        for name, spans in rates.items()
    }
    total = dict.fromkeys(rates, 0.0)
    for index in range(min(map(len, steps.values()))):
        found.add(index / 50, {name: round(value) for name, value in total.items()})
        total = {name: value + steps[name][index] for name, value in total.items()}
    return found


def test_what_passes_at_the_rate_is_no_overshoot() -> None:
    even = series(a=[(5, 1000)])
    assert overshoot(even.all.times, even.all.total(), (0, 5), 1000, 1.0) == pytest.approx(
        0, abs=1e-6
    )


def test_a_burst_is_the_overshoot_whatever_window_it_is_in() -> None:
    burst = series(a=[(2, 1000), (0.3, 3000), (2, 1000)])
    seen = overshoot(burst.all.times, burst.all.total(), (0, 5), 1000, 1.0)
    assert seen == pytest.approx(600, abs=1)


def test_an_overshoot_that_lasts_counts_for_one_window() -> None:
    high = series(a=[(1, 1000), (5, 1500), (1, 1000)])
    assert overshoot(high.all.times, high.all.total(), (0, 9), 1000, 1.0) == pytest.approx(
        500, abs=1
    )
    assert overshoot(high.all.times, high.all.total(), (0, 9), 1000, 99.0) == pytest.approx(
        2500, abs=1
    )


def test_idle_time_is_no_credit() -> None:
    late = series(a=[(3, 0), (1, 1500), (1, 0)])
    assert overshoot(late.all.times, late.all.total(), (0, 5), 1000, 99.0) == pytest.approx(
        500, abs=1
    )


def test_only_the_span_counts() -> None:
    early = series(a=[(1, 9000), (3, 1000)])
    assert overshoot(early.all.times, early.all.total(), (1.5, 4), 1000, 1.0) == pytest.approx(
        0, abs=1e-6
    )
    assert overshoot(early.all.times, early.all.total(), (7, 8), 1000, 1.0) == 0


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
    assert seen.all.steps(1.0, 3.0, 0.5) == {"a": [500, 500, 250, 250], "b": [50] * 4}


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


def stopping(*stops: float, rate: float = 1000, passing: float = 0) -> Seen:
    """Ten seconds, in which the sampler stands still for so long after each second; `passing` is
    the rate meanwhile."""
    found = Seen()
    time_s, value = 0.0, 0.0
    for number in range(round(10 / SAMPLE_S)):
        found.add(time_s, {"a": round(value)})
        value += rate * SAMPLE_S
        second, part = divmod(number + 1, round(1 / SAMPLE_S))
        time_s += SAMPLE_S
        if not part and second <= len(stops):
            time_s += stops[second - 1]
            value += passing * stops[second - 1]
    return found


def test_a_host_that_does_not_stop() -> None:
    seen = stopping()
    assert seen.awake.times == pytest.approx(seen.all.times)
    assert seen.awake.forwarded == seen.all.forwarded
    assert seen.late_s(0.0, 10.0) == pytest.approx(0)
    assert Seen().late_s(0.0, 4.0) == 0


def test_a_host_that_stands_still() -> None:
    seen = stopping(0.0, 0.18, 0.08)
    # What counts is from one sample to the next; the stops are more than a second apart.
    assert seen.late_s(0.0, 9.0) == pytest.approx(0.2)
    assert seen.late_s(3.3, 9.0) == pytest.approx(0.1)
    assert seen.late_s(4.5, 9.0) == pytest.approx(0)
    assert seen.late_s(0.0, 1.9) == pytest.approx(0)
    assert seen.awake_at(9.0) == pytest.approx(9.0 - 0.3)


@pytest.mark.parametrize("passing", [0, 500, 2000])
@pytest.mark.parametrize("rate", [1000, 850])
def test_what_a_late_sample_does_not_tell_is_neither_time_nor_use(
    rate: float, passing: float
) -> None:
    seen = stopping(0.0, 0.22, 0.32, 0.22, rate=rate, passing=passing)
    assert lowest(seen, 0.0, 9.0) == pytest.approx(rate, rel=0.002)
    assert recovery_s(seen, 0.0, 1000) == (0 if rate == 1000 else None)


def test_an_interface_that_is_made_again_counts_on() -> None:
    counters = Counters({"l1": "a", "l2": "b"})
    assert counters.take({("a", "rx"): 10, ("b", "rx"): 5}) == {"l1": 10, "l2": 5}
    assert counters.take({("b", "rx"): 6}) == {"l1": 10, "l2": 6}
    assert counters.take({("a", "rx"): 3, ("b", "rx"): 6}) == {"l1": 13, "l2": 6}
    assert counters.take({("a", "rx"): 4, ("b", "rx"): 7}) == {"l1": 14, "l2": 7}


def test_a_reading_in_the_middle_of_which_the_host_stopped_is_taken_again() -> None:
    times = iter([1.0, 1.2, 1.2, 1.201])
    texts = iter(["old", "new"])
    time_s, text = timed(lambda: next(texts), lambda: next(times))
    assert text == "new"
    assert time_s == pytest.approx(1.2005)


def test_a_host_that_always_stops_has_the_last_reading_taken() -> None:
    clock = itertools.count(0.0)
    assert timed(lambda: "text", lambda: next(clock)) == (8.5, "text")


def test_daemons_are_as_urgent_as_the_unit_has_them() -> None:
    unit = (Path(__file__).parents[2] / "scripts/drld.service").read_text()
    assert f"\nNice={NICE}\n" in unit


class Attempts:
    """Measurements of a fault, one after another: how late the host was, and what was seen."""

    def __init__(self, *attempts: tuple[float, Check]) -> None:
        self._attempts = iter(attempts)
        self.rng = Random()
        self.seeds: set[float] = set()

    async def settled(self) -> None:
        self.seeds.add(self.rng.random())

    async def one(self, *_: object) -> dict[str, Any]:
        late_s, check = next(self._attempts)
        record: dict[str, Any] = result(check)["stages"][0]["records"][0]
        return {**record, "late_s": late_s}


@pytest.mark.parametrize(
    ("attempts", "discarded", "holds"),
    [
        ([(0.0, True)], [], True),
        ([(0.3, True)], [], True),
        ([(0.0, False)], [], False),
        ([(0.3, False), (0.0, True)], [0.3], True),
        ([(0.3, False), (0.0, False)], [0.3], False),
        ([(0.3, False), (0.2, False), (0.1, True)], [0.3, 0.2], True),
        ([(0.3, False)] * stage.ATTEMPTS, [0.3] * (stage.ATTEMPTS - 1), False),
    ],
)
async def test_what_the_host_may_have_spoiled_is_measured_again(
    attempts: list[tuple[float, bool]],
    discarded: list[float],
    holds: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fleet = Attempts(*((late_s, KEPT if kept else BROKEN) for late_s, kept in attempts))
    monkeypatch.setattr(stage, "_one", fleet.one)
    job = Job(["kill-one"], KERNEL, "auto", seed=1, quick=True, seconds=0, fabric="tree")
    record = await stage._measured(FAULTS["kill-one"], cast(Scene, fleet), job)
    assert [attempt["late_s"] for attempt in record["discarded"]] == discarded
    assert (report.broken_of(record) == []) is holds
    assert len(fleet.seeds) == 1
    assert capsys.readouterr().out.count("before") == len(attempts)


def test_what_was_discarded_is_reported_and_breaks_nothing() -> None:
    good = result(KEPT)
    (record,) = good["stages"][0]["records"]
    record["discarded"] = [{"late_s": 0.25, "broken": ["in use at least: 0.8"]}]
    line = "discarded, as the host stood still for 0.25 s in a second: in use at least: 0.8"
    assert report.broken(good) == []
    assert line in report.text(good)
    assert f"- {line}" in report.markdown(good)


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
    ("line", "thing"),
    [
        ("drld: no peer answers", "answers"),
        ("drld: peers answer again", "answers"),
        ("drld: peer l2 is dead: nobody has heard from it", "peer l2's verdict"),
        ("drld: peer l2 is back", "peer l2's verdict"),
        ("drld: peer l2 has left", "peer l2's verdict"),
        ("drld: peer l2 is configured otherwise for the limits load", "peer l2's limits"),
        ("drld: peer l2 is configured with the same limits again", "peer l2's limits"),
        ("drld: ready: limits: 2", None),
    ],
)
def test_lines_that_tell_of_peers(line: str, thing: str | None) -> None:
    assert news(line) == thing


def test_lines_of_one_thing() -> None:
    lines = ["drld: no peer answers", "drld: peers answer again", "drld: peer a is back", "else"]
    assert most_news(lines) == 2
    assert most_news(["else", "else"]) == 0


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
        "discarded": [],
    }
    return {
        "taken": "2026-01-01",
        "commit": "0123456789abcdef",
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


def test_what_is_usual_is_told_once_at_its_worst() -> None:
    usual = [Check("memory of a daemon grew by", "B", size, 3_000_000) for size in (5_000, 9_000)]
    good = result(KEPT, usual[0])
    good["stages"] += result(KEPT, usual[1])["stages"]
    assert report.markdown(good).count("memory of a daemon grew by") == 1
    assert "memory of a daemon grew by 9 kB (≤ 3000 kB)" in report.markdown(good)
    bad = result(Check("traces in logs", "", 1, 0))
    assert "traces in logs 1 (≤ 0) BROKEN |" in report.markdown(bad)


@pytest.mark.parametrize("fabric", ["tree", "mesh"])
def test_there_is_a_place_for_figures(fabric: str) -> None:
    document = (Path(__file__).parents[2] / "docs/chaos.md").read_text()
    replaced = replace_section(document, report.markdown(result(KEPT)), *report.markers(fabric))
    assert "commit 0123456, seed 1" in replaced


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
