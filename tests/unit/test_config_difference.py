"""What the engine and the log say of a peer with other limits."""

from __future__ import annotations

from dataclasses import replace

from drld.config_difference import differences
from drld.gossip.health.config_digest import ALL, ConfigDigest
from drld.shared_settings import shared_settings
from drld.spec import ProbeSpec

from ..engine_fakes import FIRST, Bench
from ..factories import TICK_NS
from ..factories import limiter_spec as spec


def test_limits_that_either_limiter_lacks_are_marked() -> None:
    second = replace(FIRST, policy=replace(FIRST.policy, id=2, name="second"))
    bench = Bench(spec(FIRST, second, peers=("b", "c"), probes=ProbeSpec()))
    settings = shared_settings(
        [replace(FIRST.policy, rate=1), replace(FIRST.policy, id=7)], bench.engine.spec.gossip
    )
    other = ConfigDigest(settings, TICK_NS)
    probes = bench.engine.node.probes
    assert probes is not None
    probes.config_digest.compare("b", ALL, other.digest(ALL))
    while (question := probes.config_digest.question(0)) is not None:
        peer, selector = question
        probes.config_digest.compare(peer, selector, other.digest(selector))
    found = bench.engine.disagreements()
    assert sorted(found["b"]) == sorted(["first", "second (not there)", "7 (not here)"])
    assert differences(found["b"]) == (
        "limits that differ: first; limits missing there: second; limits missing here: id 7"
    )
