"""The throttle of log events: few lines, nothing uncounted, and the latest is said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drld import event_throttle
from drld.event_throttle import EventThrottle, Passed
from drld.model import NS_PER_S

KEYS = [("peer.state", "b"), ("peer.state", "c"), ("peer.version", "b")]
PERIOD_NS = 60 * NS_PER_S
steps = st.lists(
    st.tuples(st.integers(0, 30 * NS_PER_S) | st.just(0), st.sampled_from([*KEYS, None])),
    max_size=200,
)
Said = list[tuple[int, Passed[tuple[tuple[str, str], int]]]]


def run(
    steps: list[tuple[int, tuple[str, str] | None]], burst: int
) -> tuple[Said, dict[tuple[str, str], int]]:
    """The items let through with their times, and the items of each key; None is a tick."""
    throttle: EventThrottle[tuple[tuple[str, str], int]] = EventThrottle(burst, PERIOD_NS)
    now, said, made = 0, Said(), dict.fromkeys(KEYS, 0)
    for pause, key in steps:
        now += pause
        if key is None:
            passed = throttle.due(now)
        else:
            made[key] += 1
            passed = throttle.admit(key, (key, made[key]), now)
        said += [(now, it) for it in passed]
    said += [(now, it) for it in throttle.due(now + PERIOD_NS)]
    assert list(throttle.rest()) == []
    return said, made


@given(steps, st.integers(1, 10))
def test_every_item_is_logged_or_counted_and_the_latest_is_logged(
    steps: list[tuple[int, tuple[str, str] | None]], burst: int
) -> None:
    said, made = run(steps, burst)
    for key in KEYS:
        lines = [(it.item[1], it.left_out) for _, it in said if it.item[0] == key]
        expected = 0
        for number, left_out in lines:
            expected += 1 + left_out
            # In order, and each line stands for all between it and the one before.
            assert number == expected
        assert expected == made[key]


@given(steps, st.integers(1, 10))
def test_no_period_has_more_lines_than_twice_the_burst(
    steps: list[tuple[int, tuple[str, str] | None]], burst: int
) -> None:
    said, _ = run(steps, burst)
    for key in KEYS:
        times = [at for at, it in said if it.item[0] == key]
        for start in times:
            assert len([at for at in times if start <= at < start + PERIOD_NS]) <= 2 * burst


@pytest.mark.parametrize("burst", [1, 10])
def test_a_thousand_in_a_minute_are_few_lines_and_a_total(burst: int) -> None:
    throttle: EventThrottle[int] = EventThrottle(burst, PERIOD_NS)
    said = [
        it for number in range(1000)
        for it in throttle.admit(KEYS[0], number, number * PERIOD_NS // 1000)
    ]  # fmt: skip
    assert len(said) == burst
    (last,) = throttle.due(PERIOD_NS)
    assert last == (999, 1000 - burst - 1)
    assert list(throttle.due(2 * PERIOD_NS)) == []


def test_subjects_are_bounded_and_old_ones_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_throttle, "MAX_KEYS", 3)
    throttle: EventThrottle[int] = EventThrottle(1, PERIOD_NS)
    keys = [("x", str(number)) for number in range(100)]
    said = [it.item for n, key in enumerate(keys) for it in throttle.admit(key, n, 0)]
    assert said == [0, 1, 2, 3]
    assert list(throttle.due(PERIOD_NS)) == [(99, 95)]
    list(throttle.admit(("x", "0"), 7, PERIOD_NS))
    list(throttle.admit(("x", "0"), 8, PERIOD_NS))
    throttle.forget(lambda key: key[1] == "0")
    assert list(throttle.due(3 * PERIOD_NS)) == []
