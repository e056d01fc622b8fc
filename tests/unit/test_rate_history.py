"""The mean rate and the largest backlog of the last seconds."""

from hypothesis import given
from hypothesis import strategies as st

from drld.estimate.history import History
from drld.model import NS_PER_S

STEP_NS = NS_PER_S
MS = NS_PER_S // 1000


def ten_seconds() -> History:
    return History(10 * STEP_NS, STEP_NS)


def test_a_step_counts_once_it_has_ended() -> None:
    history = ten_seconds()
    for _ in range(19):
        history.update(5, 70, 50 * MS)
    assert (history.rate, history.backlog, history.silent) == (0, 0, False)
    history.update(5, 0, 50 * MS)
    assert (history.rate, history.backlog) == (100, 70)


def test_a_window_that_is_not_full_has_the_mean_of_its_steps() -> None:
    history = ten_seconds()
    for arrived in (100, 300):
        history.update(arrived, 0, STEP_NS)
    assert history.rate == 200


def test_steps_older_than_the_window_are_forgotten() -> None:
    history = ten_seconds()
    history.update(1000, 50, STEP_NS)
    for _ in range(9):
        history.update(0, 0, STEP_NS)
    assert (history.rate, history.backlog) == (100, 50)
    history.update(0, 0, STEP_NS)
    assert (history.rate, history.backlog, history.silent) == (0, 0, True)


def test_a_late_interval_is_one_long_step() -> None:
    history = ten_seconds()
    history.update(100, 0, STEP_NS)
    history.update(600, 3, 6 * STEP_NS)
    assert history.rate == 100
    history.update(0, 0, 10 * STEP_NS)
    assert (history.rate, history.backlog) == (0, 0)


@given(
    values=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=60),
    window=st.integers(1, 12),
)
def test_the_history_is_the_mean_and_maximum_of_the_last_steps(
    values: list[tuple[int, int]], window: int
) -> None:
    history = History(window * STEP_NS, STEP_NS)
    for arrived, backlog in values:
        history.update(arrived, backlog, STEP_NS)
    last = values[-window:]
    assert history.rate == sum(arrived for arrived, _ in last) / len(last)
    assert history.backlog == max(backlog for _, backlog in last)
    assert history.silent == (not any(map(any, last)))
