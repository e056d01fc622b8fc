"""The tree fabric, one limiter at a time."""

from random import Random

import pytest

from drld.gossip.fabrics.quiescence import QUIET_ROUNDS
from drld.gossip.fabrics.tree import Tree
from drld.gossip.fabrics.tree_membership import LOST
from drld.gossip.fabrics.tree_ranks import Role, candidates, rank
from drld.gossip.fabrics.tree_update import MAX_MEMBERS, TreeUpdate
from drld.gossip.wire.update_codec import MAX_VALUE
from drld.model import HEARTBEAT, GlobalView, Quantity

from .. import wire

TICK = 50_000_000
RNG = Random(1)

NAMES = sorted("abcdefgh", key=rank)
ROOT, PARENT, SELF, CHILD, OTHER = NAMES[0], NAMES[1], NAMES[2], NAMES[3], NAMES[4]
HUSH = 4
"""Intervals for which a limiter only listens."""


def tree(peers: str = PARENT + CHILD + OTHER, name: str = SELF) -> Tree:
    membership = Tree.make_membership(name, list(peers), 3, TICK)
    made = Tree(membership=membership, limit_id=7, quantity=Quantity.RATE)
    made.view(0)
    return made


def update(sequence: int, role: Role, value: float = 0.0, members: int = 1) -> TreeUpdate:
    return wire.tree(7, sequence, role, value, members)


def beat(sequence: int, role: Role, members: int) -> TreeUpdate:
    return wire.tree(HEARTBEAT, sequence, role, 0.0, members)


def publish(fabric: Tree, value: float, interval: int) -> dict[str, TreeUpdate]:
    now_ns = interval * TICK
    return dict(fabric.publish(value, fabric.membership.targets(RNG), now_ns))


def settled() -> Tree:
    """A tree at `NOW` with a parent that counts 4 limiters, and two children that count 2 and 1."""
    fabric = tree(peers="".join(name for name in NAMES if name != SELF))
    fabric.membership.hear(PARENT, hears_us=True, now_ns=HUSH * TICK)
    fabric.membership.hear(ROOT, hears_us=False, now_ns=HUSH * TICK)
    fabric.view(HUSH * TICK + 1)
    if fabric.membership.parent != PARENT:
        # The best candidate comes first; after LOST any other will do.
        for interval in range(HUSH, LOST + 2):
            fabric.membership.hear(PARENT, hears_us=True, now_ns=interval * TICK)
            fabric.view(interval * TICK)
    assert fabric.membership.parent == PARENT
    tell(fabric, 0, NOW)
    return fabric


NOW = LOST + 3


NEIGHBOURS = ((PARENT, Role.CHILD, 4), (CHILD, Role.PARENT, 2), (OTHER, Role.PARENT, 1))
"""The neighbours of `settled`: the role in their updates, and the limiters that each counts."""


def tell(fabric: Tree, sequence: int, interval: int) -> None:
    for (name, role, members), value in zip(NEIGHBOURS, (40.0, 2.0, 1.0), strict=True):
        fabric.receive(name, update(sequence, role, value, members), interval * TICK)


def test_remote_is_the_sum_from_parent_and_children() -> None:
    fabric = settled()
    others = frozenset(NAMES) - {SELF}
    assert fabric.view(NOW * TICK) == GlobalView(43.0, others, age_ns=0)


def test_each_neighbour_gets_the_sum_of_all_others() -> None:
    told = publish(settled(), 0.5, NOW)
    assert (told[PARENT].role, told[PARENT].value, told[PARENT].members) == (Role.PARENT, 3.5, 4)
    assert (told[CHILD].role, told[CHILD].value, told[CHILD].members) == (Role.CHILD, 41.5, 6)
    assert (told[OTHER].role, told[OTHER].value, told[OTHER].members) == (Role.CHILD, 42.5, 7)


def test_the_newest_sum_counts() -> None:
    fabric = settled()
    fabric.receive(CHILD, update(5, Role.PARENT, 20.0, 2), NOW * TICK)
    fabric.receive(CHILD, update(3, Role.PARENT, 300.0, 2), NOW * TICK)
    fabric.receive(CHILD, update(5, Role.PARENT, 300.0, 2), NOW * TICK)
    assert fabric.view(NOW * TICK).remote == 61.0
    assert (fabric.links[CHILD].late, fabric.links[CHILD].lost) == (1, 4)


