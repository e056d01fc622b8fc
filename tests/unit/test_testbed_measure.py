"""The sampler's readings and times, and reports of progress and processor time."""

from __future__ import annotations

import io

from testbed.cpu import CpuTimes
from testbed.harness.progress import Progress
from testbed.measure import FIRST_SAMPLE, ip_bytes, lateness_problem, worst_lateness

NET_DEV = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes packets errs drop
    lo:       0       0    0    0    0     0          0         0        0       0    0    0 0 0 0 0
 in-l1: 1514000    1000    0    0    0     0          0         0    66000    1000    0    0 0 0 0 0
d-f1:1514      1    0    0    0     0          0         0    0    0    0    0 0 0 0 0
"""


def test_counters_are_of_the_ip_layer() -> None:
    found = ip_bytes(NET_DEV)
    assert found["in-l1", "rx"] == 1_500_000
    assert found["in-l1", "tx"] == 52_000
    assert found["d-f1", "rx"] == 1500
    assert found["lo", "rx"] == 0


def test_samples_may_be_half_an_interval_late() -> None:
    step = 50_000_000
    grid = [(index + FIRST_SAMPLE) * step for index in range(10)]
    assert worst_lateness(grid, step) == 0
    half = worst_lateness([*grid[:4], grid[4] + step // 2, *grid[5:]], step)
    assert half == step // 2
    assert lateness_problem(half, step) is None
    assert "could not keep up: a sample came 25.0 ms" in str(lateness_problem(half + 1, step))


def test_processor_time_is_all_time_but_idle_time() -> None:
    before, after = CpuTimes(100, 5, 200), CpuTimes(150, 6, 300)
    assert before.until(after) == {"busy": 0.5, "stolen": 0.01}
    assert before.until(before)["stolen"] == 0
    assert CpuTimes.now().total >= CpuTimes.now().idle


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_plain_lines_in_a_file() -> None:
    stream = io.StringIO()
    progress = Progress(stream)
    progress.begin("[1/2] fps")
    progress.step("building the network")
    progress.step("building the network")
    for left in range(21, 17, -1):
        progress.countdown(left)
    progress.end()
    assert stream.getvalue().splitlines() == [
        "[1/2] fps: building the network",
        "[1/2] fps: running, 20 s left",
    ]


def test_progress_is_one_line_on_a_terminal() -> None:
    stream = Terminal()
    progress = Progress(stream)
    progress.begin("[1/2] fps")
    progress.countdown(3)
    progress.countdown(2)
    first, second = stream.getvalue().split("\x1b[1F\x1b[J")
    assert [first, second] == [f"[1/2] fps: running, {left} s left\n" for left in (3, 2)]
    progress.note("stays")
    progress.end()
    assert stream.getvalue().endswith(f"\x1b[1F\x1b[Jstays\n{second}\x1b[1F\x1b[J")
