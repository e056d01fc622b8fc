"""The conservative rule (docs/conservative-rule.md): the sum of the local limits in force.

Over fleets to which limiters die and return, freeze, are cut off, one way or both, flap, and come
together again, while updates are lost. `python -m tests.sim.conservative` has more of the same.
"""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drld.model import NS_PER_S
from testbed.sim.network import MS

from ..factories import TICK_NS
from ..fleets.events import (
    CUTS,
    Event,
    carry_out,
    events,
    flows,
    join,
    leave,
    parted,
    random_cut,
    slow,
)
from ..fleets.fabrics import fabric as bare_fabric
from ..fleets.limiters import FluidFleet
from .conservative import MOST, excess, excess_of_cuts

FABRICS = ["mesh", "pushsum", "tree"]
SAFE = ["mesh", "tree"]
"""Fabrics that loss cannot bias, and whose order is safe at every moment."""


@pytest.mark.parametrize("fabric", SAFE)
@given(flows=flows, events=events, loss=st.sampled_from([0.0, 0.2, 0.4]), seed=st.integers(0, 99))
@slow
def test_fps_keeps_to_the_limit(
    fabric: str, flows: list[int], events: list[Event], loss: float, seed: int
) -> None:
    assert excess(FluidFleet(fabric, flows, seed=seed, loss=loss), events, watched=30) <= MOST


@pytest.mark.parametrize("allocator", ["static", "fps-random-drop"])
@pytest.mark.parametrize("fabric", FABRICS)
@given(flows=flows, events=events, seed=st.integers(0, 99))
@settings(slow, max_examples=2)
def test_other_allocators_keep_to_the_limit(
    fabric: str, allocator: str, flows: list[int], events: list[Event], seed: int
) -> None:
    assert (
        excess(FluidFleet(fabric, flows, seed=seed, allocator=allocator), events, watched=30)
        <= MOST
    )


@pytest.mark.parametrize("fabric", FABRICS)
@given(flows=flows, events=events, seed=st.integers(0, 99), intervals=st.sampled_from([4, 10]))
@settings(slow, max_examples=3)
def test_limits_with_longer_intervals_keep_to_the_limit(
    fabric: str, flows: list[int], events: list[Event], seed: int, intervals: int
) -> None:
    """The limit's interval is longer than a gossip round."""
    made = FluidFleet(fabric, flows, seed=seed, interval_ns=intervals * TICK_NS)
    assert excess(made, events, watched=30) <= MOST


@pytest.mark.parametrize(("fabric", "size"), [("mesh", 20), ("pushsum", 20), ("tree", 50)])
def test_large_fleets_keep_to_the_limit(fabric: str, size: int) -> None:
    """A part of a third, in which five die; then the rest of it returns.

    Then all is used but the shares of the five.
    """
    flows = [(1, 0, 5, 2)[number % 4] for number in range(size)]
    made = FluidFleet(fabric, flows, seed=1, loss=0.0 if fabric == "pushsum" else 0.05)
    made.run(60)
    made.cut(parted(made.names, set(made.names[::3])))
    made.run(10)
    for name in made.names[:15:3]:
        made.nodes[name].kill()
    made.run(made.detection_intervals)
    made.watch()
    made.run(10)
    assert made.most <= MOST
    made.cut(())
    made.run(made.detection_intervals)
    made.watch()
    made.run(10)
    assert 1 - 5 / size - 0.01 <= made.least <= made.most <= MOST


SHARES = {"l0": 0.5, "l1": 0.3, "l2": 0.2}


CHAINS = itertools.product(FABRICS, [[1, 0, 1], [1, 1, 1], [1, 30, 1], [30, 1, 1]], range(3))