def test_limiters_that_are_missing_are_not_named() -> None:
    fabric = settled()
    fabric.receive(CHILD, update(1, Role.PARENT, 2.0, 1), NOW * TICK)
    view = fabric.view(NOW * TICK)
    assert view.connected == {PARENT, CHILD, OTHER}
    assert view.unnamed == 3


class Counted(frozenset[str]):
    """A set that counts how often it was compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = frozenset.__hash__


def test_a_look_at_a_steady_fleet_compares_no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be thousands of names, and a look in each tick."""
    fleet = settled().membership
    everybody = Counted(fleet.peers)
    monkeypatch.setattr(fleet, "named", lambda *_: (everybody, 0))
    compared = []
    for number in range(3):
        fleet.connected(NOW * TICK + number)
        compared.append(Counted.compared)
    assert compared == [1, 1, 1]


def test_a_lower_rank_is_no_child() -> None:
    fabric = settled()
    fabric.receive(ROOT, update(0, Role.PARENT, 100.0, 1), NOW * TICK)
    assert fabric.view(NOW * TICK).remote == 43.0


def test_only_the_parent_sends_the_rest() -> None:
    fabric = settled()
    fabric.receive(ROOT, update(0, Role.CHILD, 100.0, 1), NOW * TICK)
    fabric.receive(CHILD, update(1, Role.CHILD, 100.0, 1), NOW * TICK)
    # The former child is a child no longer.
    assert fabric.view(NOW * TICK).remote == 41.0


COUNTED = 26 + 2 * len(NAMES).bit_length()
SILENT = 17 + len(NAMES).bit_length()


def test_limiters_behind_a_silent_neighbour_leave_before_their_demand() -> None:
    fabric = settled()
    for interval in range(NOW, NOW + COUNTED + 2):
        view = fabric.view(interval * TICK)
        counted = len(view.connected) + view.unnamed
        assert counted == (7 if interval <= NOW + SILENT else 0)
        assert view.remote == (43.0 if interval <= NOW + COUNTED else 0.0)
    assert view == GlobalView(0.0, frozenset(), None)


def test_orphans_that_find_another_parent_soon_are_never_missing() -> None:
    fabric = settled()
    for interval in range(NOW, NOW + 40):
        for name, role, members in ((CHILD, Role.PARENT, 2), (OTHER, Role.PARENT, 1)):
            fabric.receive(name, update(interval, role, members, members), interval * TICK)
        if interval >= NOW + SILENT:
            fabric.receive(PARENT, update(interval, Role.CHILD, 40.0, 4), interval * TICK)
        view = fabric.view(interval * TICK)
        assert len(view.connected) + view.unnamed == 7


@pytest.mark.parametrize("heard", [False, True])
def test_a_limiter_without_confirmations_is_alone(heard: bool) -> None:
    fabric = settled()
    alone = SILENT
    for interval in range(NOW + 1, NOW + alone + 2):
        if heard:
            fabric.receive(CHILD, update(interval, Role.PARENT, 2.0, members=0), interval * TICK)
        view = fabric.view(interval * TICK)
        assert bool(view.connected) == (interval <= NOW + alone)


def test_an_update_to_a_peer_that_is_not_heard_has_no_sum() -> None:
    fabric = settled()
    fabric.receive(CHILD, update(1, Role.PARENT, 2.0, 2), (NOW + 4) * TICK)
    told = publish(fabric, 0.5, NOW + 5)
    assert told[CHILD].members == 6
    assert (told[PARENT].role, told[PARENT].value, told[PARENT].members) == (Role.PARENT, 0.0, 0)


def test_a_limiter_that_has_just_started_listens() -> None:
    fabric = tree()
    fabric.receive(CHILD, update(0, Role.PARENT, 2.0, 2), 0)
    assert publish(fabric, 0.5, HUSH - 1)[CHILD].members == 0
    fabric.receive(CHILD, update(1, Role.PARENT, 2.0, 2), HUSH * TICK)
    assert publish(fabric, 0.5, HUSH)[CHILD].members == 1


