"""The bound on bytes, the datapaths that it holds for, and the page with the promised use."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from testbed.chaos import stage
from testbed.chaos.fault import Episode
from testbed.chaos.promises import LEAST, MARGIN, byte_bound, fabric, promised
from testbed.chaos.scene import LIMITERS, RATE, Load, Scene
from testbed.chaos.series import Seen
from testbed.harness.finding import Verdict

MS = 1_000_000


def test_the_bound_on_bytes_is_the_sum_of_its_parts() -> None:
    """Two bursts, the loans of twice the age of news, six packets each, and an interval."""
    bound = byte_bound(1_000_000, 60_000, 3, 150 * MS, margin=0.2, interval_ns=50 * MS)
    assert bound == pytest.approx(120_000 + 400_000 + 27_000 + 60_000)


def test_loans_are_a_quarter_of_a_second_and_a_burst_at_least() -> None:
    short, deep = (
        byte_bound(1_000_000, burst, 1, 15 * MS, margin=0.0, interval_ns=10 * MS)
        for burst in (60_000, 900_000)
    )
    assert short == pytest.approx(120_000 + 250_000 + 9_000 + 10_000)
    assert deep == pytest.approx(1_800_000 + 900_000 + 9_000 + 10_000)


@pytest.mark.parametrize("name", ["mesh", "tree"])
def test_news_is_known_long_before_a_detection_time_is_over(name: str) -> None:
    made = fabric(name, LIMITERS)
    assert 0 < 4 * made.news_ns < made.detection_ns


def seen(rates: Mapping[int, float]) -> Seen:
    """20 s of samples, at (1 + margin) of the limit, or from some seconds on at other rates."""
    found = Seen()
    value, rate = 0.0, (1 + MARGIN) * RATE
    for index in range(1001):
        rate = rates.get(index // 50, rate)
        found.add(index / 50, {"l1": round(value)})
        value += rate / 50
    return found


def bounded(rates: Mapping[int, float], known_s: tuple[float, float] | None = None) -> bool:
    """Whether the promise holds of a fault from 4 to 9 s."""
    fleet = SimpleNamespace(seen=seen(rates), load=Load(fabric="tree"))
    episode = Episode(4.0, 9.0, recover_s=1.0, known_s=known_s)
    check = stage._bounded(cast(Scene, fleet), episode, 20.0)
    return check.verdict is Verdict.PASSED


def test_bytes_beyond_the_bound_break_the_promise() -> None:
    """The bound holds for windows of any length, from a detection time after the fault on."""
    limit = (1 + MARGIN) * RATE
    assert bounded({})
    assert not bounded({13: 3 * RATE, 14: limit})
    assert not bounded({12: 1.4 * RATE})
    assert bounded({12: 1.4 * RATE, 13: limit})


def test_nothing_is_promised_before_a_detection_time_is_over() -> None:
    limit = (1 + MARGIN) * RATE
    assert bounded({9: 5 * RATE, 11: limit})
    assert bounded({4: 5 * RATE, 6: limit}, known_s=(6.0, 9.0))


def test_while_a_fault_goes_on_that_is_known_it_is_promised_as_well() -> None:
    limit = (1 + MARGIN) * RATE
    assert bounded({7: 3 * RATE, 8: limit})
    assert not bounded({7: 3 * RATE, 8: limit}, known_s=(6.0, 9.0))


def test_the_page_has_the_promised_use_of_tree_and_mesh() -> None:
    page = Path(__file__).parents[2] / "results" / "faults.md"
    stated = {
        (float(tree), float(mesh))
        for tree, mesh in re.findall(r"(0\.\d+) \((0\.\d+)\)", page.read_text(encoding="utf-8"))
    }

    def floored(what: str, name: str) -> float:
        return math.floor(100 * promised(what, name) + 1e-9) / 100

    # Nothing is promised while no packet passes any host.
    expected = {(floored(it, "tree"), floored(it, "mesh")) for it in LEAST} - {(0.0, 0.0)}
    assert stated == expected
