"""The membership: timeouts, denial, rounds, and the order in which peers are counted out."""

from collections import Counter
from random import Random

import pytest

from drld.gossip.fabrics import FABRICS
from drld.gossip.fabrics.membership import Membership, Timeouts
from drld.gossip.fabrics.pushsum import PushsumMembership
from drld.gossip.fabrics.pushsum_update import PushsumUpdate
from drld.gossip.fabrics.tree import Tree
from drld.gossip.wire.sequence import Numbering
from drld.model import HEARTBEAT, Quantity

TICK = 50_000_000


def heartbeat(sequence: int, hears: bool = True) -> PushsumUpdate:
    return PushsumUpdate(HEARTBEAT, sequence, Quantity.RATE, hears, 0.0, epoch=0, weight=0.0)


def membership(peers: int = 1, fanout: int | None = None) -> Membership:
    return PushsumMembership("a", [f"p{number}" for number in range(peers)], fanout, TICK)


def hearing() -> Membership:
    """A membership that has heard its only peer, at 0."""
    fleet = membership()
    fleet.receive("p0", heartbeat(0), 0)
    return fleet


@pytest.mark.parametrize(
    ("cycle", "fresh", "silence", "denial"), [(1, 4, 24, 17), (3, 8, 68, 53), (17, 36, 376, 305)]
)
def test_timeouts_follow_from_the_cycle(cycle: int, fresh: int, silence: int, denial: int) -> None:
    """Mesh or two limiters; ten with branching 3; fifty with branching 3."""
    assert Timeouts.of(TICK, cycle * TICK) == Timeouts(fresh * TICK, silence * TICK, denial * TICK)


def test_no_peer_is_connected_before_it_is_heard() -> None:
    fleet = membership()
    assert fleet.connected(0) == frozenset()
    assert not fleet.fresh("p0", 0)
    assert fleet.age_ns(0) is None


def test_hearing_is_not_enough() -> None:
    fleet = membership()
    fleet.receive("p0", heartbeat(0, hears=False), 0)
    assert fleet.fresh("p0", 0)
    assert not fleet.both_ways("p0", 0)
    assert fleet.connected(0) == frozenset()
    fleet.receive("p0", heartbeat(1), TICK)
    assert fleet.both_ways("p0", TICK)
    assert fleet.connected(TICK) == {"p0"}


def test_silence_ends_a_connection() -> None:
    fleet = hearing()
    timeouts = fleet.timeouts
    assert fleet.fresh("p0", timeouts.fresh_ns)
    assert not fleet.fresh("p0", timeouts.fresh_ns + 1)
    assert fleet.connected(timeouts.denial_ns) == {"p0"}
    assert fleet.connected(timeouts.denial_ns + 1) == frozenset()


def test_the_demand_of_a_disconnected_peer_counts_for_a_while() -> None:
    fleet = hearing()
    timeouts = fleet.timeouts
    assert fleet.leaving(timeouts.denial_ns) == set()
    assert fleet.leaving(timeouts.denial_ns + 1) == {"p0"}
    assert fleet.leaving(timeouts.silence_ns) == {"p0"}
    fleet.receive("p0", heartbeat(1), timeouts.silence_ns)
    assert fleet.connected(timeouts.silence_ns) == {"p0"}
    assert fleet.leaving(timeouts.silence_ns) == set()
    assert fleet.leaving(2 * timeouts.silence_ns) == {"p0"}
    assert fleet.leaving(2 * timeouts.silence_ns + 1) == set()


def test_updates_in_a_frozen_daemons_socket_are_as_old_as_its_last_look() -> None:
    fleet = hearing()
    fleet.drained(TICK)
    thawed = TICK + fleet.timeouts.denial_ns + 1
    fleet.receive("p0", heartbeat(1), thawed)
    assert fleet.fresh("p0", thawed)
    assert fleet.connected(thawed) == frozenset()
    fleet.drained(thawed)
    fleet.receive("p0", heartbeat(2), thawed + TICK)
    assert fleet.connected(thawed + TICK) == {"p0"}


def test_an_update_of_any_limit_shows_that_its_sender_lives() -> None:
    fleet = membership()
    for interval in range(100):
        fleet.hear("p0", hears_us=True, now_ns=interval * TICK)
        assert fleet.connected(interval * TICK) == {"p0"}
    assert fleet.heard_ns("p0") == 99 * TICK


