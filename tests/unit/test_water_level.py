"""The water level: the rate that no flow exceeds while all of a limit is in use."""

import pytest

from drld.allocators.water_level import water_level


@pytest.mark.parametrize(
    ("wants", "unlimited", "level"),
    [
        ([], 2, 5),
        ([], 0.5, 10),
        ([2], 2, 4),
        ([1, 3.5], 1, 5.5),
        ([6, 5, 3], 0, 3.5),
        ([3, 3, 3.9], 0, 10),
        ([3, 3, 4], 0, 10),
        ([4, 4], 0.25, 8),
        ([5, 5, 5, 5], 0, 2.5),
        ([], 0, 10),
        ([1, 2], 0, 10),
        ([20], 0, 10),
    ],
)
def test_flows_get_what_they_want_or_the_level(
    wants: list[float], unlimited: float, level: float
) -> None:
    """The capacity is 10; all wants are met if they fit."""
    assert water_level(10, wants, unlimited) == pytest.approx(level)
    used = sum(min(want, level) for want in wants) + unlimited * level
    assert used == pytest.approx(10) or (level == 10 and used < 10)


def test_the_order_of_the_wants_makes_no_difference() -> None:
    assert water_level(10, [8, 1, 4], 1) == water_level(10, [1, 4, 8], 1)


@pytest.mark.parametrize("capacity", [1e-3, 1250, 5e10])
def test_the_level_scales_with_the_capacity(capacity: float) -> None:
    assert water_level(capacity, [0.1 * capacity], 2) == pytest.approx(0.45 * capacity)
