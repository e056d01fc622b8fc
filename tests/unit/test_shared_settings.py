"""The settings that limiters compare, within a version of drld and between two."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, reduce
from hashlib import blake2s
from operator import xor
from typing import Annotated, Any, Literal

import pytest

from drld import burst, config
from drld.allocators import ALLOCATORS
from drld.allocators.fair import Fair, FairParameters
from drld.capture.registered import tables
from drld.capture.registered.limit_table import PacketLimitTable
from drld.config import allocator, document, limits
from drld.config.fields import Interval
from drld.config.schema import GossipTable
from drld.gossip.health.config_digest import ALL, GOSSIP_ID, ConfigDigest, canonical
from drld.model import NS_PER_S
from drld.police.policer import Excess
from drld.police.source_sample import SourcePrefix
from drld.shared_settings import shared_settings

from ..factories import gossip_spec, policy

Patch = pytest.MonkeyPatch


def digest_of(**changes: Any) -> int:
    settings = shared_settings([policy(**changes)], gossip_spec())
    return ConfigDigest(settings, NS_PER_S).digest(ALL)


@pytest.mark.parametrize(
    "changes",
    [
        {"rate": 1},
        {"burst": 312_500},
        {"burst_is_automatic": True},
        {"interval_ns": 1},
        {"allocator": "fair"},
        {"parameters": FairParameters(margin=0.0)},
        {"excess": Excess.MARK},
        {"weights": {"a": 2.0}},
        {"weights": {"a": 1.0, "b": 2.0}},
        {"shares": {"a": 0.5, "b": 0.5}},
        {"flow": SourcePrefix(24)},
    ],
    ids=repr,
)
def test_limiters_with_another_setting_disagree(changes: dict[str, Any]) -> None:
    assert digest_of() != digest_of(**changes)


@pytest.mark.parametrize(
    "changes", [{"weights": {"a": 1.0}}, {"name": "another"}, {"ewma": 0.5}], ids=repr
)
def test_limiters_agree_in_spite_of_local_settings(changes: dict[str, Any]) -> None:
    assert digest_of() == digest_of(**changes)


def test_the_order_of_weights_changes_nothing() -> None:
    one, other = {"a": 2.0, "b": 3.0}, {"b": 3.0, "a": 2.0}
    assert digest_of(weights=one) == digest_of(weights=other)
    assert digest_of(weights=one) != digest_of(weights={"a": 3.0, "b": 2.0})


def test_two_limits_that_swap_their_settings_are_seen() -> None:
    one, other = ({1: a, 2: b} for a, b in ((b"x", b"y"), (b"y", b"x")))
    assert ConfigDigest(one, 0).digest(ALL) != ConfigDigest(other, 0).digest(ALL)


def test_the_form_is_that_of_the_wire_document() -> None:
    spec = policy("fair", weights={"b": 1.0, "a": 2.0}, flow=SourcePrefix(24, 48))
    forms = shared_settings([spec], gossip_spec())
    assert forms == {
        GOSSIP_ID: b'[1,{"branching":3,"fabric":"mesh","interval":50000000}]',
        1: b'[1,{"allocator":"fair","allocator.headroom":0.1,"allocator.margin":0.2,'
        b'"allocator.reach":1.5,"burst":75000,"excess":"drop","flow":"source/24/48",'
        b'"interval":50000000,"rate":1250000,"weights":{"a":2}}]',
    }
    hashes = [
        blake2s(id_.to_bytes(2, "big") + form, digest_size=8, person=b"drld-lim").digest()
        for id_, form in forms.items()
    ]
    assert ConfigDigest(forms, 0).digest(ALL) == reduce(xor, map(_number, hashes))


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big")


def test_a_form_does_not_depend_on_the_type_of_a_number_or_an_order() -> None:
    assert canonical(1, {"a": 2, "b": {"x": 0, "y": 1}}) == canonical(
        1, {"b": {"y": 1.0, "x": -0.0}, "a": 2.0}
    )
    assert canonical(1, {"a": True}) != canonical(1, {"a": 1})
    assert canonical(1, {"a": None, "b": {}}) == canonical(1, {})
    assert canonical(2, {}) != canonical(1, {})


@pytest.mark.parametrize(("value", "error"), [(object(), TypeError), (float("nan"), ValueError)])
def test_a_value_without_a_form_is_refused(value: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        canonical(1, {"a": value})


@pytest.mark.parametrize("name", ALLOCATORS)
def test_every_parameter_of_an_allocator_has_a_form(name: str) -> None:
    form = shared_settings([policy(name)], gossip_spec())[1].decode()
    for field in dataclasses.fields(ALLOCATORS[name].Parameters):
        assert f'"allocator.{field.name}":' in form


# Two versions of drld, each with its defaults, read a file each.


@dataclass(frozen=True)
class NewerParameters(FairParameters):
    """Another default, and a parameter more."""

    headroom: Annotated[float, "above 0 and at most 1"] = 0.2
    haste: Annotated[float, "at least 0"] = 3.0


class NewerGossip(GossipTable):
    interval: Interval = NS_PER_S // 10


class NewerLimit(PacketLimitTable):
    ewma: float = 0.5
    excess: Literal["drop", "mark"] = "mark"


def newer_parameters(patch: Patch) -> None:
    patch.setattr(Fair, "Parameters", NewerParameters)
    # Made of the parameters once; what is made under the patch goes with it.
    patch.setattr(allocator, "_parameters_table", cache(allocator._parameters_table.__wrapped__))


def newer_allocator(patch: Patch) -> None:
    patch.setattr(limits, "DEFAULT_ALLOCATOR", "fps")


def newer_gossip(patch: Patch) -> None:
    patch.setattr(document, "GossipTable", NewerGossip)


def newer_limit(patch: Patch) -> None:
    patch.setattr(tables, "TABLES", tables.TABLES._replace(limit=NewerLimit))


def newer_burst(patch: Patch) -> None:
    patch.setattr(burst, "AUTOMATIC_NS", NS_PER_S)


NEWER = [newer_parameters, newer_allocator, newer_gossip, newer_limit, newer_burst]
NOTHING_WRITTEN = ""
ALL_WRITTEN = """
allocator = { name = "fair", headroom = 0.1 }
burst = "500kB"
excess = "drop"
interval = "50ms"
"""


def settings_of(limit: str, gossip: str = "") -> dict[int, bytes]:
    """The settings of a file that the version in force registers."""
    spec = config.parse(
        f"""
        [limiter]
        name = "a"
        listen = "127.0.0.1:7946"
        [gossip]
        {gossip}
        [[limit]]
        id = 1
        name = "web"
        rate = "10Mbit"
        match = {{ out = "eth0" }}
        """
        + limit,
        "drld.toml",
    )
    return shared_settings([limit.policy for limit in spec.limits], spec.gossip)


@pytest.mark.parametrize("newer", NEWER)
@pytest.mark.parametrize("limit", [NOTHING_WRITTEN, 'burst = "auto"', ALL_WRITTEN])
@pytest.mark.parametrize("gossip", ["", 'interval = "50ms"'])
def test_versions_that_differ_in_a_default_agree_on_the_same_file(
    newer: Callable[[Patch], None], limit: str, gossip: str
) -> None:
    old = settings_of(limit, gossip)
    with pytest.MonkeyPatch.context() as patch:
        newer(patch)
        new = settings_of(limit, gossip)
    assert disagreeing(old, new) == disagreeing(new, old) == []


def test_an_earlier_version_registers_the_same_of_this_file() -> None:
    """Recorded by running commit 44cefc6, in which excess and flow were no matter of a plane."""
    asked = 'excess = "mark"\nflow = "source/24"\nweights = { a = 2 }\nallocator = "fair"\n'
    assert settings_of(asked, 'interval = "100ms"') == {
        GOSSIP_ID: b'[1,{"interval":100000000}]',
        1: b'[1,{"allocator":"fair","excess":"mark","flow":"source/24/64","rate":1250000,'
        b'"weights":{"a":2}}]',
    }


def disagreeing(own: dict[int, bytes], others: dict[int, bytes]) -> list[str]:
    """The peers that a limiter with the first settings reports if a peer has the others."""
    digests = ConfigDigest(own, 0)
    digests.compare("peer", ALL, ConfigDigest(others, 0).digest(ALL))
    return list(digests.disagreements())


def test_the_newer_versions_do_differ_in_a_default() -> None:
    """Without a difference the test above could not fail."""

    def in_force() -> Any:
        document = {
            "limiter": {"name": "a", "listen": "127.0.0.1:7946"},
            "limit": [{"id": 1, "name": "web", "rate": "10Mbit", "match": {"out": "eth0"}}],
        }
        spec = config.from_document(document, "drld.toml")
        return spec.gossip, spec.limits

    old = in_force()
    for newer in NEWER:
        with pytest.MonkeyPatch.context() as patch:
            newer(patch)
            assert in_force() != old


def test_versions_disagree_on_written_values() -> None:
    old = settings_of('allocator = { name = "fair", headroom = 0.1 }')
    with pytest.MonkeyPatch.context() as patch:
        newer_parameters(patch)
        new = settings_of('allocator = { name = "fair", headroom = 0.2 }')
        newest = settings_of('allocator = { name = "fair", headroom = 0.1, haste = 4.0 }')
    assert old[1] != new[1]
    assert old[1] != newest[1]
    assert disagreeing(old, new) == disagreeing(new, old) == ["peer"]


def test_a_default_that_is_written_differs_from_one_that_is_left_out() -> None:
    """The documented price: a later version may have another default."""
    assert settings_of('excess = "drop"')[1] != settings_of("")[1]
    assert settings_of("", 'interval = "50ms"')[GOSSIP_ID] != settings_of("")[GOSSIP_ID]
    assert settings_of('burst = "auto"') == settings_of("")


def test_the_spelling_of_a_value_changes_nothing() -> None:
    assert settings_of('interval = "50ms"') == settings_of('interval = "0.05s"')