def test_silence_of_all_is_isolation_long_before_it_shows_on_each_link() -> None:
    fleet = membership(peers=49, fanout=3)
    for interval in range(17):
        for number in range(3 * interval, min(3 * interval + 3, 49)):
            fleet.receive(f"p{number}", heartbeat(0), interval * TICK)
    assert len(fleet.connected(40 * TICK)) == 49
    assert fleet.connected(41 * TICK) == frozenset()


def test_discarded_heartbeats_keep_no_peer_alive() -> None:
    fleet = membership()
    replays: list[int] = []
    fleet.numbering = Numbering(lambda: replays.append(5))
    fleet.receive("p0", heartbeat(5), 0)
    for interval in range(1, 40):
        fleet.receive("p0", heartbeat(5), interval * TICK)
    assert fleet.heard_ns("p0") == 0
    assert replays == [5] * 39
    assert fleet.connected(40 * TICK) == frozenset()


def test_denial_ends_a_connection_although_updates_come() -> None:
    fleet = hearing()
    for interval in range(1, 18):
        fleet.receive("p0", heartbeat(interval, hears=False), interval * TICK)
        assert not fleet.both_ways("p0", interval * TICK)
        assert fleet.connected(interval * TICK) == {"p0"}
    fleet.receive("p0", heartbeat(18, hears=False), 18 * TICK)
    assert fleet.connected(18 * TICK) == frozenset()


