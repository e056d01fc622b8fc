"""The tree in whole fleets: loss, deaths, restarts, cuts; what is believed while it mends itself.

Intervals are 50 ms and paths take 20 ms, if nothing else is said.
"""

import pytest

from drld.gossip.fabrics.tree import Tree
from drld.gossip.fabrics.tree_membership import LOST
from testbed.fabrics.fleet import BRANCHING, Fleet, fleet, start_up
from testbed.sim.known import families
from testbed.sim.network import MS, Conditions

from ..fleets.fabrics import restless_error, worst_error

SIZES = [2, 3, 10, 50]


def started(size: int, seed: int, **conditions: float) -> Fleet:
    """A fleet that knows itself."""
    made = fleet("tree", size, seed, Conditions(**conditions))  # type: ignore[arg-type]  # all are numbers
    made.run(start_up("tree", size) + 20)
    assert made.connected() == {size - 1}
    return made


def parents(made: Fleet) -> dict[str, str | None]:
    found = {}
    for name, fabric in made.fabrics.items():
        assert isinstance(fabric, Tree)
        found[name] = fabric.membership.parent
    return found


def counted(size: int) -> int:
    """Intervals for which what a child said counts."""
    return 26 + 2 * size.bit_length()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("loss", [0.05, 0.2])
def test_loss_biases_nothing(size: int, loss: float) -> None:
    """Steady demands are known exactly, moving ones nearly as well as without loss."""
    made = started(size, 1, loss=loss)
    for _ in range(50):
        made.run(1)
        assert worst_error(made) < 1e-6
    assert restless_error(made, 100, 1) < 0.03


@pytest.mark.parametrize("size", SIZES)
def test_reordering_and_duplication_bias_nothing(size: int) -> None:
    conditions = Conditions(delay_ns=20 * MS, jitter_ns=120 * MS, loss=0.05, duplicate=0.1)
    made = fleet("tree", size, 1, conditions)
    made.run(2 * start_up("tree", size) + 20)
    assert worst_error(made) < 1e-6
    assert restless_error(made, 100, 1) < 0.04


@pytest.mark.parametrize("size", SIZES)
def test_a_limiter_sends_two_updates_a_round(size: int) -> None:
    made = started(size, 1)
    sent = made.network.sent
    made.run(10)
    assert made.network.sent - sent == 10 * 2 * (size - 1)


@pytest.mark.parametrize("size", SIZES)
def test_every_limiter_has_the_best_parent(size: int) -> None:
    made = started(size, 1)
    chosen = parents(made)
    assert sum(parent is None for parent in chosen.values()) == 1
    for name, fabric in made.fabrics.items():
        assert isinstance(fabric, Tree)
        assert [chosen[name]] == [*fabric.membership._candidates[:1], None][:1]


@pytest.mark.parametrize("size", SIZES)
def test_the_simulator_knows_the_families_of_a_fleet(size: int) -> None:
    made = started(size, 1)
    known = families(made.names, BRANCHING)
    assert {name: parent for name, (parent, _) in known.items()} == parents(made)
    for name, fabric in made.fabrics.items():
        assert isinstance(fabric, Tree)
        assert set(known[name][1]) == set(fabric.membership.children)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("which", range(4))
def test_a_death_is_never_believed_to_be_more_than_one(size: int, which: int) -> None:
    """The total falls by what the dead one wanted, and not before it is counted out."""
    made = started(size, which)
    chosen = parents(made)
    inner = sorted(made.names, key=lambda name: -list(chosen.values()).count(name))
    dead = inner[min(which, size - 1)]
    made.dead.add(dead)
    for _ in range(counted(size) + 10):
        made.run(1)
        alive = made.total
        assert all(believed > alive * (1 - 1e-6) for believed in made.believed().values())
        assert min(made.connected()) >= size - 2
    assert worst_error(made) < 1e-6
    assert made.connected() == {size - 2}


@pytest.mark.parametrize("size", [10, 50])
def test_moving_demands_are_followed_again_soon_after_a_death(size: int) -> None:
    """The orphans have parents two rounds after `LOST`, and news reaches all limiters."""
    made = started(size, 1)
    chosen = parents(made)
    busiest = max(made.names, key=list(chosen.values()).count)
    made.dead.add(busiest)
    made.run(LOST + 4)
    before = made.total
    orphan = next(name for name in made.names if chosen[name] == busiest)
    made.demand[orphan] += before
    made.run(12)
    assert all(believed > made.total * (1 - 1e-6) for believed in made.believed().values())
    assert parents(made)[orphan] != busiest


