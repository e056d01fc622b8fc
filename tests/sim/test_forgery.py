"""One update that a forger got through does bounded harm, for a bounded time (docs/security.md)."""

import pytest

from drld.gossip.wire import MAX_VALUE

from .forgery import SIZE, suffer


@pytest.mark.parametrize("value", [0.0, MAX_VALUE])
@pytest.mark.parametrize("fabric", ["mesh", "tree"])
def test_a_forged_update_is_forgotten_within_five_seconds(fabric: str, value: float) -> None:
    harm = suffer(fabric, "fps", value, float(SIZE), seconds=8)
    assert harm.until_s <= 5
    assert harm.excess_s < 1
    assert harm.lack_s < 4
