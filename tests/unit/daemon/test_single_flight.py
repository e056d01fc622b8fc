"""An action with many callers, and the run that each caller gets."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from drld.daemon.single_flight import MAX_PAUSE_S, MIN_PAUSE_S, SingleFlight
from drld.errors import ConfigError, DrldError


class Action:
    """Takes its time, and never runs twice at once."""

    def __init__(self, seconds: float = 1.0) -> None:
        self.seconds = seconds
        self.runs: list[float] = []
        self.running = False
        self.error: DrldError | None = None

    async def __call__(self) -> None:
        assert not self.running
        self.running = True
        self.runs.append(trio.current_time())
        try:
            await trio.sleep(self.seconds)
        finally:
            self.running = False
        if self.error:
            raise self.error


@pytest.fixture
def action() -> Action:
    return Action()


async def test_callers_before_a_run_begins_share_it(action: Action, autojump_clock: object) -> None:
    ask = SingleFlight(action)
    ended: list[float] = []

    async def asker(after: float) -> None:
        await trio.sleep(after)
        await ask()
        ended.append(trio.current_time())

    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        for after in (0, 0.1, 0.2, 0.9, 1.5, 2.5):
            nursery.start_soon(asker, after)
    # The second run rests for as long as the first took, and ends at 3; the third the same.
    assert [at - start for at in action.runs] == pytest.approx([0, 2, 4])
    assert [at - start for at in sorted(ended)] == pytest.approx([1, 3, 3, 3, 3, 5])


@pytest.mark.parametrize(("takes", "rests"), [(0, MIN_PAUSE_S), (60, MAX_PAUSE_S)])
async def test_the_pause_between_runs_has_bounds(
    autojump_clock: object, takes: float, rests: float
) -> None:
    action = Action(takes)
    ask = SingleFlight(action)
    for _ in range(3):
        await ask()
    periods = [after - before for before, after in zip(action.runs, action.runs[1:], strict=False)]
    assert periods == pytest.approx([takes + rests] * 2)


async def test_all_callers_of_a_run_share_its_error(action: Action, autojump_clock: object) -> None:
    ask = SingleFlight(action)
    refused = 0

    async def asker() -> None:
        nonlocal refused
        with pytest.raises(ConfigError, match="bad"):
            await ask()
        refused += 1

    action.error = ConfigError(["bad"])
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(asker)
    assert refused == 5
    assert len(action.runs) == 1
    action.error = None
    await ask()


async def test_a_cancelled_run_counts_for_no_caller(action: Action, autojump_clock: object) -> None:
    ask = SingleFlight(action)
    with trio.move_on_after(0.5):
        await ask()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        nursery.start_soon(ask)
    assert len(action.runs) == 2


async def test_other_actions_take_their_turn(action: Action, autojump_clock: object) -> None:
    ask = SingleFlight(action)
    alone: list[float] = []

    async def other() -> None:
        async with ask.alone():
            assert not action.running
            alone.append(trio.current_time())
            await trio.sleep(0.5)
            assert not action.running

    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(other)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(ask)
    # A run takes a second, and so does the pause after it; after the other action it is shorter.
    assert [at - start for at in alone] == pytest.approx([2])
    assert [at - start for at in action.runs] == pytest.approx([0, 3])


async def test_an_action_that_fails_lets_others_go_on(action: Action) -> None:
    ask = SingleFlight(Action(0))
    with pytest.raises(KeyError):
        async with ask.alone():
            raise KeyError
    await ask()
