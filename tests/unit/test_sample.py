"""Elephants come into the sample of a limit with very many flows, and stay in it."""

from random import Random

import pytest

from drld.estimate.flows import FlowSample
from drld.model import FlowId

from ..elephants import ELEPHANTS, LENGTH, TICKS_A_SECOND, elephants_sampled, traffic


def sampled(mice: int, share: float, seconds: int) -> list[int]:
    sample = FlowSample()

    def count(numbers: list[int]) -> dict[FlowId, int]:
        for number in numbers:
            sample.observe(number, LENGTH)
        return sample.take()[0]

    packets = traffic(Random(1), mice, share, seconds * TICKS_A_SECOND)
    return elephants_sampled(packets, count, sample.evict, range(ELEPHANTS))


@pytest.mark.parametrize("mice", [10_000, 100_000])
@pytest.mark.parametrize(("share", "seconds"), [(0.5, 5), (0.2, 15), (0.1, 20)])
def test_elephants_come_into_the_sample_and_stay(mice: int, share: float, seconds: int) -> None:
    seen = sampled(mice, share, seconds + 10)
    assert set(seen[seconds * TICKS_A_SECOND :]) == {ELEPHANTS}


def test_an_elephant_that_pauses_stays() -> None:
    """20 packets a second each: some pause for 0.3 s now and then, and count for nothing then."""
    seen = sampled(100_000, 0.05, 60)
    assert set(seen[20 * TICKS_A_SECOND :]) == {ELEPHANTS}
