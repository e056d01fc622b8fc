"""One limiter of one limit: what a tick makes of a measurement, and what a round publishes."""

import pytest

from drld.allocators import ALLOCATORS
from drld.gossip.fabrics.pushsum import PushSum
from drld.gossip.fabrics.quiescence import QUIET_ROUNDS
from drld.limiter import Limiter
from drld.model import Enforcement, FlowId, Quantity, Update
from drld.node import membership
from drld.policy import Keyed, Mode

from ..factories import MBIT, TICK_NS, gossip_spec, measurement, policy
from ..factories import flow as flow_key
from ..wire import mesh


def limiter(
    allocator: str = "fps",
    members: tuple[str, ...] = ("a", "b"),
    fabric: str = "mesh",
    **limit: object,
) -> Limiter:
    gossip = gossip_spec(fabric)
    return Limiter(policy(allocator, **limit), membership("a", members, gossip), gossip.fabric)


def update(sequence: int, value: float, quantity: Quantity = Quantity.WEIGHT) -> Update:
    return mesh(1, sequence, value, quantity)


def test_a_fleet_of_one_has_the_whole_limit_from_the_start() -> None:
    one = limiter(members=("a",))
    assert one.initial().fill_rate == 10 * MBIT
    tick = one.tick(measurement(10_000), TICK_NS)
    assert tick.allocation.local_limit == 10 * MBIT
    assert one.publish([], TICK_NS) == []


def test_until_a_peer_is_heard_the_static_share_is_enforced_as_a_bucket() -> None:
    grd = limiter("grd")
    assert grd.initial().fill_rate == 5 * MBIT
    tick = grd.tick(measurement(100_000), TICK_NS)
    assert tick.enforcement == grd.initial()
    assert tick.enforcement.drop_probability == 0
    assert tick.in_force.rate == 5 * MBIT


def test_each_key_s_whole_rate_is_in_force_while_no_peer_is_heard() -> None:
    keyed = limiter("static", keyed=Keyed("ledger", 100))
    tick = keyed.tick(measurement(10_000), TICK_NS)
    assert tick.in_force.rate == 10 * MBIT
    assert tick.enforcement == Enforcement()


def test_fair_polices_each_flow_while_no_peer_is_heard() -> None:
    fair = limiter("fair")
    sent = {flow_key(port): 40_000 for port in (1, 2)}
    tick = fair.tick(measurement(80_000, dropped=40_000, flows=sent), TICK_NS)
    assert tick.in_force.rate == 5 * MBIT
    assert tick.enforcement.fill_rate == 5 * MBIT
    assert tick.enforcement.flow_rate == 5 * MBIT / 2


def test_a_paused_limit_drops_nothing_and_takes_part_in_gossip() -> None:
    paused = limiter("gtb", mode=Mode.PAUSE)
    assert paused.initial() == Enforcement()
    for heard in (False, True):
        if heard:
            paused.receive("b", update(0, value=3.0, quantity=Quantity.RATE), 0)
        tick = paused.tick(measurement(10**9), TICK_NS)
        assert tick.enforcement == Enforcement()
        assert tick.allocation.value > 0
    enforced = policy("gtb")
    paused.reconfigure(enforced)
    assert paused.tick(measurement(10**9), TICK_NS).enforcement.depth is not None


def test_a_peer_that_is_heard_brings_its_share_and_its_demand() -> None:
    fps = limiter()
    fps.receive("b", update(0, value=3.0), 0)
    tick = fps.tick(measurement(10_000), TICK_NS)
    assert tick.view.connected == {"b"}
    assert tick.view.remote == 3.0
    assert tick.in_force.rate == 10 * MBIT
    assert tick.enforcement is tick.allocation.enforcement


def test_a_peer_of_another_allocator_is_not_believed() -> None:
    fps = limiter()
    fps.receive("b", update(0, value=3.0, quantity=Quantity.RATE), 0)
    tick = fps.tick(measurement(10_000), TICK_NS)
    assert tick.view.connected == frozenset()
    assert fps.fabric.links["b"].rejected == 1


def test_the_least_weight_of_the_peers_is_remembered_for_the_age_of_news() -> None:
    made = limiter()
    made.receive("b", update(0, value=3.0), 0)
    made.tick(measurement(0), TICK_NS)
    made.receive("b", update(1, value=7.0), TICK_NS)
    kept = made.fabric.news_ns // TICK_NS + 1
    seen = [made.tick(measurement(0), (2 + n) * TICK_NS).view.least_remote for n in range(kept + 1)]
    assert seen == [3.0] * kept + [7.0]


def test_unequal_shares_count_when_a_peer_is_missing() -> None:
    three = limiter(members=("a", "b", "c"), shares={"a": 0.5, "b": 0.3, "c": 0.2})
    three.receive("b", update(0, value=1.0), 0)
    tick = three.tick(measurement(0), TICK_NS)
    assert tick.in_force.rate == pytest.approx(8 * MBIT)
    assert tick.in_force.burst == pytest.approx(60_000)
    assert tick.in_force.static_rate == pytest.approx(5 * MBIT)


def test_every_update_tells_the_value_of_the_last_tick() -> None:
    fps = limiter()
    tick = fps.tick(measurement(10_000, dropped=1500), TICK_NS)
    ((peer, sent),) = fps.publish(["b"], TICK_NS)
    assert peer == "b"
    assert (sent.limit_id, sent.sequence, sent.quantity) == (1, 0, Quantity.WEIGHT)
    assert sent.value == pytest.approx(tick.allocation.value)
    assert tick.allocation.value > 0