# Each chain on each fabric, and every part of it with equal shares and with others.
@pytest.mark.parametrize(
    ("fabric", "wanted", "middle", "shares"),
    [(*chain, shares) for chain, shares in zip(CHAINS, itertools.cycle([{}, SHARES]))],
)
def test_a_chain_keeps_to_the_limit_and_uses_it(
    fabric: str, wanted: list[int], middle: int, shares: dict[str, float]
) -> None:
    """Two that are cut off from each other, and a third that hears both: no more, and no less.

    A tree does not know whose shares are missing, and leaves some unused. With unequal shares a
    pushsum has the bound of the paper's rule: what two that do not hear each other have in force.
    """
    made = FluidFleet(fabric, wanted, seed=1, shares=shares)
    made.run(80)
    one, other = (name for number, name in enumerate(made.names) if number != middle)
    made.cut({(one, other), (other, one)})
    made.run(made.detection_intervals)
    made.watch()
    made.run(20)
    paper = 1 + shares[f"l{middle}"] if shares else 1
    assert made.most <= (paper if fabric == "pushsum" else 1) * MOST
    if fabric == "mesh":
        assert made.least > 0.999


@pytest.mark.parametrize("fabric", SAFE)
@given(
    flows=flows,
    cut=st.builds(
        Event,
        after=st.just(0),
        what=st.sampled_from(CUTS),
        who=st.integers(0, 11),
        whom=st.integers(0, 4095),
    ),
    intervals=st.sampled_from([1, 1, 4, 10]),
    reloads=st.lists(st.integers(0, 4095), max_size=10),
)
@settings(slow, max_examples=10)
def test_a_cut_and_its_end_never_exceed_the_limit(
    fabric: str, *, flows: list[int], cut: Event, intervals: int, reloads: list[int]
) -> None:
    """The sum holds at every moment: a limiter shrinks before others stop counting it.

    This holds for limits with the gossip's interval and longer ones, and during reloads. No update
    is lost: a lost one delays the news of a weight, and weights change at a cut.
    """
    made = FluidFleet(fabric, flows, seed=cut.who, interval_ns=intervals * TICK_NS)
    assert excess_of_cuts(made, cut, reloads=reloads) <= MOST


@pytest.mark.parametrize(
    ("delay_ms", "seed"),
    [(10, seed) for seed in (303, 353, 470, 672, 861, 867, 881)]
    + [(50, seed) for seed in (14, 19, 113, 185)],
)
def test_cuts_that_once_broke_the_rule_in_a_tree_keep_it(delay_ms: int, seed: int) -> None:
    """Orphans once subtracted a sum for longer than their lost parents were remembered."""
    assert excess_of_cuts(*random_cut("tree", seed, delay_ms * MS)) <= MOST


@pytest.mark.parametrize("fabric", SAFE)
@given(
    flows=st.lists(st.sampled_from([0, 1, 2, 5, 30]), min_size=2, max_size=9),
    who=st.integers(0, 8),
    after=st.sampled_from([0, 1, 3, 10, 20, 40, 90]),
    between=st.sampled_from([0, 1, 3, 10]),
)
@settings(slow, max_examples=6)
def test_leaving_and_joining_never_make_the_sum_exceed_the_limit(
    fabric: str, flows: list[int], who: int, after: int, between: int
) -> None:
    """Whenever the others reload; and when it is over all of the limit is in use."""
    made = FluidFleet(fabric, flows, seed=who)
    made.run(80)
    made.watch()
    name = made.names[who % len(flows)]
    leave(made, name, after, between)
    made.run(made.detection_intervals + 5)
    assert made.most <= MOST
    made.watch()
    made.run(5)
    wanted = any(made.nodes[other].flows for other in made.members)
    assert made.least > 0.999 or not wanted
    join(made, name, between)
    made.run(made.detection_intervals + 5)
    assert made.most <= MOST
    made.watch()
    made.run(5)
    assert made.least > 0.999 or not any(flows)