def test_another_quantity_is_left_out_with_those_behind_it() -> None:
    fabric = settled()
    fabric.receive(
        PARENT, wire.tree(7, 1, Role.CHILD, 9.0, 4, quantity=Quantity.WEIGHT), NOW * TICK
    )
    view = fabric.view(NOW * TICK)
    assert view.remote == 3.0
    assert view.connected == {CHILD, OTHER}
    assert view.unnamed == 1
    fabric.receive(
        CHILD, wire.tree(7, 1, Role.PARENT, 2.0, 2, quantity=Quantity.WEIGHT), NOW * TICK
    )
    view = fabric.view(NOW * TICK)
    assert view.connected == {OTHER}
    assert (view.remote, view.unnamed) == (1.0, 0)
    assert (fabric.links[PARENT].rejected, fabric.links[CHILD].rejected) == (1, 1)


def test_a_limiter_that_believes_zero_falls_silent_and_wakes_up() -> None:
    fabric = settled()
    publish(fabric, 1.0, NOW)
    for name, role, _ in NEIGHBOURS:
        fabric.receive(name, update(1, role, 0.0, 1), NOW * TICK)
    said = []
    for _ in range(12):
        fabric.view(NOW * TICK)
        said.append(bool(publish(fabric, 0.0, NOW)))
    assert said == [True] * QUIET_ROUNDS + [False] * (12 - QUIET_ROUNDS)
    fabric.receive(CHILD, update(2, Role.PARENT, 5.0, 1), NOW * TICK)
    assert not fabric.quiet
    fabric.view(NOW * TICK)
    assert publish(fabric, 0.0, NOW)[PARENT].value == 5.0


def test_a_limit_without_updates_counts_zero_but_its_limiters_count() -> None:
    fabric = settled()
    others = frozenset(NAMES) - {SELF}
    last = NOW + COUNTED + 2
    for interval in range(NOW, last):
        for name, role, members in NEIGHBOURS:
            fabric.membership.receive(name, beat(interval, role, members), interval * TICK)
        view = fabric.view(interval * TICK)
        assert (view.connected, view.unnamed) == (others, 0)
    assert view.remote == 0.0


def orphan() -> Tree:
    """A tree with ROOT as its parent. It has lost PARENT, which got the sum 0.5 + 3 from it."""
    fabric = settled()
    fabric.membership._candidates = (PARENT, ROOT)
    publish(fabric, 0.5, NOW)
    tell(fabric, 1, NOW + 1)
    for interval in range(NOW + 2, NOW + LOST + 3):
        now_ns = interval * TICK
        fabric.membership.hear(ROOT, hears_us=True, now_ns=now_ns)
        for name, value in ((CHILD, 2.0), (OTHER, 1.0)):
            fabric.receive(name, update(interval, Role.PARENT, value, round(value)), now_ns)
        fabric.view(now_ns)
    assert fabric.membership.parent == ROOT
    return fabric


ADOPTED = NOW + LOST + 3


def test_an_orphan_counts_twice_until_its_lost_parent_is_forgotten() -> None:
    """It sends its sum to its new parent, which still counts the sum of the lost parent."""
    fabric = orphan()
    assert publish(fabric, 0.75, ADOPTED)[ROOT].value == 3.75
    # 40 beyond, and the 3.5 that the lost parent had been told.
    fabric.receive(ROOT, update(0, Role.CHILD, 43.5, 5), ADOPTED * TICK)
    assert fabric.view(ADOPTED * TICK).remote == 46.5
    assert publish(fabric, 0.75, ADOPTED)[CHILD].value == 0.75 + 1.0 + 43.5


def test_the_sum_of_a_lost_parent_is_the_least_that_counts_until_it_is_forgotten() -> None:
    """The new parent may have been in another tree, and know of other limiters."""
    fabric = orphan()
    forgotten = NOW + 1 + COUNTED
    for interval in range(ADOPTED, forgotten + 3):
        for name, value in ((CHILD, 2.0), (OTHER, 1.0)):
            fabric.receive(
                name, update(interval, Role.PARENT, value, round(value)), interval * TICK
            )
        fabric.receive(ROOT, update(interval, Role.CHILD, 0.25), interval * TICK)
        counted = 40.0 if interval <= forgotten else 0.25
        assert fabric.view(interval * TICK).remote == 3.0 + counted
        assert publish(fabric, 0.5, interval)[CHILD].value == 0.5 + 1.0 + counted


