"""The mesh fabric, one limiter at a time."""

from random import Random

import pytest

from drld.gossip.fabrics.mesh import Mesh
from drld.gossip.fabrics.mesh_update import MeshUpdate
from drld.gossip.fabrics.quiescence import QUIET_ROUNDS
from drld.model import HEARTBEAT, GlobalView, Quantity

from .. import wire
from ..fleets.fabrics import BareFleet

TICK = 50_000_000
RNG = Random(1)


def mesh(peers: str = "bc", name: str = "a") -> Mesh:
    membership = Mesh.make_membership(name, list(peers), 1, TICK)
    return Mesh(membership=membership, limit_id=7, quantity=Quantity.RATE)


def publish(fabric: Mesh, value: float, now_ns: int) -> list[tuple[str, MeshUpdate]]:
    return fabric.publish(value, fabric.membership.targets(RNG), now_ns)


def update(sequence: int, value: float, *, hears: bool = True, whole: bool = False) -> MeshUpdate:
    return wire.mesh(7, sequence, value, hears=hears, whole=whole)


def test_every_peer_gets_an_update_in_each_interval() -> None:
    fabric = mesh()
    for sequence in range(3):
        updates = publish(fabric, 5.0, sequence * TICK)
        assert [peer for peer, _ in updates] == ["b", "c"]
        assert {u for _, u in updates} == {update(sequence, 5.0, hears=False)}


def test_an_update_says_whether_its_receiver_is_heard_and_has_the_rest() -> None:
    fabric = mesh()
    fabric.receive("b", update(0, 1.0), 0)

    def told(interval: int) -> dict[str, tuple[bool, float | None]]:
        sent = publish(fabric, 5.0, interval * TICK)
        return {peer: (u.hears, u.rest) for peer, u in sent}

    # Not all are connected: it tells b what all others want, and that is itself.
    assert told(0) == {"b": (True, 5.0), "c": (False, None)}
    fabric.receive("c", update(0, 8.0, whole=True), 0)
    # Now all are; but b is not, as far as is known.
    assert told(0) == {"b": (True, 5.0 + 8.0), "c": (True, None)}
    fabric.receive("b", update(1, 1.0, whole=True), 0)
    assert told(0) == {"b": (True, None), "c": (True, None)}
    assert told(5) == {"b": (False, None), "c": (False, None)}


def test_without_updates_no_peer_is_believed() -> None:
    fabric = mesh()
    publish(fabric, 5.0, 0)
    assert fabric.view(TICK) == GlobalView(remote=0.0, connected=frozenset(), age_ns=None)


def test_remote_is_the_sum_of_the_newest_values() -> None:
    fabric = mesh()
    fabric.receive("b", update(0, 1.0), 0)
    fabric.receive("c", update(0, 10.0), TICK)
    fabric.receive("b", update(2, 3.0), 2 * TICK)
    fabric.receive("b", update(1, 2.0), 3 * TICK)
    assert fabric.view(3 * TICK) == GlobalView(
        remote=13.0, connected=frozenset("bc"), age_ns=2 * TICK
    )
    assert (fabric.links["b"].received, fabric.links["b"].lost, fabric.links["b"].late) == (2, 1, 1)


def test_a_silent_peer_is_counted_out_before_its_value() -> None:
    fabric = mesh()
    fabric.receive("b", update(0, 1.0), 0)
    fabric.receive("c", update(0, 10.0), 20 * TICK)
    view = fabric.view(17 * TICK)
    assert (view.remote, view.connected) == (11.0, frozenset("bc"))
    view = fabric.view(24 * TICK)
    assert (view.remote, view.connected) == (11.0, frozenset("c"))
    view = fabric.view(24 * TICK + 1)
    assert (view.remote, view.connected) == (10.0, frozenset("c"))


def test_a_denied_value_is_not_counted() -> None:
    fabric = mesh()
    fabric.receive("b", update(0, 1.0, hears=False), 0)
    assert fabric.view(0).remote == 0.0
    fabric.receive("b", update(1, 1.0), TICK)
    assert fabric.view(TICK).remote == 1.0


def test_a_reload_keeps_those_that_stay() -> None:
    fabric = mesh()
    fabric.receive("b", update(0, 1.0), 0)
    fabric.receive("c", update(0, 10.0), 0)
    publish(fabric, 5.0, 0)
    fabric.membership.set_peers("bd")
    fabric.set_peers()
    assert fabric.view(TICK).remote == 1.0
    assert fabric.links["b"].received == 1
    assert {peer: u.sequence for peer, u in publish(fabric, 5.0, TICK)} == {"b": 1, "d": 0}
    assert set(fabric.links) == {"b", "d"}


def test_for_a_peer_that_has_become_whole_the_own_sum_counts() -> None:
    """The peer has sent no update of the limit since it was not whole."""
    fabric = mesh()
    fabric.receive("b", wire.mesh(7, 0, 0.0, rest=0.0), 0)
    fabric.receive("c", update(0, 10.0), 0)
    publish(fabric, 5.0, 0)
    fabric.view(0)
    now_ns = fabric.membership.rise_ns
    beat = wire.mesh(HEARTBEAT, 1, 0.0, whole=True)
    assert fabric.view(now_ns).remote < 10.0
    fabric.membership.receive("b", beat, now_ns)
    assert fabric.view(now_ns).remote == 10.0


