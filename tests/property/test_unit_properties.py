"""Limits of another unit: allocators and estimators know an item, and no packet of 1,500 bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from drld.allocators import ALLOCATORS
from drld.allocators.base import Allocation, InForce
from drld.allocators.fair_flows import LEAST_FLOW_RATE
from drld.estimate.demand import DemandEstimator
from drld.limiter import Limiter
from drld.model import Enforcement, Measurement, Quantity
from drld.node import membership
from drld.units import BYTES

from ..factories import TICK_NS, flow, gossip_spec, policy, view

SCALE = 1024
"""Tokens of the other unit for one byte: a power of two, by which floats are multiplied exactly."""
COARSE = replace(BYTES, item=SCALE * BYTES.item)
GOSSIP = gossip_spec()
UNITS = {1: BYTES, SCALE: COARSE}


def alone(allocator: str, scale: int) -> Callable[[Measurement, float, int], Enforcement]:
    """The enforcement of a limiter without peers."""
    plain = policy(allocator)
    scaled = replace(plain, rate=scale * plain.rate, burst=scale * plain.burst, unit=UNITS[scale])
    limiter = Limiter(scaled, membership("a", ("a",), GOSSIP), GOSSIP.fabric)
    return lambda measured, _, now_ns: limiter.tick(measured, now_ns).enforcement


def allocations(allocator: str, scale: int) -> Callable[[Measurement, float], Allocation]:
    """Allocate beside peers that want a part of the limit, or have a weight."""
    plain, item = policy(allocator), UNITS[scale].item
    rate, burst = scale * plain.rate, scale * plain.burst
    whole = {"whole_rate": rate, "whole_burst": burst}
    limit = InForce(rate, burst, rate / 4, burst / 4, interval_ns=TICK_NS, item=item, **whole)
    estimator = DemandEstimator(plain.ewma, item)
    kind = ALLOCATORS[allocator]
    made = kind(plain.parameters)
    most = 3.0 if kind.quantity is Quantity.WEIGHT else rate

    def allocate(measured: Measurement, part: float) -> Allocation:
        demand, _evicted = estimator.update(measured)
        found = replace(view(part * most), told=part * most, news_ns=4 * TICK_NS)
        return made.allocate(demand, found, limit, TICK_NS)

    return allocate


def beside_others(allocator: str, scale: int) -> Callable[[Measurement, float, int], Enforcement]:
    """The enforcement of an allocator whose peers want a part of the limit, or have a weight."""
    allocate = allocations(allocator, scale)
    return lambda measured, part, _: allocate(measured, part).enforcement


def measured(rng: Random, scale: int) -> Measurement:
    sizes = {flow(number): rng.choice((0, 0, 60, 1500, 45_000)) for number in range(3)}
    arrived = sum(sizes.values()) + rng.choice((0, 0, 30_000))
    dropped = rng.choice((0, arrived // 4))
    return Measurement(
        interval_ns=TICK_NS,
        arrived_tokens=scale * arrived,
        forwarded_tokens=scale * (arrived - dropped),
        dropped_tokens=scale * dropped,
        flows={key: scale * size for key, size in sizes.items()},
        hits={flow(0): scale * sizes[flow(0)]} if dropped and sizes[flow(0)] else {},
    )


def tokens(record: Enforcement, scale: int) -> tuple[int, ...]:
    depth = -1 if record.depth is None else record.depth
    # The least is a number of tokens in any unit.
    flow_rate = max(record.flow_rate, scale * LEAST_FLOW_RATE) if record.flow_rate else 0
    return record.fill_rate, depth, record.credit, flow_rate, record.flow_depth, record.reserve


@pytest.mark.parametrize("make", [alone, beside_others])
@pytest.mark.parametrize("allocator", sorted(ALLOCATORS))
@pytest.mark.parametrize("seed", range(8))
def test_a_limit_in_another_unit_is_enforced_alike(
    allocator: str,
    make: Callable[[str, int], Callable[[Measurement, float, int], Enforcement]],
    seed: int,
) -> None:
    records = []
    for scale in UNITS:
        rng, enforced = Random(seed), make(allocator, scale)
        nothing = Measurement(interval_ns=TICK_NS)
        records.append(
            [
                enforced(
                    nothing if 20 < number < 45 else measured(rng, scale),
                    rng.random(),
                    number * TICK_NS,
                )
                for number in range(1, 60)
            ]
        )
    for plain, coarse in zip(*records, strict=True):
        assert coarse.drop_probability == pytest.approx(plain.drop_probability)
        for expected, found in zip(tokens(plain, 1), tokens(coarse, SCALE), strict=True):
            # A record says whole tokens; that of a guard is rounded twice.
            assert found == pytest.approx(SCALE * expected, rel=1e-9, abs=2 * SCALE)


@pytest.mark.parametrize("allocator", sorted(ALLOCATORS))
def test_peers_are_told_a_rate_in_the_unit_or_a_weight_without_one(allocator: str) -> None:
    values = []
    for scale in UNITS:
        rng, allocate = Random(1), allocations(allocator, scale)
        values.append([allocate(measured(rng, scale), 0.5).value for _ in range(60)])
    plain, coarse = values
    assert max(plain) > 0
    told = SCALE if ALLOCATORS[allocator].quantity is Quantity.RATE else 1
    assert coarse == pytest.approx([told * value for value in plain], rel=1e-3)
