"""Profiled envelopes, and what the formulas on split buckets say."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest

from drld.messages.envelope import envelope, spread
from drld.messages.hold import Hold
from drld.messages.penalty import mean_delay, tail_delay, work_above
from drld.model import NS_PER_S, Enforcement

MESSAGE = 1_000_000
RHO = 1 / 1.1


def poisson(rng: Random, rate: float, count: int) -> list[int]:
    at, found = 0.0, []
    for _ in range(count):
        at += rng.expovariate(rate)
        found.append(int(at * NS_PER_S))
    return found


def waits_ns(hold: Hold[int]) -> list[int]:
    """How long those waited that have not been taken out."""
    found = []
    while (due_ns := hold.due_ns) is not None:
        found += [it.waited_ns for it in hold.release(due_ns)]
    return found


def waiting(arrivals_ns: list[int], rate: Fraction, burst: int) -> int:
    """How many messages wait under a bucket."""
    hold: Hold[int] = Hold(Enforcement(fill_rate=int(rate * MESSAGE), depth=burst * MESSAGE), 0)
    for at_ns in arrivals_ns:
        hold.offer(0, at_ns)
    return sum(waited_ns > 0 for waited_ns in waits_ns(hold))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_burst_is_the_least_under_which_one_in_a_hundred_waits(seed: int) -> None:
    count = 5000
    trace = poisson(Random(seed), 1000, count)
    rate, burst = envelope(trace, trace[-1])
    assert rate == Fraction(11 * count * NS_PER_S, 10 * trace[-1])
    allowed = count - 1 - int(Fraction(99, 100) * count)
    assert waiting(trace, rate, burst) <= allowed < waiting(trace, rate, burst - 1)


def test_a_periodic_trace_needs_one_token_and_a_batch_as_many_as_it_has() -> None:
    single = [number * 10_000_000 for number in range(1000)]
    assert envelope(single, 10 * NS_PER_S).burst == 1
    batches = [at_ns for at_ns in single for _ in range(7)]
    assert envelope(batches, 10 * NS_PER_S).burst == 7


def test_parts_of_a_trace_show_how_much_a_burst_is_worth() -> None:
    trace = poisson(Random(5), 1000, 20_000)
    bursts = spread(trace, trace[-1])
    assert len(bursts) == 10
    assert min(bursts) <= envelope(trace, trace[-1]).burst <= max(bursts)


def test_an_empty_trace_has_no_envelope() -> None:
    with pytest.raises(ValueError, match="a trace must have messages and a duration"):
        envelope([], NS_PER_S)


def test_the_tail_of_the_work_at_the_papers_load_follows_the_formula() -> None:
    """M/D/1 at a load of 1 / 1.1: reference values by the formula with 200 digits."""
    expected = {0: 0.90909, 1: 0.77436, 3: 0.53495, 10: 0.14379, 20: 0.02201, 25: 0.00861}
    assert {x: round(work_above(x, RHO), 5) for x in expected} == expected
    # So that one message in a hundred waits, the bucket is of 26.
    assert next(burst for burst in range(1, 100) if work_above(burst - 1, RHO) <= 0.01) == 26
    assert work_above(300, 0.95) == pytest.approx(2.3e-14, rel=0.2)


@pytest.mark.parametrize("rho", [0.5, 0.8])
def test_eq_1_is_the_mean_delay_of_a_bucket_under_poisson_arrivals(rho: float) -> None:
    """Exact for a bucket of one message (`P(U > 0)` is the load)."""
    rate, count = 1000, 40_000
    hold: Hold[int] = Hold(Enforcement(fill_rate=rate * MESSAGE, depth=MESSAGE), 0)
    for at_ns in poisson(Random(7), rho * rate, count):
        hold.offer(0, at_ns)
    total_ns = sum(waits_ns(hold))
    assert total_ns / count / NS_PER_S == pytest.approx(mean_delay(rate, 1, rho), rel=0.1)
    assert mean_delay(rate, 1, rho) == pytest.approx(rho / (2 * rate * (1 - rho)))


def test_the_tail_of_the_delay_grows_with_the_brokers() -> None:
    milliseconds = [1e3 * tail_delay(11_000, 26, 1 / brokers) for brokers in range(1, 7)]
    assert milliseconds == pytest.approx([0, 2.36, 4.73, 7.09, 9.45, 11.82], abs=0.01)


@pytest.mark.parametrize(("work", "rho"), [(-1, 0.5), (1, 0), (1, 1)])
def test_there_is_no_such_queue(work: float, rho: float) -> None:
    with pytest.raises(ValueError, match="the load must be between 0 and 1"):
        work_above(work, rho)