def test_the_rest_of_a_returning_peer_counts_when_its_share_does() -> None:
    fabric = mesh()

    def remote(interval: int, sequence: int, rest: float) -> float:
        now_ns = interval * TICK
        said = wire.mesh(7, sequence, 1.0, hears=True, whole=False, rest=rest)
        fabric.receive("b", said, now_ns)
        publish(fabric, 5.0, now_ns)
        return fabric.view(now_ns).remote

    for interval in range(5):
        found = remote(interval, interval, 9.0)
    assert found > 1.0
    # The view is not asked for while b leaves, as long as it counts.
    assert fabric.view(100 * TICK).connected == frozenset()
    assert [remote(101 + more, 5 + more, 0.0) for more in range(4)] == [1.0] * 4
    assert remote(105, 9, 0.0) < 1.0


def test_the_order_of_the_peers_makes_no_difference() -> None:
    """Peers that are connected are a set, whose order is another one in each process."""
    peers = "bcdefgh"
    fabric = mesh(peers)
    publish(fabric, 0.1, 0)
    claims = [(1 / 8, 1 / (3 + number)) for number in range(len(peers))]
    orders = [RNG.sample(claims, len(claims)) for _ in range(100)]
    assert len({fabric._effective(0.7, [(1 / 8, 0.7), *order]) for order in orders}) == 1


def test_a_limiter_alone_publishes_nothing() -> None:
    fabric = mesh(peers="")
    assert publish(fabric, 5.0, 0) == []
    assert fabric.view(0).remote == 0.0


def test_the_value_is_rounded_as_on_the_wire() -> None:
    for _, sent in publish(mesh(), 0.1, 0):
        assert wire.carried(sent) == sent
        assert sent.value != 0.1


def test_a_limiter_without_demand_stops_sending() -> None:
    fabric = mesh("b")
    assert fabric.quiet
    assert publish(fabric, 0.0, 0) == []
    publish(fabric, 5.0, TICK)
    sent = [publish(fabric, 0.0, interval * TICK) for interval in range(2, 20)]
    assert [bool(updates) for updates in sent] == [True] * QUIET_ROUNDS + [False] * 10
    assert fabric.quiet


def test_a_value_that_is_not_repeated_counts_zero_although_its_origin_lives() -> None:
    fabric = mesh("b")
    fabric.receive("b", update(0, 3.0), 0)
    for interval in range(1, 25):
        fabric.membership.hear("b", hears_us=True, now_ns=interval * TICK)
        assert fabric.view(interval * TICK).remote == 3.0
        assert not fabric.quiet
    assert fabric.view(25 * TICK) == GlobalView(0.0, frozenset("b"), age_ns=TICK)
    assert fabric.quiet


def test_a_peer_counts_when_its_allocator_agrees() -> None:
    fabric = mesh("b")
    fabric.membership.hear("b", hears_us=True, now_ns=0)
    fabric.receive("b", wire.mesh(7, 0, 1.0, Quantity.WEIGHT), 0)
    assert fabric.view(0).connected == frozenset()
    assert (fabric.links["b"].rejected, fabric.links["b"].received) == (1, 0)
    fabric.receive("b", update(1, 2.0), 0)
    assert fabric.view(0).remote == 2.0


def test_the_rest_of_a_peer_that_vanishes_and_returns_between_two_views_waits_again() -> None:
    fabric = mesh()
    rise_ns, gone_ns = fabric.membership.rise_ns, 18 * TICK

    def told(sequence: int, now_ns: int) -> None:
        fabric.receive("b", wire.mesh(7, sequence, 1.0, rest=50.0), now_ns)

    publish(fabric, 5.0, 0)
    told(0, 0)
    assert fabric.view(0).remote == 1.0
    assert fabric.view(rise_ns).remote > 1.0
    assert fabric.membership.connected(gone_ns) == frozenset()
    told(1, gone_ns)
    assert fabric.view(gone_ns).connected == {"b"}
    assert fabric.view(gone_ns + rise_ns - 1).remote == 1.0
    assert fabric.view(gone_ns + rise_ns).remote > 1.0


ENDS = {("l0", "l2"), ("l2", "l0")}


def chain(*wanted: float) -> list[float]:
    """Parts of the limit in a chain l0 - l1 - l2, with equal shares."""
    fleet = BareFleet("mesh", 3)
    fleet.demand = dict(zip(fleet.names, wanted, strict=True))
    fleet.rounds(60, cut=ENDS)
    views = [fabric.view(fleet.now_ns) for fabric in fleet.fabrics.values()]
    return [
        (len(view.connected) + 1) / 3 * own / (own + view.remote) if own else 0.0
        for own, view in zip(wanted, views, strict=True)
    ]


@pytest.mark.parametrize(
    "wanted", [(1.0, 0.0, 1.0), (1.0, 1.0, 1.0), (5.0, 0.0, 1.0), (1.0, 9.0, 3.0)]
)
def test_a_chain_shares_the_limit_exactly(wanted: tuple[float, float, float]) -> None:
    """The end of one does not know of the other; the middle knows of both, and wants nothing."""
    parts = chain(*wanted)
    assert sum(parts) == pytest.approx(1, rel=1e-6)
    if wanted == (1.0, 0.0, 1.0):
        assert parts == pytest.approx([0.5, 0.0, 0.5])


def test_the_part_of_an_end_follows_from_the_shares() -> None:
    """The first has 1/3 (1 / (1 + 9) + 1 / (1 + 9 + 3)); its share with the last is its own."""
    parts = chain(1.0, 9.0, 3.0)
    assert parts[0] == pytest.approx((1 / 10 + 1 / 13) / 3, rel=1e-6)
    assert parts[2] == pytest.approx((3 / 12 + 3 / 13) / 3, rel=1e-6)
