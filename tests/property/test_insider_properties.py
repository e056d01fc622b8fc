"""Whoever has the key says what he likes: a limiter goes on, and enforces what a datapath can."""

import json
import math
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from drld.allocators import ALLOCATORS
from drld.capture.kernel_layout import command
from drld.gossip.fabrics import FABRICS
from drld.gossip.fabrics.mesh_update import MeshUpdate
from drld.gossip.fabrics.pushsum_update import MAX_WEIGHT, PushsumUpdate
from drld.gossip.fabrics.tree_ranks import Role
from drld.gossip.fabrics.tree_update import TreeUpdate
from drld.gossip.wire.update_codec import MAX_VALUE
from drld.limiter import Limiter
from drld.model import HEARTBEAT, Quantity, Update
from drld.node import membership

from ..examples import examples
from ..factories import TICK_NS, flow, gossip_spec, measurement, policy
from ..wire import BY_FABRIC, carried

PEERS = ("b", "c")
_LEAST = 2.0**-149
"""The least positive float32."""
_JUST_BELOW = 62_499
"""Bytes of a tick, just below the limit: line 9 of figure 2 divides by the difference."""

values = st.sampled_from([0.0, 1.0, 1e6, MAX_VALUE, -MAX_VALUE, _LEAST, -_LEAST])
weights = st.sampled_from([0.0, 1.0, 2.0, 0.5, MAX_WEIGHT, _LEAST, 2.0**-126, 2.0**-70])
said = st.tuples(
    *(st.sampled_from(PEERS), st.sampled_from([1, 1, 1, HEARTBEAT])),
    *(values, weights, st.integers(0, 6), st.sampled_from([1, 1, 1, 5])),
)


def _update(
    fabric: str, common: tuple[int, int, Quantity, bool, float], weight: float, epoch: int
) -> Update:
    """A fabric's update with these values: the weight is the rest, the members, or the mass."""
    limit, sequence, quantity, hears, value = common
    if fabric == "pushsum":
        return PushsumUpdate(*common, epoch=epoch, weight=weight if limit else 0.0)
    positive = (limit, sequence, quantity, hears, abs(value))
    if fabric == "tree":
        return TreeUpdate(*positive, role=Role(epoch % 4), members=math.ceil(weight))
    rest = None if weight in (0.0, 1.0) else min(weight * 2.0**70, MAX_VALUE)
    return MeshUpdate(*positive, whole=epoch == 1, rest=rest)


@pytest.mark.parametrize("fabric", FABRICS)
@pytest.mark.parametrize("allocator", ALLOCATORS)
@settings(max_examples=examples(15))
@given(
    rounds=st.lists(st.lists(said, max_size=6), min_size=1, max_size=8),
    arrived=st.lists(st.sampled_from([0, 1500, 10**6, 10**9]), min_size=1, max_size=8),
)
@example(rounds=[[("b", 1, 1.0, MAX_WEIGHT, 0, 1)]], arrived=[0])
@example(rounds=[[("b", 1, MAX_VALUE, 2.0**-126, 0, 1)] * 6] * 8, arrived=[0])
@example(rounds=[[("b", 1, MAX_VALUE, 1.0, 0, 1)]], arrived=[0] * 7 + [_JUST_BELOW])
def test_a_lying_peer_breaks_no_invariant(
    allocator: str,
    fabric: str,
    rounds: list[list[tuple[str, int, float, float, int, int]]],
    arrived: list[int],
) -> None:
    """He says each for long enough to be counted."""
    fleet = membership("a", ("a", *PEERS), gossip_spec(fabric))
    limiter = Limiter(policy(allocator), fleet, fabric)
    rng = Random(1)
    sequences = dict.fromkeys([(peer, limit) for peer in PEERS for limit in (1, HEARTBEAT)], 0)
    for number in range(10 * len(rounds)):
        now_ns = (number + 1) * TICK_NS
        for peer, limit, value, weight, epoch, step in rounds[number // 10]:
            sequences[peer, limit] += step
            quantity = limiter.fabric.quantity if limit else Quantity.RATE
            common = (limit, sequences[peer, limit], quantity, weight > 0, value if limit else 0.0)
            update = carried(_update(fabric, common, weight, epoch))
            (limiter.receive if limit else fleet.receive)(peer, update, now_ns)
        fleet.drained(now_ns)
        size = arrived[number % len(arrived)]
        tick = limiter.tick(measurement(size, flows={flow(1): size} if size else {}), now_ns)
        assert command(0, tick.enforcement, now_ns)
        shown = (tick.view.remote, tick.allocation.value, tick.enforcement.drop_probability)
        assert json.dumps(shown, allow_nan=False)
        targets = fleet.targets(rng)
        told = [update for _, update in limiter.publish(targets, now_ns)]
        told += [fleet.heartbeat(peer, now_ns) for peer in targets]
        assert all(BY_FABRIC[fabric].encode([update], 0) for update in told)
