"""Estimators: the EWMA, the demand of a limit, and the flow sample."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drld.estimate.demand import IDLE_NS, DemandEstimator
from drld.estimate.ewma import Ewma
from drld.estimate.flows import (
    CLUSTER,
    PAUSE_NS,
    RESIDENCE_NS,
    SILENCE_NS,
    FlowRates,
    FlowSample,
    unbottlenecked_rate,
)
from drld.model import NS_PER_S, FlowId, Measurement

from ..factories import MS, TICK_NS, flow, measurement

rates = st.floats(1, 1e9)


def test_ewma_keeps_p_of_a_second_old_history() -> None:
    ewma = Ewma(0.1)
    ewma.update(100, 20 * NS_PER_S)
    for _ in range(20):
        ewma.update(0, TICK_NS)
    assert ewma.value == pytest.approx(10)


def test_ewma_begins_as_a_mean_and_not_with_its_first_sample() -> None:
    """A new flow's first interval is a SYN; what comes then counts as much."""
    ewma = Ewma(0.1)
    for sample in (0, 100, 200):
        ewma.update(sample, TICK_NS)
    assert ewma.value == pytest.approx(100, rel=0.1)
    ewma.restart()
    assert ewma.value == 0
    assert ewma.update(7, TICK_NS) == 7


@given(st.floats(0, 0.99), st.lists(st.integers(1, NS_PER_S), min_size=1, max_size=20))
def test_ewma_does_not_depend_on_how_time_is_cut(history: float, cuts: list[int]) -> None:
    whole, parts = Ewma(history), Ewma(history)
    for ewma in (whole, parts):
        ewma.update(100, TICK_NS)
    whole.update(7, sum(cuts))
    for cut in cuts:
        parts.update(7, cut)
    assert parts.value == pytest.approx(whole.value, abs=1e-9)


def test_zero_history_is_no_filter() -> None:
    ewma = Ewma(0)
    ewma.update(5, TICK_NS)
    assert ewma.update(9, TICK_NS) == 9


@pytest.mark.parametrize("history", [-0.1, 1.0, 2.0])
def test_ewma_refuses_a_history_out_of_range(history: float) -> None:
    with pytest.raises(ValueError, match="history"):
        Ewma(history)


def test_sample_counts_every_byte_and_is_bounded() -> None:
    sample = FlowSample(capacity=2)
    for number in (0, 1, 2, 0, 2):
        sample.observe(flow(number), 100)
    assert sample.take()[0] == {flow(0): 200, flow(1): 100}
    sample.observe(flow(2), 100)
    assert sample.take()[0] == {flow(0): 0, flow(1): 0}
    sample.evict([flow(0)])
    sample.observe(flow(2), 100)
    assert sample.take()[0] == {flow(1): 0, flow(2): 100}


def test_a_young_flow_has_the_mean_of_its_life() -> None:
    flows = FlowRates()
    for _ in range(3):
        flows.update({flow(0): 5000}, 5000, TICK_NS)
    assert flows.rates == [pytest.approx(100_000)]


def test_bytes_outside_the_sample_count_in_the_total() -> None:
    flows = FlowRates()
    flows.update({flow(0): 5000}, 8000, TICK_NS)
    assert flows.total == pytest.approx(160_000)


