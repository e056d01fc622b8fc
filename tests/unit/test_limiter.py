from random import Random

import pytest

from drld.limiter import Limiter
from drld.model import Quantity, Update

from ..factories import MBIT, MS, TICK_NS, gossip_spec, limit_spec, measurement
from ..factories import flow as flow_key

RNG = Random(1)


def limiter(
    allocator: str = "fps", members: tuple[str, ...] = ("a", "b"), **limit: object
) -> Limiter:
    return Limiter(limit_spec(allocator, **limit), "a", members, gossip_spec())


def update(sequence: int, value: float, quantity: Quantity = Quantity.WEIGHT) -> Update:
    return Update(
        limit_id=1, sequence=sequence, quantity=quantity, epoch=0, value=value, weight=1.0
    )


def test_a_fleet_of_one_has_the_whole_limit_from_the_start() -> None:
    one = limiter(members=("a",))
    assert one.initial().fill_rate == 10 * MBIT
    tick = one.tick(measurement(10_000), TICK_NS, RNG)
    assert tick.allocation.local_limit == 10 * MBIT
    assert tick.updates == []


def test_until_a_peer_is_heard_the_static_share_is_enforced_as_a_bucket() -> None:
    grd = limiter("grd")
    assert grd.initial().fill_rate == 5 * MBIT
    tick = grd.tick(measurement(100_000), TICK_NS, RNG)
    assert tick.enforcement == grd.initial()
    assert tick.enforcement.drop_probability == 0
    assert tick.in_force.rate == 5 * MBIT


def test_a_peer_that_is_heard_brings_its_share_and_its_demand() -> None:
    fps = limiter()
    fps.receive("b", update(0, value=3.0), 0)
    tick = fps.tick(measurement(10_000), TICK_NS, RNG)
    assert tick.view.connected == {"b"}
    assert tick.view.remote == 3.0
    assert tick.in_force.rate == 10 * MBIT
    assert tick.enforcement is tick.allocation.enforcement


def test_a_peer_of_another_allocator_is_not_believed() -> None:
    fps = limiter()
    fps.receive("b", update(0, value=3.0, quantity=Quantity.RATE), 0)
    tick = fps.tick(measurement(10_000), TICK_NS, RNG)
    assert tick.view.connected == frozenset()
    assert fps.fabric.links["b"].rejected == 1


def test_unequal_shares_count_when_a_peer_is_missing() -> None:
    three = limiter(members=("a", "b", "c"), shares={"a": 0.5, "b": 0.3, "c": 0.2})
    three.receive("b", update(0, value=1.0), 0)
    tick = three.tick(measurement(0), TICK_NS, RNG)
    assert tick.in_force.rate == pytest.approx(8 * MBIT)
    assert tick.in_force.burst == pytest.approx(60_000)
    assert tick.in_force.static_rate == pytest.approx(5 * MBIT)


def test_every_update_tells_the_value_of_its_tick() -> None:
    fps = limiter()
    tick = fps.tick(measurement(10_000, dropped=1500), TICK_NS, RNG)
    ((peer, sent),) = tick.updates
    assert peer == "b"
    assert (sent.limit_id, sent.sequence, sent.quantity) == (1, 0, Quantity.WEIGHT)
    assert tick.allocation.value > 0


@pytest.mark.parametrize(
    ("interval_ms", "sent"), [(10, 20), (20, 20), (30, 20), (50, 20), (80, 12)]
)
def test_gossip_keeps_its_own_interval(interval_ms: int, sent: int) -> None:
    """Of 50 ms, or the estimate's if that is longer."""
    fps = limiter(interval_ns=interval_ms * MS)
    step = interval_ms * MS
    ticks = [
        fps.tick(measurement(0, interval_ns=step), now, RNG)
        for now in range(step, 1000 * MS + 1, step)
    ]
    assert sum(bool(tick.updates) for tick in ticks) == pytest.approx(sent, abs=1)


def test_idle_flows_leave_the_sample() -> None:
    fps = limiter()
    evicted = []
    fps.tick(measurement(10_000), TICK_NS, RNG)
    for number in range(2, 30):
        evicted += fps.tick(measurement(0), number * TICK_NS, RNG).evict
    assert flow_key(0) in evicted


def test_members_change_while_running() -> None:
    fps = limiter()
    fps.receive("b", update(0, value=3.0), 0)
    fps.reconfigure(fps.limit, ("a", "b", "c"), TICK_NS)
    tick = fps.tick(measurement(10_000), TICK_NS, RNG)
    assert tick.view.connected == {"b"}
    assert tick.in_force.rate == pytest.approx(10 * MBIT * 2 / 3)
    fps.reconfigure(fps.limit, ("a",), 2 * TICK_NS)
    tick = fps.tick(measurement(10_000), 2 * TICK_NS, RNG)
    assert tick.in_force.rate == 10 * MBIT
