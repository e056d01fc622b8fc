"""One update that a forger got through does bounded harm, for a bounded time (docs/security.md)."""

import pytest

from drld.gossip.wire.update_codec import MAX_VALUE

from .forgery import SIZE, suffer


@pytest.mark.parametrize("value", [0.0, MAX_VALUE])
@pytest.mark.parametrize(
    ("fabric", "seems"),
    [("mesh", "child"), ("tree", "child"), ("tree", "parent"), ("tree", "stranger")],
)
def test_a_forged_update_does_little_harm_and_is_forgotten_after_a_second(
    fabric: str, seems: str, value: float
) -> None:
    """True updates of the link are kept out for half a second, and no limiter is counted out."""
    harm = suffer(fabric, "fps", value, float(SIZE), seconds=4, seems=seems)
    assert harm.until_s <= 1
    assert harm.excess_s < 0.5
    assert harm.lack_s < 0.5


@pytest.mark.parametrize(("value", "weight"), [(1e8, 0.25), (0.0, 100.0), (-1e8, 0.25)])
def test_a_forged_update_of_push_sum_is_undone_within_three_seconds(
    value: float, weight: float
) -> None:
    """By the link's next true sums, or by an epoch because those have shrunk."""
    harm = suffer("pushsum", "fps", value, weight, seconds=8)
    assert harm.until_s <= 3
    assert harm.excess_s < 2.2
    assert harm.lack_s < 2