def test_a_reload_keeps_the_state_of_peers_that_stay() -> None:
    fabric = settled()
    fabric.membership.set_peers([PARENT, CHILD])
    fabric.set_peers()
    view = fabric.view(NOW * TICK)
    assert view.remote == 42.0
    assert fabric.membership.parent == PARENT
    assert set(fabric.links) == {PARENT, CHILD}


def test_sums_beyond_the_wire_are_sent_as_its_maximum() -> None:
    fabric = settled()
    fabric.receive(CHILD, update(1, Role.PARENT, MAX_VALUE, MAX_MEMBERS), NOW * TICK)
    told = publish(fabric, MAX_VALUE, NOW)[PARENT]
    assert (told.value, told.members) == (MAX_VALUE, len(NAMES))


def test_a_limiter_alone_publishes_nothing() -> None:
    fabric = tree(peers="")
    assert publish(fabric, 5.0, 0) == {}
    assert fabric.view(0) == GlobalView(0.0, frozenset(), None)


def test_the_best_candidate_is_asked_and_becomes_the_parent() -> None:
    fabric = tree(peers="".join(name for name in NAMES if name != SELF))
    best, *_ = candidates(SELF, fabric.membership.peers, 3)
    assert fabric.membership.targets(RNG) == [best]
    assert fabric.membership.heartbeat(best, 0).role == Role.CANDIDATE
    fabric.membership.receive(best, beat(0, Role.NONE, 1), HUSH * TICK)
    fabric.view(HUSH * TICK)
    assert fabric.membership.parent == best
    assert fabric.membership.heartbeat(best, HUSH * TICK).role == Role.PARENT


def test_a_limiter_that_asks_is_answered_once() -> None:
    fabric = settled()
    asks = beat(0, Role.CANDIDATE, 0)
    fabric.membership.receive(NAMES[5], asks, NOW * TICK)
    assert NAMES[5] in fabric.membership.targets(RNG)
    assert fabric.membership.heartbeat(NAMES[5], NOW * TICK).role == Role.NONE
    assert NAMES[5] not in fabric.membership.targets(RNG)


def test_news_between_rounds_goes_to_neighbours_and_answers_no_question() -> None:
    """If it did, an orphan's question would be lost where rounds are longer than an interval."""
    membership = settled().membership
    membership.receive(NAMES[5], beat(0, Role.CANDIDATE, 0), NOW * TICK)
    assert set(membership.neighbours()) == {PARENT, CHILD, OTHER}
    assert NAMES[5] in membership.targets(RNG)


def test_a_peer_that_takes_the_limiter_for_a_child_by_mistake_is_corrected() -> None:
    """While all is steady; but a lost parent goes on counting this limiter until it forgets it."""
    for parent, steady, answered in ((None, True, True), (None, False, False), (ROOT, True, False)):
        fabric = orphan() if parent else settled()
        membership = fabric.membership
        membership._steady = steady
        teller = PARENT if parent else ROOT
        membership._to_ask = []
        told = beat(0, Role.CHILD, 4)
        membership.receive(teller, told, ADOPTED * TICK)
        assert (teller in membership._to_answer) is answered
    assert membership.role(PARENT, ADOPTED * TICK) is Role.NONE


def test_a_parent_left_for_a_better_one_learns_of_it_later() -> None:
    """The former parent gets a parent's updates for some rounds more."""
    fabric = settled()
    best = fabric.membership._candidates[0]
    if best == PARENT:
        fabric.membership._candidates = (ROOT, PARENT)
        best = ROOT
    membership = fabric.membership
    # The parent counts 4 beyond this limiter; a limiter that has just returned counts itself.
    for sequence, known, chosen in ((0, 1, PARENT), (1, 4, best)):
        membership.receive(best, beat(sequence, Role.NONE, known), NOW * TICK)
        fabric.view(NOW * TICK)
        assert membership.parent == chosen
    assert membership.role(PARENT, NOW * TICK) is Role.PARENT
    assert {PARENT, best} <= set(membership.targets(RNG))
    after = NOW + 5 + 2 * len(NAMES).bit_length()
    membership.hear(best, hears_us=True, now_ns=after * TICK)
    fabric.view(after * TICK)
    assert membership.role(PARENT, after * TICK) is Role.NONE
    assert PARENT in membership.targets(RNG)
    fabric.view((after + LOST) * TICK)
    assert PARENT not in membership.targets(RNG) or PARENT in membership._to_ask