@pytest.mark.parametrize(("size", "seed"), [(10, 1), (10, 2), (50, 1), (50, 2)])
def test_orphans_that_find_another_parent_and_return_are_counted_at_least_once(
    size: int, seed: int
) -> None:
    """All limiters but those below the orphans count them twice until the dead one is forgotten."""
    made = started(size, seed)
    chosen = parents(made)
    orphaned = [name for name in made.names if name in chosen.values() and chosen[name]]
    dead = max(orphaned, key=lambda name: (list(chosen.values()).count(name), name))
    below = {dead}
    for _ in made.names:
        below |= {name for name in made.names if chosen[name] in below}
    total = made.total
    others = [name for name in made.names if name not in below]
    made.dead.add(dead)

    def run(intervals: int) -> None:
        for _ in range(intervals):
            made.run(1)
            for believed in made.believed(others).values():
                assert believed > (total - made.demand[dead]) * (1 - 1e-6)

    run(counted(size) + 20)
    assert worst_error(made) < 1e-6
    made.dead.clear()
    made.restart(dead)
    run(40)
    assert parents(made) == chosen
    assert worst_error(made) < 1e-6


def test_no_limiter_returns_to_a_parent_that_knows_too_few() -> None:
    """The root dies, and one that returns just then has no parent for 12 intervals."""
    made = started(10, 1)
    chosen = parents(made)
    (root,) = [name for name in made.names if chosen[name] is None]
    inner = [name for name in made.names if chosen[name] == root and name in chosen.values()]
    for returning in inner:
        made.dead.add(returning)
    made.run(counted(10) + 10)
    made.dead.add(root)
    for returning in inner:
        made.dead.discard(returning)
        made.restart(returning)
    others = [name for name in made.alive if name not in inner]
    wanted = sum(made.demand[name] for name in others)
    for _ in range(40):
        made.run(1)
        assert min(made.believed(others).values()) > wanted * (1 - 1e-6)


@pytest.mark.parametrize("size", [10, 50])
def test_half_of_the_fleet_dies_and_returns(size: int) -> None:
    made = started(size, 2, loss=0.05)
    made.dead.update(made.names[::2])
    made.run(counted(size) + 40)
    assert worst_error(made) < 1e-6
    assert made.connected() == {len(made.alive) - 1}
    for name in made.names[::2]:
        made.restart(name)
    made.dead.clear()
    made.run(80)
    assert worst_error(made) < 1e-6
    assert made.connected() == {size - 1}


@pytest.mark.parametrize("size", [2, 10, 50])
def test_a_quick_restart_changes_nothing_for_the_others(size: int) -> None:
    """The restarted limiter's last sum counts until it sends another."""
    made = started(size, 1)
    total = made.total
    chosen = parents(made)
    busiest = max(made.names, key=list(chosen.values()).count)
    made.restart(busiest)
    for _ in range(40):
        made.run(1)
        others = [name for name in made.names if name != busiest]
        for believed in made.believed(others).values():
            assert believed > total * (1 - 1e-6)
    assert worst_error(made) < 1e-6
    assert parents(made) == chosen


@pytest.mark.parametrize("incoming", [False, True])
@pytest.mark.parametrize("which", range(10))
def test_a_limiter_that_is_cut_off_one_way_shrinks_before_it_is_counted_out(
    which: int, incoming: bool
) -> None:
    made = started(10, 1)
    name = made.names[which]
    others = [other for other in made.names if other != name]
    made.network.cut |= {(other, name) if incoming else (name, other) for other in others}
    total = made.total
    shrunk: int | None = None
    missed: int | None = None
    for interval in range(60):
        made.run(1)
        if made.connected([name]) == {0} and shrunk is None:
            shrunk = interval
        if min(made.believed(others).values()) < total * (1 - 1e-6) and missed is None:
            missed = interval
    assert shrunk is not None
    assert missed is not None
    assert shrunk < missed
    assert made.connected([name]) == {0}
    assert made.connected(others) == {8}
    made.network.heal()
    made.run(60)
    assert worst_error(made) < 1e-6


@pytest.mark.parametrize("size", [3, 10])
def test_a_quiescent_tree_learns_of_the_first_demand(size: int) -> None:
    made = Fleet("tree", size, 1)
    made.run(60)
    assert all(fabric.quiet for fabric in made.fabrics.values())
    assert made.connected() == {size - 1}
    made.demand["l1"] = 1e6
    made.run(12)
    assert worst_error(made) == 0
    made.demand["l1"] = 0.0
    made.run(40)
    assert all(view.remote == 0 for view in made.views.values())
    assert all(fabric.quiet for fabric in made.fabrics.values())


def test_a_lost_last_zero_does_no_harm() -> None:
    made = started(10, 1)
    made.network.conditions = Conditions(loss=1.0)
    for name in made.names:
        made.demand[name] = 0.0
    made.run(9)
    made.network.conditions = Conditions()
    made.run(counted(10) + 20)
    assert all(view.remote == 0 for view in made.views.values())


@pytest.mark.parametrize("delay_ms", [1, 100, 200])
def test_a_tree_knows_the_total_on_paths_of_any_length(delay_ms: int) -> None:
    made = fleet("tree", 10, 1, Conditions(delay_ns=delay_ms * MS))
    made.run(120)
    assert worst_error(made) < 1e-6
    chosen = parents(made)
    for _ in range(40):
        made.run(1)
        assert worst_error(made) < 1e-6
    assert parents(made) == chosen