@pytest.mark.parametrize("peers", [1, 9, 49])
@pytest.mark.parametrize("deaf", ["p0", "a", "both"])
def test_the_shares_leave_at_both_ends_before_the_demand_leaves_at_one(
    peers: int, deaf: str
) -> None:
    """A link breaks one way or both; the rest is well, and packets take an interval."""
    of_a = membership(peers, 3)
    of_p0 = PushsumMembership("p0", ["a", *of_a.peers[1:]], 3, TICK)
    cycle = -(-peers // of_a.branching)
    of_a.receive("p0", heartbeat(0), 0)
    of_p0.receive("a", heartbeat(0), 0)
    shares_left: dict[str, int] = {}
    demand_left: dict[str, int] = {}
    for interval in range(1, 40 * cycle):
        now = interval * TICK
        for peer in of_a.peers[1:]:
            of_a.hear(peer, hears_us=True, now_ns=now)
            of_p0.hear(peer, hears_us=True, now_ns=now)
        if interval % cycle == 0:
            if deaf == "p0":
                of_a.receive("p0", heartbeat(interval, of_p0.fresh("a", now)), now + TICK)
            elif deaf == "a":
                of_p0.receive("a", heartbeat(interval, of_a.fresh("p0", now)), now + TICK)
        for fleet, peer in ((of_a, "p0"), (of_p0, "a")):
            if peer not in fleet.connected(now):
                shares_left.setdefault(fleet.name, interval)
                if peer not in fleet.leaving(now):
                    demand_left.setdefault(fleet.name, interval)
    assert set(shares_left) == set(demand_left) == {"a", "p0"}
    assert max(shares_left.values()) + cycle <= min(demand_left.values())


@pytest.mark.parametrize(("peers", "fanout"), [(9, 3), (10, 3), (49, 3), (5, 2), (7, 1)])
def test_each_peer_has_its_turn_once_a_cycle(peers: int, fanout: int) -> None:
    fleet = membership(peers, fanout)
    rng = Random(1)
    cycle = -(-peers // fanout)
    rounds = [fleet.targets(rng) for _ in range(50 * cycle)]
    assert all(len(set(targets)) == fanout for targets in rounds)
    told = Counter(peer for targets in rounds for peer in targets)
    assert max(told.values()) - min(told.values()) <= 1
    last = dict.fromkeys(fleet.peers, -1)
    for number, targets in enumerate(rounds):
        for peer in targets:
            assert number - last[peer] < 2 * cycle
            last[peer] = number
    orders = {tuple(map(tuple, rounds[start : start + cycle])) for start in range(0, 50, cycle)}
    assert len(orders) > 50 // cycle - 2


@pytest.mark.parametrize("fanout", [None, 5, 9])
def test_every_peer_has_its_turn_in_each_round_of_a_mesh(fanout: int | None) -> None:
    fleet = membership(5, fanout)
    assert fleet.targets(Random(1)) == list(fleet.peers)


def test_a_limiter_alone_has_no_targets_and_is_never_steady() -> None:
    fleet = membership(0)
    assert fleet.targets(Random(1)) == []
    assert fleet.connected(0) == frozenset()
    assert not fleet.steady(10**9)


def test_a_heartbeat_says_whether_its_receiver_is_heard() -> None:
    fleet = membership(2)
    fleet.receive("p0", heartbeat(0), 0)
    assert fleet.heartbeat("p0", 0) == heartbeat(0, hears=True)
    assert fleet.heartbeat("p1", 0) == heartbeat(0, hears=False)
    assert fleet.heartbeat("p0", 5 * TICK) == heartbeat(1, hears=False)


def test_a_membership_is_steady_once_its_peers_stay_connected_for_a_while() -> None:
    fleet = membership()
    steady_at = None
    for interval in range(30):
        now = interval * TICK
        fleet.receive("p0", heartbeat(interval), now)
        if steady_at is None and fleet.steady(now):
            steady_at = interval
    assert steady_at == 5
    assert not fleet.steady(30 * TICK + fleet.timeouts.denial_ns)


def test_every_change_is_told_once() -> None:
    fleet = membership()
    changes: list[int] = []
    fleet.on_change = lambda: changes.append(interval)
    for interval in range(80):
        now = interval * TICK
        if interval < 10:
            fleet.receive("p0", heartbeat(interval), now)
        fleet.connected(now)
    # Connected; steady; its share gone, then its demand.
    assert changes == [0, 5, 27, 34]


def test_a_reload_keeps_those_that_stay() -> None:
    fleet = membership(2)
    fleet.receive("p0", heartbeat(0), 0)
    fleet.receive("p1", heartbeat(0), 0)
    fleet.heartbeat("p0", 0)
    changes: list[None] = []
    fleet.on_change = lambda: changes.append(None)
    fleet.set_peers(["p1", "p0"])
    assert changes == []
    fleet.set_peers(["p0", "p7"])
    assert changes == [None]
    assert fleet.connected(TICK) == {"p0"}
    assert fleet.heartbeat("p0", TICK).sequence == 1
    assert [fleet.heartbeats(peer).received for peer in ("p0", "p1", "p7")] == [1, 0, 0]


@pytest.mark.parametrize("fabric", FABRICS)
def test_a_membership_that_forgets_is_new_except_for_its_sequence_numbers(fabric: str) -> None:
    peers = [f"p{number}" for number in range(9)]

    def made() -> Membership:
        return FABRICS[fabric].make_membership("a", peers, 3, TICK)

    fleet, new = made(), made()
    changes: list[None] = []
    fleet.on_change = new.on_change = lambda: changes.append(None)
    for peer in peers:
        fleet.on_session(peer, TICK)
        fleet.hear(peer, True, TICK)
        fleet.heartbeat(peer, TICK)
    fleet.targets(Random(1))
    fleet.declare("p1", gone=True)
    fleet.drained(TICK)
    assert fleet.connected(TICK) or fabric == "tree"
    changes.clear()
    fleet.forget()
    assert changes == [None]

    def state(it: Membership) -> dict[str, str]:
        kept = {k: getattr(getattr(v, "_largest", v), "_steps", v) for k, v in vars(it).items()}
        return {k: repr(v) for k, v in kept.items() if k not in ("_peers", "numbering")}

    assert state(fleet) == state(new)
    assert {fleet.heard_ns(peer) for peer in peers} == {None}
    assert fleet.heartbeat("p0", 2 * TICK).sequence == 1


def test_a_limiter_of_a_tree_does_not_ask_the_dead_to_be_its_parent() -> None:
    peers = [f"p{number}" for number in range(20)]
    made = Tree.make_membership("a", peers, 2, TICK)

    def asked(tree: Membership) -> set[str]:
        found: set[str] = set()
        for tick in range(100):
            tree.connected(tick * TICK)
            found |= set(tree.targets(Random(1)))
        return found

    (best,) = made.targets(Random(1))
    before = asked(made)
    living, *dead = before - {best}
    assert len(dead) > 2
    for peer in dead:
        made.declare(peer, gone=True)
    assert asked(made) == {best, living}
    made.set_peers(peers[:-1])
    made.set_peers(peers)
    assert asked(made) == {best, living}
    for peer in dead:
        made.declare(peer, gone=False)
    assert asked(made) == before


def test_the_connected_peers_cannot_be_changed_after_a_reload_either() -> None:
    """Compiled code refuses a set that can."""
    fleet = hearing()
    assert fleet.connected(0) == {"p0"}
    fleet.set_peers(["p0", "p1"])
    assert type(fleet._connected) is frozenset
