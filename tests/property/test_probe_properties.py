"""Probes under whatever happens: what merging rumours keeps to, and that the dead have shrunk."""

from __future__ import annotations

from functools import reduce
from operator import xor

from hypothesis import example, given, settings
from hypothesis import strategies as st

from drld.gossip.health.broadcast_queue import merged
from drld.gossip.health.config_digest import (
    ALL,
    GOSSIP_ID,
    ID_BITS,
    SELECTOR_BITS,
    ConfigDigest,
    Selector,
)
from drld.gossip.health.probe_times import ProbeTimes
from drld.gossip.wire.control_codec import Rumour, State
from drld.model import NS_PER_S
from drld.shared_settings import shared_settings
from drld.spec import ProbeSpec
from testbed.sim.network import MS, Conditions
from testbed.sim.probe_fleet import ProbeFleet

from ..examples import examples
from ..factories import gossip_spec, policy


@st.composite
def rumours(draw: st.DrawFn) -> Rumour:
    state = draw(st.sampled_from(State))
    accusers = draw(st.integers(0, 63)) if state is State.SUSPECT else 0
    return Rumour(1, 2, draw(st.integers(0, 3)), state, accusers)


@given(st.lists(rumours(), min_size=1, max_size=6), st.randoms())
def test_rumours_may_come_in_any_order_and_again(heard: list[Rumour], rng: object) -> None:
    again = [*heard, *heard]
    rng.shuffle(again)  # type: ignore[attr-defined]  # random.Random, as Hypothesis types it
    assert reduce(merged, again) == reduce(merged, heard)


@given(rumours())
def test_a_higher_counter_refutes_all_but_a_farewell(said: Rumour) -> None:
    refuted = Rumour(said.subject, said.life, said.counter + 1, State.ALIVE)
    assert (merged(said, refuted) is refuted) == (said.state is not State.LEFT)


@given(
    st.integers(2, 10_000),
    st.integers(10, 2_000),
    st.integers(10, 10_000),
    st.floats(0.5, 20),
    st.integers(2, 20),
)
def test_the_times_have_the_order_that_the_proof_needs(
    members: int, tick_ms: int, interval_ms: int, suspicion: float, isolation: int
) -> None:
    spec = ProbeSpec(suspicion=suspicion, isolation=isolation)
    times = ProbeTimes.of(spec, members, tick_ms * MS, interval_ms * MS)
    fallback_ns = 20 * max(tick_ms, interval_ms) * MS
    assert times.suspicion_min_ns >= times.isolation_ns + fallback_ns + suspicion * times.period_ns
    lasting = [times.suspicion_ns(count) for count in range(8)]
    assert lasting == sorted(lasting, reverse=True)
    assert lasting[-1] == times.suspicion_min_ns
    assert lasting[0] <= times.suspicion_max_ns
    assert times.period_ns >= 2 * times.timeout_ns >= 8 * tick_ms * MS


@settings(max_examples=examples(25), deadline=None)
@example(4, 1, 0.0, 0.0, [("cut", 7.0), ("cut", 1.0)])
@example(5, 7, 0.2, 0.2, [("cut", 15.0), ("deaf", 2.0), ("deaf", 0.3125), ("cut", 1.0)])
@example(6, 213875, 0.0, 0.02, [("heal", 0.3), ("deaf", 2.7), ("deaf", 13.36), ("mute", 2.2)])
@example(4, 579520, 0.0, 0.02, [("cut", 3.9), ("mute", 5.5), ("deaf", 13.22), ("mute", 3.9)])
@given(
    st.integers(3, 6),
    st.integers(0, 2**20),
    st.sampled_from([0.0, 0.2, 0.4]),
    st.sampled_from([0.0, 0.02, 0.2]),
    st.lists(
        st.tuples(
            st.sampled_from(["cut", "deaf", "mute", "freeze", "kill", "restart", "heal"]),
            st.floats(0.1, 15),
        ),
        min_size=1,
        max_size=5,
    ),
)
def test_a_limiter_that_is_declared_dead_has_shrunk(
    size: int, seed: int, loss: float, late: float, events: list[tuple[str, float]]
) -> None:
    """One limiter after the other is cut off from all, one way or both, frozen or killed."""
    fleet = ProbeFleet(size, seed, Conditions(loss=loss, jitter_ns=100 * MS))
    fleet.late = {"l0": late, "l1": late}
    fleet.run(6)
    for kind, seconds in events:
        victim = fleet.rng.choice(fleet.names)
        others = [name for name in fleet.names if name != victim]
        if kind in ("cut", "deaf", "mute"):
            fleet.network.heal()
        if kind in ("cut", "mute"):
            fleet.network.cut |= {(victim, name) for name in others}
        if kind in ("cut", "deaf"):
            fleet.network.cut |= {(name, victim) for name in others}
        if kind == "heal":
            fleet.network.heal()
        elif kind == "freeze":
            fleet.freeze(victim, seconds)
        elif kind == "kill":
            fleet.kill(victim)
        elif kind == "restart":
            fleet.kill(victim)
            fleet.start(victim)
        fleet.run(seconds)
    fleet.run(20)
    assert fleet.early == []


