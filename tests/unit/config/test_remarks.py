"""Remarks: settings that are allowed, and for which a better one exists."""

from __future__ import annotations

from pathlib import Path

import pytest

from drld import config
from drld.daemon.command_line import main
from tests.factories import example
from tests.unit.config.good import GOOD, LIMIT, changed

SHALLOW = changed(("400kB", "75kB"))
SLOW = GOOD + LIMIT.replace("id = 1", "id = 2").replace('"a"', '"b"\ninterval = "500ms"')
REMARK = (
    "limit.interval: longer than gossip.interval, 50ms: b (500ms): these limits follow "
    "changes of demand only once per interval"
)
SHALLOW_REMARK = (
    "limit.burst: below 0.25 s of the rate: a: a lone TCP flow may then "
    'stay below the rate; write a larger burst, or "auto" (docs/operations.md)'
)


def remarks(text: str) -> list[str]:
    return config.remarks(config.parse(text, "f"))


def test_limits_with_intervals_above_the_round_draw_a_remark() -> None:
    assert remarks(GOOD) == []
    assert remarks(SLOW) == [REMARK]
    as_often = '[gossip]\ninterval = "500ms"\n'
    assert remarks(SLOW + as_often) == []


def test_a_fleet_of_one_draws_no_remark_on_intervals() -> None:
    alone = SLOW.replace('[[peer]]\nname = "lim2"\naddress = "10.0.0.2:7946"\n', "")
    assert remarks(alone) == []


def test_a_burst_below_a_quarter_of_a_second_draws_a_remark() -> None:
    assert remarks(SHALLOW) == [SHALLOW_REMARK]
    assert remarks(SHALLOW.replace("75kB", "312499B")) == [SHALLOW_REMARK]
    assert remarks(SHALLOW.replace("75kB", "312500B")) == []
    assert remarks(SHALLOW.replace("75kB", "auto")) == []
    assert remarks(SHALLOW.replace('burst = "75kB"\n', "")) == []


def test_keys_that_only_fair_carries_out() -> None:
    keys = 'excess = "mark"\nweights = { lim1 = 2 }\n'
    used = GOOD.replace('name = "a"\n', f'name = "a"\n{keys}')
    assert remarks(used) == []
    weights, excess = remarks(used.replace(keys, keys + 'allocator = "grd"\n'))
    assert weights.startswith('limit.weights: ignored, as only the allocator "fair"')
    assert excess.endswith("carries it out: a (docs/configuration.md)")


def test_all_limits_of_a_small_burst_are_on_one_line() -> None:
    second = LIMIT.replace("id = 1", "id = 2").replace('"a"', '"b"').replace("400kB", "80kB")
    (line,) = remarks(SHALLOW + second)
    assert "a, b: a lone" in line


@pytest.mark.parametrize(
    ("rate", "burst", "count"),
    [
        ("10kbit", "1500B", 0),
        ("128gbit", "3.999GB", 1),
        ("128gbit", "4GB", 0),
        ("129gbit", "3.999GB", 0),
        ("400gbit", "1500B", 0),
    ],
)
def test_no_remark_asks_for_more_than_the_largest_burst(rate: str, burst: str, count: int) -> None:
    text = SHALLOW.replace("10mbit", rate).replace("75kB", burst)
    assert len(remarks(text)) == count


def test_an_interval_above_a_second_draws_a_remark() -> None:
    long = '[gossip]\ninterval = "{}"\n'
    assert remarks(GOOD + long.format("1s")) == []
    assert remarks(GOOD + long.format("1.001s")) == [
        "limit.interval: above 1s: a (1.001s): the time constants of the allocators hold for "
        "intervals from 10ms to 1s (docs/operations.md)"
    ]


def test_the_example_draws_no_remark() -> None:
    assert remarks(example()) == []


def test_check_prints_remarks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "drld.toml"
    file.write_text(SLOW)
    assert main(["--config", str(file), "--check"]) == 0
    shown = capsys.readouterr()
    assert shown.out == f"{file}: ok (limits: 2, peers: 1)\n"
    assert shown.err == f"{file}: {REMARK}\n"
    file.write_text(SHALLOW)
    assert main(["--config", str(file), "--check"]) == 0
    assert capsys.readouterr().err == f"{file}: {SHALLOW_REMARK}\n"
    file.write_text(GOOD.replace('"10mbit"', '"10mbot"'))
    assert main(["--config", str(file), "--check"]) == 2
    assert capsys.readouterr().err.startswith(f"{file}: limit[0].rate: must be a rate ")
