"""The plan of a run's network, and what links are built with."""

from __future__ import annotations

import ipaddress

import pytest

from testbed.errors import HostError
from testbed.experiment import Experiment
from testbed.experiment_file import find, load
from testbed.link import (
    DelayLineLinks,
    Link,
    choose_links,
    delayline_rules,
    netem_arguments,
    queue_bytes,
    tbf_arguments,
)
from testbed.topology import Plan, plan
from tests.testbed_factories import experiment


def links(layout: Plan) -> dict[str, Link]:
    return {link.device: link for link in layout.links}


@pytest.mark.parametrize("allocator", ["ctb", "fps"])
@pytest.mark.parametrize("name", ["baseline", "join", "bottleneck"])
def test_names_fit_an_interface_and_nothing_is_there_twice(name: str, allocator: str) -> None:
    layout = plan(load(find(name)), allocator, 1)
    ends = [end for veth in layout.veths for end in (veth.near, veth.far)]
    assert all(len(end.device) <= 15 for end in ends)
    for identity in (
        [(end.role, end.device) for end in ends],
        [end.address for end in ends],
        [end.mac for end in ends],
    ):
        assert len(set(identity)) == len(ends)
    assert {end.role for end in ends} == set(layout.commands)


def test_the_longest_names_fit_an_interface() -> None:
    longest = "abcdefghijk"
    layout = plan(
        experiment(flows=[{"name": longest, "limiter": longest, "count": 1, "rtt": "0ms"}]),
        "fps",
        1,
    )
    assert max(len(end.device) for veth in layout.veths for end in (veth.near, veth.far)) <= 15


def test_both_ends_of_a_pair_are_in_one_network() -> None:
    for veth in plan(experiment(), "fps", 1).veths:
        near, far = (ipaddress.ip_interface(f"{end.address}/24") for end in (veth.near, veth.far))
        assert near.network == far.network


def test_every_group_passes_its_own_limiter() -> None:
    layout = plan(experiment(), "fps", 1)
    assert layout.limiters == ("l1", "l2")
    assert layout.path == {"f1": "l1", "f2": "l2"}
    devices = {(end.role, end.device) for veth in layout.veths for end in (veth.near, veth.far)}
    assert {("lim-l1", "f1"), ("lim-l1", "out"), ("lim-l1", "ctl")} <= devices
    assert {("lim-l2", "f2"), ("sink", "in-l2"), ("src-f2", "eth0")} <= devices


def test_the_router_tells_the_groups_of_one_limiter_apart() -> None:
    both = [{"limiter": "l1", "count": 1, "rtt": "0ms"}] * 2
    wan = plan(experiment(flows=both), "fps", 1).commands["wan"]
    assert wan == [
        "route add default via 10.2.1.2 table 101",
        "rule add iif s-f1 lookup 101",
        "route add default via 10.2.2.2 table 102",
        "rule add iif s-f2 lookup 102",
    ]


@pytest.mark.parametrize("allocator", ["ctb", "crd"])
def test_a_central_run_has_one_limiter_for_all(allocator: str) -> None:
    layout = plan(experiment(), allocator, 1)
    assert layout.limiters == (allocator,)
    assert set(layout.path.values()) == {allocator}
    assert [role for role in layout.commands if role.startswith("lim-")] == [f"lim-{allocator}"]


def test_each_direction_has_half_of_the_round_trip() -> None:
    layout = links(plan(experiment(), "fps", 1))
    assert {device: link.delay_ns // 1_000_000 for device, link in layout.items()} == {
        "c-l1": 20, "c-l2": 20, "d-f1": 20, "s-f1": 20, "d-f2": 10, "s-f2": 10,
    }  # fmt: skip


def test_loss_and_rate_are_on_the_data_and_gossip_s_loss_on_gossip() -> None:
    flows = {"limiter": "l1", "count": 1, "rtt": "40ms", "loss": 0.01, "rate": "2mbit"}
    layout = links(plan(experiment(flows=[flows], gossip={"loss": 0.2}), "fps", 1))
    assert {device: link.loss for device, link in layout.items()} == {
        "d-f1": 0.01, "s-f1": 0.0, "c-l1": 0.2,
    }  # fmt: skip
    assert {device: link.rate for device, link in layout.items()} == {
        "d-f1": 250_000, "s-f1": None, "c-l1": None,
    }  # fmt: skip