def test_a_schedule_may_have_a_limiter_join_a_fleet_without_a_free_place() -> None:
    made = FluidFleet("mesh", [1, 1, 2], seed=1)
    for what in ("leave", "join", "join"):
        carry_out(made, Event(0, what, 0, 0))
    assert sorted(made.members) == made.names


@pytest.mark.parametrize("fabric", SAFE)
@pytest.mark.parametrize("what", ["kill", "freeze", "start"])
@given(flows=flows, who=st.integers(0, 11), frozen=st.integers(0, 39))
@settings(slow, max_examples=2)
def test_a_limiter_whose_daemon_fails_has_shrunk_before_others_take_its_part(
    what: str, fabric: str, flows: list[int], who: int, frozen: int
) -> None:
    """No limiter gets more than before until the dead daemon's datapath has fallen back.

    That may enforce more than it did, its static share, before the others have given that up: so
    much, and not more, the sum may be too large meanwhile.
    """
    made = FluidFleet(fabric, flows, seed=who)
    made.run(80)
    made.watch()
    node = made.nodes[made.names[who % len(flows)]]
    others = [name for name in made.names if name != node.name]
    before = {name: made.passes(name) for name in others}
    share = 1 / len(flows)
    before_taken: list[float] = []

    def look() -> None:
        if any(made.passes(name) > before[name] + 1e-5 for name in others):
            before_taken.append(made.passes(node.name))

    made.look = look
    carry_out(made, Event(0, what, who, frozen))
    made.run(made.detection_intervals)
    made.look = None
    assert all(passes <= share + 1e-5 for passes in before_taken)
    assert made.most <= MOST + share
    if what != "kill":
        made.run(40)
        made.watch()
        made.run(5)
        assert made.least > 0.999 or not any(flows)