@given(
    st.sets(st.integers(1, 255) | st.integers(1, 65535), max_size=12),
    st.integers(0, 31),
    st.integers(0, 255) | st.integers(0, 65535),
)
def test_a_digest_covers_the_limits_with_these_last_bits(
    ids: set[int], bits: int, ending: int
) -> None:
    def config_digest(*ids: int) -> ConfigDigest:
        return ConfigDigest(dict.fromkeys((GOSSIP_ID, *ids), b"limit"), 0)

    none = config_digest().digest(ALL)
    alone = {id_: config_digest(id_).digest(ALL) ^ none for id_ in ids} | {GOSSIP_ID: none}
    selected = [alone[id_] for id_ in alone if id_ & ((1 << bits) - 1) == ending]
    digest = config_digest(*ids).digest(Selector.of(bits << ID_BITS | ending))
    assert digest == reduce(xor, selected, 0)


@settings(deadline=None)
@given(
    st.lists(st.sets(st.integers(1, 65535), max_size=6), min_size=3, max_size=3),
    st.integers(1, 40),
)
def test_every_named_limit_existed(sets: list[set[int]], changed_at: int) -> None:
    """The peer's limits change while it is asked for them."""
    here, before, after = (
        ConfigDigest(dict.fromkeys(sorted(ids), b"limit"), NS_PER_S) for ids in sets
    )
    here.compare("b", Selector(), before.digest(Selector()))
    for number in range(200):
        question = here.question(0)
        if question is None:
            break
        peer, selector = question
        told = after if number >= changed_at else before
        here.compare(peer, selector, told.digest(selector))
    assert here.question(0) is None
    assert set(here.disagreements().get("b", ())) <= set().union(*sets)


@settings(deadline=None)
@given(
    st.dictionaries(st.integers(1, 65535), st.sampled_from([1000, 2000]), max_size=12),
    st.dictionaries(st.integers(1, 65535), st.just(3000), max_size=3),
    st.sets(st.integers(1, 65535), max_size=1),
    st.sampled_from(["mesh", "tree"]),
)
def test_limits_that_differ_are_found(
    common: dict[int, int], changed: dict[int, int], missing: set[int], fabric: str
) -> None:
    theirs = {id_: rate for id_, rate in (common | changed).items() if id_ not in missing}
    mine = common
    differing = {id_ for id_ in mine.keys() | theirs.keys() if mine.get(id_) != theirs.get(id_)}
    if fabric == "tree":
        differing.add(GOSSIP_ID)
    here, there = (
        ConfigDigest(
            shared_settings([policy(id=id_, rate=rate) for id_, rate in limits.items()], gossip),
            NS_PER_S,
        )
        for limits, gossip in ((mine, gossip_spec("mesh")), (theirs, gossip_spec(fabric)))
    )
    here.compare("b", Selector(), there.digest(Selector()))
    for _ in range((ID_BITS + 1) * len(differing)):
        question = here.question(0)
        if question is None:
            break
        peer, selector = question
        assert selector == Selector.of(selector.pack() | 5 << SELECTOR_BITS)
        here.compare(peer, selector, there.digest(selector))
    found = here.disagreements()
    there_too = {id_: id_ in theirs or id_ == GOSSIP_ID for id_ in differing}
    assert found == ({"b": there_too} if differing else {})