def test_udp_sources_have_a_way_to_their_limiter_and_none_back() -> None:
    udp = {"limiter": "l2", "rate": "1mbit", "rtt": "30ms", "loss": 0.01}
    layout = plan(experiment(udp=[udp]), "fair", 1)
    assert layout.path == {"f1": "l1", "f2": "l2", "u1": "l2"}
    assert layout.source_address["u1"] == "10.1.3.2"
    assert "rule add iif s-u1 lookup 103" in layout.commands["wan"]
    made = links(layout)
    assert (made["d-u1"].delay_ns, made["d-u1"].loss) == (15_000_000, 0.01)
    assert "s-u1" not in made


def test_ecn_and_super_packets_follow_the_experiment() -> None:
    flows = [
        {"limiter": "l1", "count": 1, "rtt": "0s", "ecn": True},
        {"limiter": "l2", "count": 1, "rtt": "0s", "gso": True},
        {"limiter": "l2", "count": 1, "rtt": "0s"},
    ]
    layout = plan(experiment(flows=flows), "fair", 1)
    assert layout.ecn == ("src-f1",)
    # On the way to the limiter, and not behind it, where bytes are counted.
    assert [(end.role, end.device) for end in layout.super_packets] == [
        ("src-f2", "eth0"), ("wan", "d-f2"),
    ]  # fmt: skip


def test_a_group_that_its_limiter_sends_has_no_path() -> None:
    flows = [
        {"limiter": "l1", "count": 1, "rtt": "40ms"},
        {"limiter": "l1", "count": 1, "rtt": "0s", "egress": True, "ecn": True},
        {"limiter": "l2", "count": 1, "rtt": "0s", "egress": True},
    ]
    layout = plan(experiment(flows=flows), "fair", 1)
    assert layout.path == {"f1": "l1", "f2": "l1", "f3": "l2"}
    assert layout.senders == {"f1": "src-f1", "f2": "lim-l1", "f3": "lim-l2"}
    assert layout.source_address == {"f1": "10.1.1.2", "f2": "10.1.2.2", "f3": "10.1.3.2"}
    assert layout.ecn == ("lim-l1",)
    assert {"src-f2", "src-f3"}.isdisjoint(layout.commands)
    assert set(links(layout)) == {"c-l1", "c-l2", "d-f1", "s-f1"}
    assert "address add 10.1.2.2/32 dev lo" in layout.commands["lim-l1"]
    assert "route add 10.1.3.0/24 via 10.4.2.1" in layout.commands["sink"]
    central = plan(experiment(flows=flows), "ctb", 1)
    assert central.senders == {"f1": "src-f1", "f2": "lim-ctb", "f3": "lim-ctb"}


def test_links_have_seeds_of_their_own_that_follow_the_run_s() -> None:
    def seeds(small: Experiment, seed: int) -> list[int]:
        return [link.seed for link in plan(small, "fps", seed).links]

    small = experiment()
    assert seeds(small, 1) == seeds(small, 1)
    assert len({*seeds(small, 1), *seeds(small, 2)}) == 2 * len(seeds(small, 1))


def test_a_queue_is_the_bandwidth_delay_product_but_not_less_than_ten_packets() -> None:
    rtt_ns = 40_000_000
    assert queue_bytes(1_250_000, None, rtt_ns) == 50_000
    assert queue_bytes(12_500, None, rtt_ns) == 15_000
    assert queue_bytes(1_250_000, 7_000, rtt_ns) == 7_000


def test_tc_gets_rates_depths_and_delays() -> None:
    assert tbf_arguments(250_000, 15_000) == [
        "tbf", "rate", "2000000bit", "burst", "3028", "limit", "15000",
    ]  # fmt: skip
    assert netem_arguments(Link("x", 20_000_000)) == [
        "netem",
        "delay",
        "20000us",
        "limit",
        "100000",
    ]
    lossy = netem_arguments(Link("x", 500_000, loss=0.0047))
    assert lossy[:5] == ["netem", "delay", "500us", "loss", "0.470000%"]


def test_each_delayed_device_has_its_queue() -> None:
    assert delayline_rules({"d-f1": 0, "s-f1": 1}) == (
        "*mangle\n"
        "-A FORWARD -o d-f1 -j NFQUEUE --queue-num 0\n"
        "-A FORWARD -o s-f1 -j NFQUEUE --queue-num 1\n"
        "COMMIT\n"
    )


def test_the_delay_line_can_be_asked_for_and_nonsense_cannot() -> None:
    assert isinstance(choose_links("delayline"), DelayLineLinks)
    with pytest.raises(HostError, match="one of auto, netem, delayline"):
        choose_links("dummynet")