@pytest.mark.parametrize("fabric", SAFE)
@pytest.mark.parametrize("size", [2, 5, 9])
def test_a_daemon_that_continues_takes_no_more_than_its_share(fabric: str, size: int) -> None:
    """The pauses are shorter and longer than the times after which demands are forgotten."""
    counted = FluidFleet(fabric, [1] * size, seed=1).detection_intervals
    for frozen in (counted // 2, counted * 3 // 4, counted, 2 * counted):
        made = FluidFleet(fabric, [4] * size, seed=frozen)
        made.run(80)
        made.watch()
        made.nodes["l0"].freeze(frozen * TICK_NS)
        made.run(frozen + made.detection_intervals)
        assert made.most <= MOST


@pytest.mark.parametrize("fabric", SAFE)
@given(
    flows=flows,
    lost=st.sets(st.integers(0, 11), min_size=1, max_size=5),
    sooner=st.integers(0, 25),
    ways=st.sampled_from([("to",), ("from",), ("to", "from")]),
)
@settings(slow, max_examples=6)
def test_limiters_that_die_cut_off_before_they_shrink_keep_to_the_limit(
    fabric: str, flows: list[int], lost: set[int], sooner: int, ways: tuple[str, ...]
) -> None:
    """The others take what it had before its datapath has fallen back.

    They keep to the limit among themselves, so the sum is too large by what the dead had, or by
    their static shares, at the most.
    """
    made = FluidFleet(fabric, flows, seed=sooner)
    made.run(120)
    dead = {made.names[number % len(flows)] for number in lost}
    others = set(made.names) - dead
    bound = 1 + sum(max(made.passes(name), 1 / len(flows)) for name in dead)
    made.watch()
    out = {(name, other) for name in dead for other in others} if "from" in ways else set()
    back = {(other, name) for name in dead for other in others} if "to" in ways else set()
    made.cut(out | back)
    made.run(sooner)
    for name in dead:
        made.nodes[name].kill()
    made.run(made.detection_intervals)
    assert made.most <= bound + 1e-5
    made.watch()
    made.run(30)
    assert made.most <= MOST


# Each fabric with each size and each time, and each size with each time.
@pytest.mark.parametrize(
    ("fabric", "size", "apart"),
    [
        *(("mesh", 2, 10), ("mesh", 5, 30), ("mesh", 10, 120)),
        *(("pushsum", 2, 120), ("pushsum", 5, 10), ("pushsum", 10, 30)),
        *(("tree", 2, 30), ("tree", 5, 120), ("tree", 10, 10)),
    ],
)
def test_after_healing_the_limit_is_used_again(fabric: str, size: int, apart: int) -> None:
    """The time apart does not matter, with demand at all limiters."""
    made = FluidFleet(fabric, [1, 9, 2, 2, 1, 1, 5, 1, 1, 3][:size], seed=size)
    made.run(80)
    made.cut(parted(made.names, set(made.names[: size // 2])))
    made.run(apart)
    made.cut(())
    made.run(made.detection_intervals)
    made.watch()
    made.run(40)
    assert 0.95 <= made.least <= made.most <= MOST


@pytest.mark.parametrize("fabric", FABRICS)
@pytest.mark.parametrize("away", [0, 15, 120])
def test_a_restarted_limiter_is_counted_once(fabric: str, away: int) -> None:
    """It was away for a long or short time, or restarted at once; it rejoins at its share.

    Later than a detection time after it returned the others believe in what all want together, it
    included; and it gets no more than its share before it is heard.
    """
    flows = [3, 5, 1, 2, 4, 2]
    # In a tree limiters differ by their place.
    for restarted in (0, 1, 4) if fabric == "tree" else (1,):
        made = FluidFleet(fabric, flows, seed=restarted)
        made.run(80)
        node = made.nodes[f"l{restarted}"]
        if away:
            node.kill()
            made.run(away)
        node.begin(made.now_ns)
        assert made.passes(node.name) == pytest.approx(1 / len(flows), rel=1e-4)
        others = [name for name in made.names if name != node.name]
        made.run(made.detection_intervals)
        believed = []
        for _ in range(20):
            made.run(1)
            believed += [made.believed(name) / sum(flows) for name in others]
        assert 0.99 < min(believed) <= max(believed) < 1.01
        assert made.passes(node.name) == pytest.approx(flows[restarted] / sum(flows), rel=0.01)


@pytest.mark.parametrize("fabric", SAFE)
def test_an_immediate_restart_costs_little_use(fabric: str) -> None:
    """The peers do not notice the restart, and believe nearly the same total all the time."""
    flows = [3, 5, 1, 2, 4, 2]
    for restarted in range(len(flows)) if fabric == "tree" else (1,):
        made = FluidFleet(fabric, flows, seed=restarted)
        made.run(80)
        node = made.nodes[f"l{restarted}"]
        node.begin(made.now_ns)
        others = [name for name in made.names if name != node.name]
        for _ in range(60):
            made.run(1)
            for name in others:
                assert 0.8 < made.believed(name) / sum(flows) < 1.2


def detection_ns(kind: str, size: int) -> int:
    return bare_fabric(kind, "l0", [f"l{number}" for number in range(size)]).detection_ns


def test_detection_times_are_those_of_the_documents() -> None:
    """The detection times of docs/conservative-rule.md, at 50 ms."""
    documented = {
        "mesh": {2: 1.45, 10: 1.45, 50: 1.45, 200: 1.45},
        "tree": {2: 2.1, 10: 2.5, 50: 2.9, 200: 3.3},
        "pushsum": {2: 2.2, 10: 6.65, 50: 39.3},
    }
    for kind, times in documented.items():
        for size, seconds in times.items():
            assert detection_ns(kind, size) / NS_PER_S == pytest.approx(seconds), (kind, size)


def test_the_detection_time_grows_with_the_fleet_and_no_faster_than_its_logarithm() -> None:
    """The detection time of a tree."""
    times = [detection_ns("tree", size) for size in (2, 4, 8, 16, 32, 64)]
    assert {later - sooner for sooner, later in itertools.pairwise(times)} == {4 * TICK_NS}
