"""The number of counted limiters: it rises at once, and falls when it has been lower for a span."""

from hypothesis import given
from hypothesis import strategies as st

from drld.gossip.fabrics.member_bridge import MemberBridge

SPAN, INTERVAL = 8, 1


def test_a_fall_counts_when_it_has_lasted_for_the_span() -> None:
    bridge = MemberBridge(SPAN, INTERVAL)
    assert bridge.update(0, 3, lambda _: 3) == 3
    for now in range(1, SPAN + 1):
        assert bridge.update(now, 2, lambda _: 2) == 3
    assert bridge.update(SPAN + 1, 2, lambda _: 2) == 2


@given(fell=st.integers(1, 40), gap=st.integers(1, 60))
def test_a_late_look_counts_as_looks_in_time_had_counted(fell: int, gap: int) -> None:
    """A number that falls, while one daemon looks at each interval and another one is frozen."""

    def members(now: int) -> int:
        return 3 if now < fell else 1

    running, frozen = MemberBridge(SPAN, INTERVAL), MemberBridge(SPAN, INTERVAL)
    frozen.update(0, 3, members)
    for now in range(gap + 1):
        expected = running.update(now, members(now), members)
    assert frozen.update(gap, members(gap), members) == expected
    for now in range(gap + 1, gap + 2 * SPAN):
        assert frozen.update(now, members(now), members) == running.update(
            now, members(now), members
        )


def test_another_span_keeps_the_looks() -> None:
    bridge = MemberBridge(SPAN, INTERVAL)
    bridge.update(0, 3, lambda _: 3)
    longer = bridge.over(2 * SPAN)
    assert bridge.update(SPAN + 2, 1, lambda _: 1) == 1
    assert longer.update(SPAN + 2, 1, lambda _: 1) == 3
    assert not longer.settled
