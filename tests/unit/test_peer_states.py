"""The table of verdicts: lives, refutations, suspicions that expire, rumours that are passed on."""

from dataclasses import replace

import pytest

from drld.gossip.health.broadcast_queue import BroadcastQueue, accuser, subject
from drld.gossip.health.peer_states import PeerStates
from drld.gossip.health.probe_times import ProbeTimes
from drld.gossip.wire.control_codec import Rumour, State
from drld.model import NS_PER_S
from drld.spec import ProbeSpec

TIMES = ProbeTimes.of(ProbeSpec(), 10, NS_PER_S // 20, NS_PER_S // 20)
PEERS = [f"p{number}" for number in range(9)]
B = subject("p1")
ALIVE = Rumour(B, 7, 0, State.ALIVE)
SUSPECT = replace(ALIVE, state=State.SUSPECT, accusers=1)
DEAD = replace(ALIVE, state=State.DEAD)
LEFT = replace(ALIVE, state=State.LEFT)


def table(*heard: Rumour) -> PeerStates:
    made = PeerStates(PEERS, TIMES)
    for rumour in heard:
        made.take(rumour, 0)
    return made


REFUTED = replace(ALIVE, counter=1)
REBORN = replace(ALIVE, life=8)


@pytest.mark.parametrize(
    ("heard", "known"),
    [
        pytest.param([ALIVE, DEAD, ALIVE], DEAD, id="the same counter refutes nothing"),
        pytest.param([ALIVE, DEAD, REFUTED], REFUTED, id="a higher counter refutes"),
        pytest.param([ALIVE, DEAD, REFUTED, DEAD], REFUTED, id="what is refuted stays so"),
        pytest.param([LEFT, replace(ALIVE, counter=9)], LEFT, id="a farewell is not refuted"),
        pytest.param([LEFT, REBORN], REBORN, id="another life comes after a farewell"),
        *(
            pytest.param([ALIVE, replace(REBORN, state=state)], ALIVE, id=f"hearsay: {state.name}")
            for state in State
        ),
    ],
)
def test_rumours_replace_what_they_are_newer_than(heard: list[Rumour], known: Rumour) -> None:
    """Hearsay of another life does not replace one that is alive."""
    assert table(*heard).known("p1") == known


def test_at_first_nothing_is_known() -> None:
    made = table()
    assert made.state("p1") is None
    assert made.accuse("p1", 1, 0) is None
    assert made.state("p1") is None


def test_news_is_passed_on_once() -> None:
    made = table()
    assert made.take(SUSPECT, 0) == SUSPECT
    assert made.take(SUSPECT, 0) is None
    both = replace(SUSPECT, accusers=3)
    assert made.take(replace(SUSPECT, accusers=2), 0) == both
    assert made.known("p1") == both


@pytest.mark.parametrize(
    ("known", "said", "told"),
    [(DEAD, ALIVE, DEAD), (DEAD, SUSPECT, DEAD), (DEAD, DEAD, None), (LEFT, REBORN, REBORN)],
)
def test_the_sender_of_an_outdated_rumour_gets_the_newer_one(
    known: Rumour, said: Rumour, told: Rumour | None
) -> None:
    assert table(known).take(said, 0) == told


def test_states_of_strangers_are_not_kept() -> None:
    made = table()
    assert made.take(replace(DEAD, subject=subject("stranger")), 0) is None
    assert made.changed == set()


@pytest.mark.parametrize("state", [State.SUSPECT, State.DEAD, State.LEFT])
def test_a_rumour_about_an_old_life_does_not_concern_the_new_one(state: State) -> None:
    made = table()
    made.meet("p1", 7, 0)
    made.meet("p1", 8, 0)
    made.take(replace(ALIVE, counter=5, state=state), 0)
    assert made.known("p1") == replace(ALIVE, life=8)


def test_a_restarted_limiter_is_not_declared_dead_for_its_last_life() -> None:
    made = table(SUSPECT, replace(ALIVE, life=8))
    assert list(made.expire(TIMES.suspicion_max_ns)) == []
    assert made.state("p1") is State.ALIVE


def test_a_message_comes_from_the_life_that_was_met() -> None:
    made = table()
    made.meet("p1", 7, 0)
    made.take(DEAD, 0)
    made.take(replace(ALIVE, life=6), 0)
    made.hear("p1", 1)
    assert made.known("p1") == ALIVE


def test_a_handshake_with_another_life_is_news_and_the_first_is_not() -> None:
    made = table()
    assert made.meet("p1", 7, 0) is None
    assert made.meet("p1", 8, 0) == replace(ALIVE, life=8)
    assert made.meet("p1", 8, 0) is None


@pytest.mark.parametrize(
    ("accusers", "lasting_ns"),
    [
        (0b000001, TIMES.suspicion_max_ns),
        (0b000011, TIMES.suspicion_ns(1)),
        (0b010011, TIMES.suspicion_ns(2)),
        (0b011011, TIMES.suspicion_min_ns),
        (0b111111, TIMES.suspicion_min_ns),
    ],
)
def test_a_suspicion_lasts_the_shorter_the_more_confirm_it(accusers: int, lasting_ns: int) -> None:
    made = table(replace(SUSPECT, accusers=accusers))
    assert list(made.expire(lasting_ns - 1)) == []
    assert list(made.expire(lasting_ns)) == [DEAD]
    assert made.state("p1") is State.DEAD
    assert list(made.expire(lasting_ns)) == []


def test_a_new_suspicion_after_a_refutation_lasts_from_its_own_beginning() -> None:
    made = table(replace(SUSPECT, accusers=63))
    later = TIMES.suspicion_min_ns - 1
    made.take(replace(SUSPECT, counter=1, accusers=63), later)
    assert list(made.expire(later + TIMES.suspicion_min_ns - 1)) == []
    assert len(list(made.expire(later + TIMES.suspicion_min_ns))) == 1


def test_postponed_time_does_not_count() -> None:
    made = table(replace(SUSPECT, accusers=63))
    made.postpone(NS_PER_S)
    assert list(made.expire(TIMES.suspicion_min_ns + NS_PER_S - 1)) == []
    assert len(list(made.expire(TIMES.suspicion_min_ns + NS_PER_S))) == 1


def test_a_peer_heard_a_moment_ago_is_not_declared_dead() -> None:
    made = table(replace(SUSPECT, accusers=63))
    heard = TIMES.suspicion_min_ns - 1
    made.hear("p1", heard)
    assert list(made.expire(TIMES.suspicion_min_ns)) == []
    assert len(list(made.expire(heard + TIMES.isolation_ns))) == 1


def test_after_a_reload_suspicions_go_on() -> None:
    made = table(replace(SUSPECT, accusers=63))
    made.set_peers(PEERS[:3], TIMES)
    assert made.changed == {*PEERS[:3]}
    assert list(made.expire(TIMES.suspicion_min_ns)) == [DEAD]


def test_a_rumour_is_sent_a_fixed_number_of_times() -> None:
    told = BroadcastQueue(3)
    told.add(DEAD)
    assert [told.take(12) for _ in range(4)] == [[DEAD], [DEAD], [DEAD], []]


def test_the_newest_rumour_goes_first_and_excluded_ones_do_not_go() -> None:
    told = BroadcastQueue(2)
    first, second, third = (replace(DEAD, subject=number) for number in (1, 2, 3))
    for rumour in (first, second, third):
        told.add(rumour)
    assert told.take(2) == [third, second]
    assert told.take(2, without=frozenset({1})) == [third, second]
    assert told.take(2) == [first]


def test_a_newer_rumour_takes_the_place_of_an_older_one() -> None:
    told = BroadcastQueue(2)
    told.add(SUSPECT)
    told.take(1)
    told.add(DEAD)
    assert [told.take(12) for _ in range(3)] == [[DEAD], [DEAD], []]


def test_accusers_of_a_small_fleet_have_a_bit_each() -> None:
    names = ["a", "b", "c", "d", "e", "f"]
    bits = {accuser(name, [peer for peer in names if peer != name]) for name in names}
    assert bits == {1, 2, 4, 8, 16, 32}
