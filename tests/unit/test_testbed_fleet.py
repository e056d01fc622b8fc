"""The configurations that the testbed writes for daemons are what drld reads."""

from __future__ import annotations

import sys
from ipaddress import ip_address
from typing import Any

import pytest

from drld import config
from drld.capture.spec import match_of
from drld.config.toml_text import toml
from drld.police.direction import Direction
from drld.spec import LimiterSpec, OnFailure
from testbed.errors import HostError
from testbed.experiment_tables import ALLOCATOR_NAMES, CENTRAL
from testbed.fleet import DaemonFleet, TbfFleet, choose_fleet, daemon_document
from testbed.topology import plan
from tests.testbed_factories import experiment

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def written(allocator: str, limiter: str = "l1", **changes: Any) -> LimiterSpec:
    small = experiment(**changes)
    layout = plan(small, allocator, 1)
    name = allocator if allocator in CENTRAL else limiter
    return config.parse(toml(daemon_document(small, allocator, layout, name, "auto")), "x.toml")


@pytest.mark.parametrize("allocator", ALLOCATOR_NAMES)
def test_drld_reads_the_written_configuration(allocator: str) -> None:
    spec = written(allocator)
    (limit,) = spec.limits
    assert limit.policy.allocator == CENTRAL.get(allocator, allocator)
    assert (limit.policy.rate * 8, limit.policy.burst) == (10_000_000, 75_000)
    assert (match_of(limit).interface, match_of(limit).direction) == ("out", Direction.OUT)
    assert match_of(limit).protocol == 6
    assert spec.gossip.interval_ns == 50_000_000


def test_where_there_is_udp_it_falls_under_the_limit() -> None:
    (limit,) = written("fair", udp=[{"limiter": "l2", "rate": "1mbit"}]).limits
    assert (match_of(limit).interface, match_of(limit).direction) == ("out", Direction.OUT)
    assert match_of(limit).protocol is None


def test_limiters_know_each_other_by_their_gossip_addresses() -> None:
    first, second = written("fps", "l1"), written("fps", "l2")
    assert [(peer.name, peer.address) for peer in first.peers] == [("l2", second.listen)]
    assert [(peer.name, peer.address) for peer in second.peers] == [("l1", first.listen)]
    assert ip_address(first.listen[0]) != ip_address(second.listen[0])


def test_a_central_limiter_is_alone() -> None:
    assert written("ctb").peers == ()


def test_every_setting_of_the_limit_reaches_the_daemon() -> None:
    spec = written(
        "fps",
        limit={
            "rate": "1.5mbit",
            "burst": "20kB",
            "ewma": 0.3,
            "shares": {"l1": 0.25, "l2": 0.75},
            "weights": {"l2": 3.0},
            "on_failure": "open",
            "parameters": {"fps": {"headroom": 0.5}, "grd": {}},
        },
        gossip={"fabric": "mesh", "interval": "200ms", "branching": 2, "rtt": "10ms"},
    )
    (limit,) = spec.limits
    assert (limit.policy.rate, limit.policy.burst, limit.policy.ewma) == (187_500, 20_000, 0.3)
    assert limit.policy.shares == {"l1": 0.25, "l2": 0.75}
    assert limit.policy.weights == {"l2": 3.0}
    assert limit.on_failure is OnFailure.OPEN
    assert getattr(limit.policy.parameters, "headroom") == 0.5  # noqa: B009 -- the type is the allocator's
    assert (spec.gossip.fabric, spec.gossip.interval_ns) == ("mesh", 200_000_000)
    assert spec.gossip.branching == 2


def test_toml_survives_a_round_trip() -> None:
    document = {
        "one": {"text": 'quo"te\n', "number": 3, "fraction": 0.25, "truth": True},
        "many": [{"table": {"a": 1, "b": "x"}}, {"list": ["a", "b"]}],
    }
    assert tomllib.loads(toml(document)) == document


def test_the_kernel_s_token_bucket_can_only_be_central_or_static() -> None:
    small = experiment()
    assert isinstance(choose_fleet(small, "static", plan(small, "static", 1), "tbf"), TbfFleet)
    assert isinstance(choose_fleet(small, "fps", plan(small, "fps", 1), "auto"), DaemonFleet)
    with pytest.raises(HostError, match="not fps"):
        choose_fleet(small, "fps", plan(small, "fps", 1), "tbf")


def test_the_kernel_s_token_bucket_has_no_daemon_to_kill() -> None:
    small = experiment()
    fleet = choose_fleet(small, "static", plan(small, "static", 1), "tbf")
    with pytest.raises(HostError, match="no daemon l1 to kill"):
        fleet.kill("l1")
