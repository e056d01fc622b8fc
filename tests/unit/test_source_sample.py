"""Flows by source: which packets are one flow, and what a policer makes of that."""

from dataclasses import replace
from ipaddress import ip_address, ip_network
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drld.model import Enforcement, FlowKey
from drld.police.policer import DROP, FORWARD, Policer
from drld.police.source_sample import SourcePrefix, source_masks, source_of

from ..factories import policy

RNG = Random(1)


def key(source: str, port: int = 1, destination: str | None = None, protocol: int = 17) -> FlowKey:
    address = ip_address(source)
    to = ip_address(destination or ("10.9.0.1" if address.version == 4 else "fd09::1"))
    return FlowKey(protocol, address.packed, to.packed, port, 2)


@pytest.mark.parametrize(
    ("prefix", "one", "other", "alike"),
    [
        (SourcePrefix(), "10.0.0.1", "10.0.0.1", True),
        (SourcePrefix(), "10.0.0.1", "10.0.0.2", False),
        (SourcePrefix(24), "10.0.0.1", "10.0.0.255", True),
        (SourcePrefix(24), "10.0.0.1", "10.0.1.1", False),
        (SourcePrefix(1), "10.0.0.1", "127.0.0.1", True),
        (SourcePrefix(1), "10.0.0.1", "128.0.0.1", False),
        (SourcePrefix(), "fd00::1", "fd00::ffff:0:0:1", True),
        (SourcePrefix(), "fd00::1", "fd00:0:0:1::1", False),
        (SourcePrefix(32, 128), "fd00::1", "fd00::2", False),
        (SourcePrefix(32, 20), "fd00::1", "fd00:fff::1", True),
        (SourcePrefix(32, 20), "fd00::1", "fd00:1000::1", False),
        (SourcePrefix(32, 8), "0.0.0.0", "::", False),
    ],
)
def test_packets_with_sources_of_one_prefix_are_one_flow(
    prefix: SourcePrefix, one: str, other: str, alike: bool
) -> None:
    assert (source_of(key(one), prefix) == source_of(key(other), prefix)) is alike


@given(
    st.ip_addresses(), st.integers(1, 32), st.integers(1, 128),
    st.integers(0, 65535), st.integers(0, 255),
)  # fmt: skip
def test_only_the_prefix_of_the_source_makes_a_flow(
    source: object, ipv4: int, ipv6: int, port: int, protocol: int
) -> None:
    prefix = SourcePrefix(ipv4, ipv6)
    address = ip_address(str(source))
    packet = key(str(source), port, str(source), protocol)
    found = source_of(packet, prefix)
    assert found == source_of(key(str(source)), prefix)
    length = ipv4 if address.version == 4 else ipv6
    network = ip_network(f"{address}/{length}", strict=False)
    assert found.source == network.network_address.packed
    mask = source_masks(prefix)[address.version == 6]
    assert found.source == bytes(a & b for a, b in zip(address.packed, mask, strict=True))


def test_a_source_that_changes_its_port_has_one_bucket() -> None:
    record = Enforcement(depth=10**6, flow_rate=1000, flow_depth=3000, reserve=996_000)
    policer = Policer(policy(flow=SourcePrefix(24)), record, 0)
    verdicts = [policer.police(key("10.0.0.1", port), 1500, 0, RNG) for port in range(4)]
    assert verdicts == [FORWARD, FORWARD, DROP, DROP]
    assert policer.police(key("10.0.1.1"), 1500, 0, RNG)
    flows = policer.read(1).flows
    assert sorted(flows.values()) == [1500, 6000]


def test_a_reload_empties_the_sample_if_flows_are_something_else() -> None:
    limit = policy()
    policer = Policer(limit, Enforcement(), 0)
    for port in range(3):
        policer.police(key("10.0.0.1", port), 100, 0, RNG)
    policer.reconfigure(replace(limit, burst=limit.burst + 1))
    assert len(policer.read(1).flows) == 3
    policer.reconfigure(replace(limit, flow=SourcePrefix()))
    for port in range(3):
        policer.police(key("10.0.0.1", port), 100, 0, RNG)
    measured = policer.read(2)
    assert list(measured.flows.values()) == [300]
    assert measured.arrived_tokens == 300
    policer.reconfigure(limit)
    assert policer.read(3).flows == {}
