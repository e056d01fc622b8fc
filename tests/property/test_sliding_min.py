"""`SlidingMin`, against the minimum of all values in the window."""

from hypothesis import given
from hypothesis import strategies as st

from drld.gossip.fabrics.sliding_min import SlidingMin

steps = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 5)), min_size=1, max_size=40)


@given(steps=steps, span_ns=st.integers(1, 12))
def test_the_minimum_is_that_of_the_values_within_the_span(
    steps: list[tuple[int, int]], span_ns: int
) -> None:
    """Each value holds until the next one."""
    lowest = SlidingMin(span_ns)
    now_ns = 0
    history: list[tuple[int, int]] = []
    for pause, value in steps:
        now_ns += pause
        history.append((now_ns, value))
        ends = [when for when, _ in history[1:]] + [now_ns + 1]
        recent = [v for (_, v), end in zip(history, ends, strict=True) if end > now_ns - span_ns]
        assert lowest.update(value, now_ns) == min(recent)
        assert not lowest.settled or min(recent) == value


@given(steps=steps, span_ns=st.integers(1, 12), factor=st.sampled_from([0.5, 1.0, 2.0]))
def test_a_factor_applies_to_all_values_so_far(
    steps: list[tuple[int, int]], span_ns: int, factor: float
) -> None:
    one, other = SlidingMin(span_ns), SlidingMin(span_ns)
    now_ns = 0
    for number, (pause, value) in enumerate(steps):
        now_ns += pause
        if number == len(steps) // 2:
            one = one.over(span_ns, factor)
        known = one.update(value * (factor if number >= len(steps) // 2 else 1.0), now_ns)
        expected = other.update(value, now_ns)
    assert known == expected * factor