def test_silent_flows_age_out() -> None:
    flows = FlowRates()
    flows.update({flow(0): 5000, flow(1): 5000}, 10_000, TICK_NS)
    evicted: list[FlowId] = []
    for _ in range(SILENCE_NS // TICK_NS):
        assert not evicted
        evicted = flows.update({flow(0): 0, flow(1): 5000}, 5000, TICK_NS)
    assert evicted == [flow(0)]
    assert len(flows.rates) == 1


def test_a_flow_that_pauses_counts_for_nothing_until_it_sends_again() -> None:
    flows = FlowRates()
    both = {flow(0): 5000, flow(1): 5000}
    for _ in range(20):
        flows.update(both, 10_000, TICK_NS)
    for _ in range(PAUSE_NS // TICK_NS - 1):
        flows.update({**both, flow(0): 0}, 5000, TICK_NS)
    assert flows.total == pytest.approx(180_000, rel=0.1)
    flows.update({**both, flow(0): 0}, 5000, TICK_NS)
    assert flows.total == pytest.approx(100_000)
    assert unbottlenecked_rate(flows.rates) == pytest.approx(100_000)
    flows.update(both, 10_000, TICK_NS)
    assert flows.total == pytest.approx(180_000, rel=0.1)


def test_a_slow_flow_does_not_pause_between_its_packets() -> None:
    flows = FlowRates()
    flows.update({flow(0): 1500}, 1500, TICK_NS)
    for tick in range(1, 60):
        size = 0 if tick % 10 else 1500
        flows.update({flow(0): size}, size, TICK_NS)
        assert flows.total > 0


def test_bytes_outside_the_sample_pause_too() -> None:
    flows = FlowRates()
    for _ in range(20):
        flows.update({flow(0): 5000}, 8000, TICK_NS)
    for _ in range(PAUSE_NS // TICK_NS):
        flows.update({flow(0): 5000}, 5000, TICK_NS)
    assert flows.total == pytest.approx(100_000)


def test_a_full_set_makes_room_by_its_slowest_residents() -> None:
    flows = FlowRates(capacity=8)
    counted = {flow(number): 1000 if number else 100 for number in range(8)}
    for _ in range(RESIDENCE_NS // TICK_NS - 1):
        assert flows.update(counted, 7200, TICK_NS) == []
    assert flows.update(counted, 7200, TICK_NS) == [flow(0)]


def test_a_full_set_that_every_flow_is_in_stays() -> None:
    flows = FlowRates(capacity=8)
    counted = {flow(number): 1000 if number else 100 for number in range(8)}
    assert not any(flows.update(counted, 7100, TICK_NS) for _ in range(100))


def test_a_packet_that_the_sample_shows_before_the_total_evicts_no_flow() -> None:
    """The kernel counts while it is read: a tick may see the last packet in one of two places."""
    flows = FlowRates()
    for _ in range(50):
        assert not flows.update({flow(0): 9000, flow(1): 1000}, 8500, TICK_NS)
        assert not flows.update({flow(0): 9000, flow(1): 1000}, 11_500, TICK_NS)
    assert flows.rest.fast == 0
    # What no flow of the sample sent is still seen, and makes room.
    assert flows.update({flow(0): 9000, flow(1): 1000}, 11_500, TICK_NS) == [flow(1)]


def test_equal_flows_are_not_evicted() -> None:
    flows = FlowRates(capacity=4)
    counted = {flow(number): 1000 for number in range(4)}
    assert not any(flows.update(counted, 5000, TICK_NS) for _ in range(100))


@given(st.lists(rates, min_size=1, max_size=64))
def test_unbottlenecked_rate_is_the_mean_of_the_flows_near_it(sample: list[float]) -> None:
    rate = unbottlenecked_rate(sample)
    assert rate is not None
    fast = [one for one in sample if one >= CLUSTER * rate]
    assert rate == pytest.approx(sum(fast) / len(fast))
    assert rate <= max(sample)


@given(rates, st.integers(1, 10), st.lists(st.floats(0, 0.39), max_size=50))
def test_flows_bottlenecked_below_the_cluster_do_not_count(
    rate: float, count: int, fractions: list[float]
) -> None:
    slow = [rate * fraction for fraction in fractions]
    assert unbottlenecked_rate([rate] * count + slow) == pytest.approx(rate)


@given(st.lists(rates, min_size=1, max_size=64))
def test_cluster_of_one_is_the_fastest_flow(sample: list[float]) -> None:
    assert unbottlenecked_rate(sample, cluster=1) == pytest.approx(max(sample))


def test_no_flow_has_no_rate() -> None:
    assert unbottlenecked_rate([]) is None
    assert unbottlenecked_rate([0.0]) is None


def test_demand_is_rate_and_drop_ratio() -> None:
    demand, evict = DemandEstimator(0.1).update(measurement(5000, dropped=1000))
    assert evict == []
    assert (demand.rate, demand.instant_rate) == (100_000, 100_000)
    assert demand.long_rate == pytest.approx(100_000)
    assert demand.flow_rate == pytest.approx(100_000)
    assert demand.fastest_rate == pytest.approx(100_000)
    assert demand.drop_ratio == pytest.approx(0.2)
    assert demand.first
    assert not demand.idle


def test_first_demand_after_idle_time_counts_whole() -> None:
    estimator = DemandEstimator(0.1)
    estimator.update(measurement(50_000))
    for _ in range(IDLE_NS // TICK_NS):
        demand, evict = estimator.update(measurement(0))
    assert demand.idle
    assert demand.flow_rate is None
    assert demand.fastest_rate is None
    assert [*evict] == [flow(0)]
    demand, _ = estimator.update(measurement(1000))
    assert demand.first
    assert demand.rate == 20_000
    demand, _ = estimator.update(measurement(0))
    assert not demand.first
    assert 0 < demand.rate < 20_000


def test_an_interval_of_no_length_is_an_error() -> None:
    with pytest.raises(ValueError, match="interval_ns"):
        DemandEstimator(0.1).update(Measurement(interval_ns=0))


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=60), st.integers(1, 500))
def test_demand_stays_within_the_measured_rates(arrivals: list[int], tick_ms: int) -> None:
    estimator = DemandEstimator(0.1)
    peak = 0.0
    for arrived in arrivals:
        demand, _ = estimator.update(measurement(arrived, interval_ns=tick_ms * MS))
        peak = max(peak, demand.instant_rate)
        assert 0 <= demand.rate <= peak * (1 + 1e-9)
        assert 0 <= demand.long_rate <= peak * (1 + 1e-9)


def test_the_fastest_flow_is_not_the_mean_of_the_fast_ones() -> None:
    flows = {flow(0): 3000, flow(1): 2000}
    demand, _ = DemandEstimator(0.1).update(measurement(5000, flows=flows))
    assert demand.flow_rate == pytest.approx(50_000)
    assert demand.fastest_rate == pytest.approx(60_000)
