"""A field that a developer adds to an object of a running limiter survives a reload by itself."""

from __future__ import annotations

from dataclasses import dataclass, fields, make_dataclass, replace
from typing import Any

import pytest

from drld.errors import DatapathError
from drld.gossip.fabrics import FABRICS
from drld.gossip.fabrics.sliding_min import SlidingMin
from drld.managed_limit import ManagedLimit
from drld.registry.model.merge import merge
from drld.spec import LimiterSpec, ProbeSpec

from ..engine_fakes import FIRST, SLOW, Bench
from ..factories import TICK_NS, gossip_spec, limit_spec
from ..factories import limiter_spec as spec
from ..registry_factories import known


def running(fabric: str = "mesh") -> Bench:
    return Bench(configured(fabric))


def configured(fabric: str, *peers: str, rate: int = 1) -> LimiterSpec:
    first = limit_spec(id=1, name="first", rate=rate * FIRST.policy.rate)
    probes = ProbeSpec()
    return spec(first, SLOW, peers=("b", *peers), gossip=gossip_spec(fabric), probes=probes)


def objects(bench: Bench) -> dict[str, object]:
    """The objects that live as long as the daemon, or as a limit."""
    engine = bench.engine
    assert engine.node.probes is not None
    limiter = engine.limits[1].limiter
    return {
        "engine": engine,
        "node": engine.node,
        "membership": engine.membership,
        "numbering": engine.membership.numbering,
        "probes": engine.node.probes,
        "states of peers": engine.node.probes.peer_states,
        "broadcasts": engine.node.probes._broadcasts,
        "limiter": limiter,
        "demand": limiter._demand,
        "allocator": limiter._allocator,
        "fabric": limiter.fabric,
    }


@pytest.mark.parametrize("fabric", FABRICS)
def test_a_new_field_survives_a_reload(fabric: str) -> None:
    bench = running(fabric)
    before = objects(bench)
    for name, owner in before.items():
        owner.__dict__["new_field"] = f"of {name}"
    bench.engine.reconfigure(configured(fabric, "c", rate=2), TICK_NS)
    after = objects(bench)
    assert bench.engine.membership.peers == ("b", "c")
    assert {name: owner.__dict__["new_field"] for name, owner in after.items()} == {
        name: f"of {name}" for name in before
    }
    assert {name: type(owner) for name, owner in after.items()} == {
        name: type(owner) for name, owner in before.items()
    }


@pytest.mark.parametrize("fabric", FABRICS)
def test_a_new_field_survives_that_a_departed_peer_is_forgotten(fabric: str) -> None:
    bench = Bench(configured(fabric, "c"))
    bench.engine.membership.__dict__["new_field"] = "kept"
    bench.engine.reconfigure(configured(fabric), TICK_NS)
    assert list(bench.engine.membership.peers) == ["b", "c"]
    bench.engine.tick(TICK_NS + bench.engine.membership.forgotten_ns + 2 * TICK_NS)
    assert list(bench.engine.membership.peers) == ["b"]
    assert bench.engine.membership.__dict__["new_field"] == "kept"


@pytest.mark.parametrize("fabric", FABRICS)
def test_a_refused_reload_leaves_the_membership_as_it_was(fabric: str) -> None:
    """The one that would have taken its place shares its state."""
    bench = Bench(configured(fabric, "c", "d"))
    bench.run(1, 50)
    before = bench.engine.membership
    state = {name: repr(value) for name, value in vars(before).items()}
    bench.datapath.refuse = True
    with pytest.raises(DatapathError):
        bench.engine.reconfigure(configured(fabric, "d", "e", rate=2), 51 * TICK_NS)
    assert bench.engine.membership is before
    assert {name: repr(value) for name, value in vars(before).items()} == state


@dataclass(slots=True)
class Managed(ManagedLimit):
    """A subclass with a field that drld does not know."""

    note: str = ""


def test_a_new_field_of_a_managed_limit_survives_another_allocator() -> None:
    bench = running()
    old = bench.engine.limits[1]
    bench.engine.limits[1] = Managed(old.limiter, old.datapath, old.due_ns, note="kept")
    bench.engine.reconfigure(spec(limit_spec("grd", id=1, name="first")), TICK_NS)
    new = bench.engine.limits[1]
    assert new.limiter is not old.limiter
    assert isinstance(new, Managed)
    assert new.note == "kept"


def test_a_new_field_of_a_sliding_minimum_survives_another_span() -> None:
    class Named(SlidingMin):
        __slots__ = ("name",)
        name: str

    made = Named(10)
    made.name = "kept"
    made.update(2.0, 0)
    changed = made.over(20, factor=3.0)
    assert isinstance(changed, Named)
    assert (changed.name, changed.latest(1), made.latest(1)) == ("kept", 6.0, 2.0)


@pytest.mark.parametrize("fabric", FABRICS)
def test_a_reload_keeps_the_object_of_each_peer(fabric: str) -> None:
    """A field that is added to its type is kept, too."""
    bench = running(fabric)

    def kept() -> list[object]:
        engine = bench.engine
        link = engine.limits[1].limiter.fabric._link("b")
        assert engine.node.probes is not None
        states = engine.node.probes.peer_states
        numbers = engine.membership.numbering.of("b", 1)
        return [engine.membership._peers["b"], link, link.sequences, numbers, states._members["b"]]

    before = kept()
    bench.engine.reconfigure(configured(fabric, "c", rate=2), TICK_NS)
    assert [id(it) for it in kept()] == [id(it) for it in before]


def noted(value: Any, note: str) -> Any:
    """The same value, of a type with a field that drld does not know."""
    kind: Any = type(value)
    wider = make_dataclass(
        f"Wider{kind.__name__}", [("note", str)], bases=(kind,), frozen=True, kw_only=True
    )
    known = {field.name: getattr(value, field.name) for field in fields(kind)}
    return wider(**known, note=note)


def all_noted(note: str) -> LimiterSpec:
    """A configuration, each of whose parts has the note."""
    target = noted(FIRST.match, note)
    limit = noted(replace(FIRST, policy=noted(FIRST.policy, note), match=target), note)
    made: LimiterSpec = noted(spec(limit, gossip=noted(gossip_spec(), note)), note)
    return made


def notes(found: LimiterSpec) -> list[str]:
    parts: list[Any] = [found, found.gossip, *found.limits]
    parts += [part for limit in found.limits for part in (limit.policy, limit.match)]
    return [part.note for part in parts]


def test_a_new_field_of_a_configuration_is_taken_over_by_a_reload() -> None:
    bench = Bench(all_noted("old"))
    bench.engine.reconfigure(all_noted("new"), TICK_NS)
    # The limiter and the datapath read the same limit, the latter with another interval.
    attached = replace(bench.engine.spec, limits=tuple(bench.datapath.attached))
    for found in (bench.engine.spec, attached):
        assert notes(found) == ["new"] * 5
    policy: Any = bench.engine.limits[1].limiter.policy
    assert policy.note == "new"


def test_a_new_field_of_a_policy_does_not_end_what_its_limiter_knows() -> None:
    def changed(note: str) -> LimiterSpec:
        return spec(replace(FIRST, policy=noted(FIRST.policy, note)))

    bench = Bench(changed("old"))
    limiter = bench.engine.limits[1].limiter
    bench.engine.reconfigure(changed("new"), TICK_NS)
    assert bench.engine.limits[1].limiter is limiter


def test_a_new_field_of_a_configuration_with_a_registry_is_kept() -> None:
    assert notes(merge(all_noted("kept"), "drld.toml", known()).spec) == ["kept"] * 5
