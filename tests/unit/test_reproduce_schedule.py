"""Which run is next, and when everything will be done."""

from __future__ import annotations

from testbed.harness.schedule import Room, Task, choose, time_left

ONE, THREE = Room(jobs=1, processors=2), Room(jobs=3, processors=2)


def a_task(name: str, seconds: float = 10.0, **changes: bool) -> Task:
    return Task(name, "fps", 1, changes.pop("simulated", False), seconds, **changes)


def played(waiting: list[Task], room: Room) -> list[set[str]]:
    """The tasks of each moment: all start that may, then the one that is done first ends."""
    running: list[Task] = []
    seen = []
    left = list(waiting)
    while left or running:
        while (task := choose(left, running, room)) is not None:
            left.remove(task)
            running.append(task)
        seen.append({task.series for task in running})
        running.remove(min(running, key=lambda task: task.seconds))
    return seen


REAL = [a_task(name, seconds) for name, seconds in (("a", 3), ("b", 1), ("c", 4), ("d", 2))]
SIMULATED = [a_task(name, 10, simulated=True) for name in ("s", "t", "u")]


def test_several_run_at_a_time_and_nothing_overtakes() -> None:
    assert played(REAL, THREE) == [{"a", "b", "c"}, {"a", "c", "d"}, {"a", "c"}, {"c"}]


def test_simulated_runs_take_half_of_the_processors_beside_others_and_then_all() -> None:
    waiting = [*SIMULATED, *REAL[:1]]
    assert played(waiting, THREE) == [{"a", "s"}, {"s", "t"}, {"t", "u"}, {"u"}]


def test_a_run_that_must_be_alone_is_alone() -> None:
    waiting = [REAL[0], a_task("x", 5, alone=True), REAL[1], a_task("y", 5, alone=True)]
    assert played(waiting, THREE) == [{"x"}, {"y"}, {"a", "b"}, {"a"}]


def test_a_run_that_must_be_alone_waits_for_all_others() -> None:
    again = a_task("again", alone=True)
    assert choose([REAL[0], again], [SIMULATED[0]], THREE) == REAL[0]
    assert choose([again], [SIMULATED[0]], THREE) is None
    assert choose([again], [], THREE) == again
    assert choose(REAL, [again], THREE) is None


def test_with_one_job_each_run_on_the_testbed_has_the_host_for_itself() -> None:
    waiting = [*SIMULATED[:2], a_task("a", alone=True), a_task("b", alone=True)]
    assert played(waiting, ONE) == [{"a"}, {"b"}, {"s", "t"}, {"t"}]


def test_the_time_left_is_that_of_the_plan() -> None:
    def duration(task: Task) -> float:
        return task.seconds

    assert time_left([], [], THREE, duration) == 0.0
    # Three at once; the fourth follows the shortest, and ends before the longest does.
    assert time_left(REAL, [], THREE, duration) == 4.0
    assert time_left(REAL[1:], [(REAL[0], 2.5)], THREE, duration) == 4.0
    assert time_left(REAL, [(a_task("x", 7, alone=True), 4.0)], THREE, duration) == 3.0 + 4.0
    assert time_left([], [(REAL[0], 50.0)], THREE, duration) == 0.0