def test_a_limit_without_demand_becomes_quiescent() -> None:
    fps = limiter()
    resting = [fps.quiescent]
    for number in range(1, 60):
        arrived = 10_000 if number == 1 else 0
        fps.tick(measurement(arrived, flows={}), number * TICK_NS)
        fps.publish(["b"], number * TICK_NS)
        resting.append(fps.quiescent)
    fps.receive("b", update(0, value=3.0), 60 * TICK_NS)
    resting.append(fps.quiescent)
    # A second without a byte, then the rounds in which its peers are told.
    busy = 20 + QUIET_ROUNDS - 1
    assert resting == [True] + [False] * busy + [True] * (59 - busy) + [False]


def test_a_static_limit_rests_when_the_shares_of_its_peers_are_in_force() -> None:
    static = limiter("static", members=("a", "b", "c"))
    static.receive("b", update(0, value=0.0, quantity=static.fabric.quantity), 0)
    now_ns, rate = TICK_NS, static.tick(measurement(0), TICK_NS).in_force.rate
    assert rate == pytest.approx(10 * MBIT * 2 / 3)
    assert static.quiescent
    static.receive("c", update(0, value=0.0, quantity=static.fabric.quantity), now_ns)
    for _ in range(100):
        now_ns += TICK_NS
        rate = static.tick(measurement(0), now_ns).in_force.rate
        if static.quiescent:
            break
    assert rate == 10 * MBIT


@pytest.mark.parametrize("allocator", sorted(ALLOCATORS))
def test_a_tick_at_rest_changes_nothing(allocator: str) -> None:
    tested = limiter(allocator)
    tested.tick(measurement(10_000), TICK_NS)
    ticks = []
    for number in range(2, 400):
        was_quiescent = tested.quiescent
        tick = tested.tick(measurement(0, flows={}), number * TICK_NS)
        tested.publish(["b"], number * TICK_NS)
        if was_quiescent:
            ticks.append(tick)
    assert len(ticks) > 100
    assert {tick.enforcement for tick in ticks} == {ticks[0].enforcement}
    assert {tick.allocation for tick in ticks} == {ticks[0].allocation}


def test_idle_flows_leave_the_sample() -> None:
    fps = limiter()
    evicted = list[FlowId]()
    fps.tick(measurement(10_000), TICK_NS)
    for number in range(2, 30):
        evicted += fps.tick(measurement(0), number * TICK_NS).evict
    assert flow_key(0) in evicted


def test_members_change_while_running() -> None:
    fps = limiter()
    fps.receive("b", update(0, value=3.0), 0)
    fps.membership.set_peers("bc")
    fps.reconfigure(fps.policy)
    tick = fps.tick(measurement(10_000), TICK_NS)
    assert tick.view.connected == {"b"}
    assert tick.in_force.rate == pytest.approx(10 * MBIT * 2 / 3)
    fps.membership.set_peers("")
    fps.reconfigure(fps.policy)
    tick = fps.tick(measurement(10_000), 2 * TICK_NS)
    assert tick.in_force.rate == 10 * MBIT


def test_a_reload_lets_a_share_that_rises_late_rise_late() -> None:
    fps = limiter(members=("a", "b", "c"))
    fps.tick(measurement(10_000), TICK_NS)
    fps.receive("b", update(0, value=3.0), 2 * TICK_NS)
    fps.tick(measurement(10_000), 2 * TICK_NS)
    rises_ns = 2 * TICK_NS + fps.membership.rise_ns
    fps.reconfigure(fps.policy)
    in_force = {}
    for now_ns in (rises_ns - TICK_NS, rises_ns):
        fps.receive("b", update(now_ns // TICK_NS, value=3.0), now_ns)
        in_force[now_ns] = fps.tick(measurement(10_000), now_ns).in_force.rate
    assert in_force[rises_ns - TICK_NS] == pytest.approx(10 * MBIT / 3)
    assert in_force[rises_ns] == pytest.approx(20 * MBIT / 3)


def test_the_same_limiters_stay_in_force_with_the_shares_they_have_now() -> None:
    fps = limiter(members=("a", "b", "c"))
    fps.tick(measurement(10_000), TICK_NS)
    fps.receive("b", update(0, value=3.0), 2 * TICK_NS)
    fps.tick(measurement(10_000), 2 * TICK_NS)
    fps.membership.set_peers("bcd")
    fps.reconfigure(fps.policy)
    tick = fps.tick(measurement(10_000), 3 * TICK_NS)
    assert tick.in_force.rate == pytest.approx(10 * MBIT / 4)


def test_no_share_grows_while_one_that_departed_may_be_counted_elsewhere() -> None:
    old = {"a": 0.5, "b": 0.3, "c": 0.2}
    three = limiter(members=("a", "b", "c"), shares=old)
    three.receive("b", update(0, value=1.0), 0)
    three.tick(measurement(0), TICK_NS)
    new = policy(shares={"a": 0.4, "b": 0.6})
    three.reconfigure(new, {"c"})
    held = three.tick(measurement(0), 2 * TICK_NS)
    three.membership.set_peers("b")
    three.reconfigure(new)
    grown = three.tick(measurement(0), 3 * TICK_NS)
    assert held.in_force.rate == pytest.approx(10 * MBIT * (0.4 + 0.3))
    assert held.in_force.static_rate == pytest.approx(4 * MBIT)
    assert grown.in_force.rate == pytest.approx(10 * MBIT)


def test_the_age_of_news_grows_in_pushsum_while_few_are_connected() -> None:
    one = limiter("fair", ("a", *(f"l{number}" for number in range(49))), "pushsum")
    assert isinstance(one.fabric, PushSum)
    before = one.tick(measurement(10_000), TICK_NS).view.news_ns
    one.fabric._reached = 5
    after = one.tick(measurement(10_000), 2 * TICK_NS).view.news_ns
    assert after == one.fabric.news_ns + TICK_NS > before
