"""A configuration out of a file and a registry."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from drld.capture.spec import match_of
from drld.registry.model.merge import Merged, merge
from drld.registry.model.state import Registry
from drld.spec import LimiterSpec, PeerSpec

from ...factories import limit_spec
from ...registry_factories import FLEET, KEYS, address, events, file_spec, known, limit, member


def fleet(**values: bytes) -> Registry:
    """Members by name, limits by `limit` and a number; each written a revision later."""
    registry = known()
    registry.apply(events({KEYS.fleet: FLEET.encode()}, 1))
    for number, (name, value) in enumerate(values.items(), start=2):
        number_of = name.removeprefix("limit")
        key = KEYS.limit(int(number_of)) if name.startswith("limit") else KEYS.member(name)
        registry.apply(events({key: value}, number))
    return registry


def merged(registry: Registry, file: LimiterSpec | None = None, **changes: Any) -> Merged:
    return merge(replace(file or file_spec(), **changes), "drld.toml", registry)


def test_members_are_peers_and_limits_are_limits() -> None:
    spec, problems = merged(fleet(a=member(1), c=member(3), b=member(2), limit1=limit(1)))
    assert spec.peers == (PeerSpec("c", address(3)), PeerSpec("b", address(2)))
    assert [found.name for found in spec.limits] == ["limit1"]
    assert spec.members == {"a", "b", "c"}
    assert spec.joined
    assert not problems


def test_a_limiter_that_has_not_joined_shows_it() -> None:
    assert not merged(fleet(b=member(2))).spec.joined
    assert not merged(fleet(a=member(1, joined=False))).spec.joined


def test_the_files_limits_come_first_and_win() -> None:
    own = limit_spec(id=2, name="own")
    spec, problems = merged(
        fleet(limit3=limit(3), limit1=limit(1, name="own"), limit2=limit(2)), limits=(own,)
    )
    assert [found.id for found in spec.limits] == [2, 3]
    assert spec.limits[0] is own
    assert problems == {
        KEYS.limit(1): "etcd /drld/f/limits/1: name: must be unique, but drld.toml (limit[0].name) "
        "is the same (got 'own')",
        KEYS.limit(2): "etcd /drld/f/limits/2: id: must be unique, but drld.toml (limit[0].id) is "
        "the same (got 2)",
    }


def test_the_older_of_two_limits_of_a_name_stays() -> None:
    registry = fleet(limit7=limit(7, name="x"), limit3=limit(3, name="x"))
    spec, problems = merged(registry)
    assert [found.id for found in spec.limits] == [7]
    assert "unique, but etcd /drld/f/limits/7 (name) is the same" in problems[KEYS.limit(3)]


def test_a_limit_that_clashes_keeps_what_is_in_force() -> None:
    registry = fleet(limit7=limit(7, name="x"), limit3=limit(3, name="x", rate="1mbit"))
    before = limit_spec(id=3, name="y")
    spec, problems = merge(file_spec(), "drld.toml", registry, (before,))
    assert spec.limits[0] == before
    assert KEYS.limit(3) in problems


def test_a_peer_of_the_file_may_have_registered() -> None:
    file = file_spec(peers=(PeerSpec("b", address(2)), PeerSpec("c", address(3))))
    spec, problems = merged(fleet(b=member(2), c=member(4), d=member(3)), file)
    assert spec.peers == file.peers
    assert "that of c in drld.toml, 127.0.0.3:7946" in problems[KEYS.member("c")]
    assert "unique, but drld.toml (peer[1].address)" in problems[KEYS.member("d")]


def test_no_two_members_have_one_address() -> None:
    spec, problems = merged(fleet(b=member(2), c=member(2), d=member(1)))
    assert [peer.name for peer in spec.peers] == ["b"]
    assert "unique, but etcd /drld/f/members/b is the same" in problems[KEYS.member("c")]
    assert "unique, but drld.toml (limiter.listen) is the same" in problems[KEYS.member("d")]


def test_members_that_cannot_be_reached_are_no_peers() -> None:
    spec, problems = merged(
        fleet(b=b'{"address": "[fd00::1]:7946"}', c=b'{"address": "10.0.0.1:7946"}')
    )
    assert spec.peers == ()
    assert problems[KEYS.member("b")].endswith(
        "must be IPv4, as limiter.listen (got '[fd00::1]:7946')"
    )
    assert "both loopback, or neither" in problems[KEYS.member("c")]


def test_interfaces_have_the_names_of_the_host() -> None:
    registry = known(interfaces={"uplink": "eth1"})
    for number, interface in enumerate(("uplink", "eth0"), start=1):
        value = limit(number, match={"out": interface})
        registry.apply(events({KEYS.limit(number): value}, number))
    assert [match_of(found).interface for found in merged(registry).spec.limits] == ["eth1", "eth0"]


def test_shares_may_name_strangers_and_leave_out_members() -> None:
    spec, problems = merged(fleet(b=member(2), limit1=limit(1, shares={"a": 0.5, "gone": 0.5})))
    assert spec.limits[0].policy.shares == {"a": 0.5, "gone": 0.5}
    assert not problems
