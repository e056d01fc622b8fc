"""CUBIC against its formula, and the model of BBR against what it says of itself."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.sim.run import simulate
from testbed.tcp.bbr import CYCLE, START_GAIN, BbrModel
from testbed.tcp.clock import Clock
from testbed.tcp.cubic import Cubic
from testbed.tcp.pacer import Pacer

from ..testbed_factories import experiment
from .tcp_pair import MS, Pair

S = 1_000_000_000


def grown(window: int, seconds: float, rtt_ns: int = 100 * MS) -> list[tuple[float, int]]:
    """(time, s, window) of a CUBIC that loses a segment once and then nothing for so long."""
    cubic = Cubic(window)
    cubic.threshold = window
    cubic.begin_reduction()
    cubic.end_reduction()
    found = [(0.0, cubic.window)]
    now_ns = 0
    while now_ns < seconds * S:
        now_ns += rtt_ns // cubic.window
        cubic.grow(1, cubic.window, True, now_ns, rtt_ns)
        found.append((now_ns / S, cubic.window))
    return found


def test_after_a_loss_cubic_has_seven_tenths_of_its_window() -> None:
    assert grown(1000, 0)[0] == (0.0, 1000 * 717 // 1024)


def test_cubic_follows_its_curve_and_is_back_where_it_was_after_k() -> None:
    most, rtt_s = 1000, 0.1
    inflection_s = ((most - most * 717 // 1024) / 0.4) ** (1 / 3)
    for time_s, window in grown(most, 15.0):
        if time_s < 1.0:
            continue  # it catches up with a curve that is steep at first
        curve = most + 0.4 * (time_s + rtt_s - inflection_s) ** 3
        assert window == pytest.approx(curve, rel=0.02)


def test_a_second_loss_below_the_last_maximum_lowers_the_next_curve() -> None:
    cubic = Cubic(1000)
    cubic.begin_reduction()
    cubic.end_reduction()
    cubic.begin_reduction()
    # 700 segments, less than 1,000: the next curve levels off at 0.85 of them.
    cubic.end_reduction()
    cubic.grow(1, cubic.window, True, S, 100 * MS)
    assert cubic._origin == 700 * (1024 + 717) // 2048


def test_with_small_windows_cubic_is_reno_with_its_factor() -> None:
    """Eight fifteenths of a segment in a round trip: RFC 9438, section 4.3."""
    rtt_ns = 10 * MS
    samples = grown(20, 2.0, rtt_ns)
    (_, first), (seconds, last) = samples[0], samples[-1]
    assert (last - first) / (seconds * S / rtt_ns) == pytest.approx(8 / 15, rel=0.1)


def test_cubic_grows_at_once_after_a_loss_on_a_path_without_delay() -> None:
    """Linux truncates the distance from W, so the target is a segment above the window."""
    rtt_ns = 100_000
    samples = grown(10, 0.003, rtt_ns)
    assert samples[0][1] == 7
    assert samples[-1][1] >= 12


def test_a_timeout_makes_cubic_forget() -> None:
    cubic = Cubic(1000)
    cubic.begin_reduction()
    cubic.time_out(0, again=False)
    assert (cubic.window, cubic._most) == (1, 0)


@pytest.mark.parametrize("control", ["reno", "cubic"])
def test_a_window_that_is_not_full_does_not_grow(control: str) -> None:
    pair = Pair(most_out=20, control=control)
    pair.sender.start()
    pair.run(3000)
    assert pair.sender.congestion.window <= 40


def bottleneck(control: str, **path: Any) -> dict[str, Any]:
    flows = [{"limiter": "l1", "count": 1, "rtt": "40ms", "congestion": control, **path}]
    made = experiment(
        flows=flows, limiters=["l1", "l2"], seconds=20, warmup="5s",
        limit={"rate": "100mbit", "burst": "1MB"},
    )  # fmt: skip
    return simulate(made, "ctb")


@pytest.mark.parametrize("control", ["reno", "cubic", "bbr"])
def test_one_flow_fills_a_bottleneck_with_a_queue(control: str) -> None:
    run = bottleneck(control, rate="10mbit")
    assert run["aggregate_bps"] == pytest.approx(10e6, rel=0.02)


def test_bbr_finds_the_rate_without_filling_the_queue() -> None:
    deep = {"rate": "10mbit", "queue": "500kB"}
    (bbr,), (reno,) = (bottleneck(control, **deep)["flows"] for control in ("bbr", "reno"))
    assert bbr["retransmits"] == 0
    # Its window holds twice what fits, so a round trip takes twice as long at most.
    assert bbr["rtt_ms"] < 85
    assert reno["rtt_ms"] > 150


def test_losses_do_not_slow_bbr() -> None:
    lossy = {"rate": "10mbit", "loss": 0.05}
    bbr, reno = (bottleneck(control, **lossy)["aggregate_bps"] for control in ("bbr", "reno"))
    assert bbr > 9e6
    assert reno < 3e6


def test_bbr_starts_fast_then_drains_then_cycles() -> None:
    bbr = BbrModel(10)
    rtt_ns, rate = 40 * MS, 1 / MS
    gains = []
    for step in range(1, 1500):
        now_ns = step * MS
        # A bottleneck of a segment a millisecond, with the segments of one round trip before it.
        bbr.transmitted(step + 39, 40, now_ns)
        in_flight = 100 if step < 600 else 39
        bbr.observe(step - 1, step, step, in_flight, now_ns=now_ns, least_rtt_ns=rtt_ns)
        gains.append(1 / (bbr.gap_ns * bbr.rate) if bbr.gap_ns else 0.0)
    assert bbr.rate == pytest.approx(rate, rel=0.05)
    phases = [gain for gain, before in zip(gains[1:], gains, strict=False) if gain != before]
    known = [round(gain, 3) for gain in phases if gain]
    assert known[0] == pytest.approx(START_GAIN, rel=0.01)
    assert known[1] == pytest.approx(1 / START_GAIN, rel=0.01)
    # From then on the cycle, which is joined where it neither probes nor drains.
    assert known[2:7] == pytest.approx([1.0, CYCLE[0], CYCLE[1], 1.0, CYCLE[0]], rel=0.01)
    assert bbr.window == pytest.approx(80, abs=2)


def test_a_pacer_keeps_the_gap_and_calls_once() -> None:
    clock = Clock()
    times: list[int] = []
    pacer = Pacer(clock, lambda: times.append(clock.now_ns))
    assert not pacer.must_wait()
    pacer.sent(5 * MS)
    assert pacer.must_wait()
    assert pacer.must_wait()
    clock.run(10 * MS)
    assert times == [5 * MS]
    pacer.sent(5 * MS)
    assert pacer.must_wait()
    pacer.close()
    clock.run(100 * MS)
    assert times == [5 * MS]
