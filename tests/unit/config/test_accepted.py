"""A good configuration becomes a spec."""

from __future__ import annotations

import math
from dataclasses import replace
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any

import pytest

from drld import config
from drld.allocators import ALLOCATORS, DEFAULT_ALLOCATOR
from drld.capture.spec import Match, PacketsSpec, match_of
from drld.config.probes import PROFILES
from drld.errors import ConfigError
from drld.police.direction import Direction
from drld.police.policer import Excess
from drld.police.source_sample import SourcePrefix
from drld.policy import Mode
from drld.spec import GossipSpec, OnFailure, PeerSpec, ProbeSpec
from tests.factories import example
from tests.unit.config.good import GOOD, LIMIT, changed, with_limit_key, with_match


def match(text: str) -> Match:
    return match_of(config.parse(with_match(text), "drld.toml").limits[0])


def test_left_out_keys_have_their_defaults() -> None:
    spec = config.parse(GOOD, "drld.toml")
    assert spec.name == "lim1"
    assert spec.listen == ("10.0.0.1", 7946)
    assert spec.control == "/run/drld/lim1.sock"
    assert spec.control_group is None
    assert spec.plane(PacketsSpec) == PacketsSpec("auto", "auto", None, "auto")
    assert spec.gossip == GossipSpec("tree", 3, 50_000_000)
    assert spec.peers == (PeerSpec("lim2", ("10.0.0.2", 7946)),)
    (limit,) = spec.limits
    assert (limit.id, limit.name) == (1, "a")
    assert (limit.policy.rate, limit.policy.burst) == (1_250_000, 400_000)
    assert limit.match == Match("eth1", Direction.OUT)
    assert limit.policy.allocator == DEFAULT_ALLOCATOR
    assert limit.policy.parameters == ALLOCATORS[DEFAULT_ALLOCATOR].Parameters()
    assert (limit.policy.interval_ns, limit.policy.ewma) == (50_000_000, 0.1)
    assert (limit.policy.mode, limit.on_failure) == (Mode.ENFORCE, OnFailure.DEFAULT)
    assert limit.policy.shares == {}
    assert limit.policy.weights == {}
    assert limit.policy.excess == Excess.DROP
    assert not limit.policy.burst_is_automatic


def test_limits_with_the_same_keys_share_the_set_of_them() -> None:
    one, other = (config.parse(GOOD, "f").limits[0].policy.written for _ in range(2))
    assert one is not None
    assert one is other
    assert {"rate", "match.out"} <= one


@pytest.mark.parametrize("written", ['burst = "auto"\n', ""])
@pytest.mark.parametrize(
    ("rate", "burst"),
    [("10kbit", 1_500), ("100kbit", 3_125), ("10mbit", 312_500), ("400gbit", 4_000_000_000)],
)
def test_an_automatic_burst_is_a_quarter_of_a_second_of_the_rate(
    written: str, rate: str, burst: int
) -> None:
    text = changed(('burst = "400kB"\n', written), ("10mbit", rate))
    (limit,) = config.parse(text, "f").limits
    assert (limit.policy.burst, limit.policy.burst_is_automatic) == (burst, True)


def test_a_written_burst_is_not_automatic_though_it_is_as_large() -> None:
    (limit,) = config.parse(changed(("400kB", "312.5kB")), "f").limits
    assert (limit.policy.burst, limit.policy.burst_is_automatic) == (312_500, False)


@pytest.mark.parametrize("excess", Excess)
def test_excess_is_dropped_or_marked(excess: Excess) -> None:
    text = with_limit_key(f'excess = "{excess.value}"')
    assert config.parse(text, "f").limits[0].policy.excess is excess


@pytest.mark.parametrize(
    ("written", "flow"),
    [
        ("5-tuple", None),
        ("source", SourcePrefix(32, 64)),
        ("source/24", SourcePrefix(24, 64)),
        ("source/32/128", SourcePrefix(32, 128)),
        ("source/1/1", SourcePrefix(1, 1)),
    ],
)
def test_a_flow_is_a_five_tuple_or_a_source(written: str, flow: SourcePrefix | None) -> None:
    (limit,) = config.parse(with_limit_key(f'flow = "{written}"'), "f").limits
    assert limit.policy.flow == flow
    if flow:
        (again,) = config.parse(with_limit_key(f'flow = "{flow}"'), "f").limits
        assert again.policy.flow == flow


def test_weights_are_of_limiters_and_not_of_all() -> None:
    text = with_limit_key("weights = { lim2 = 2, lim1 = 0.001 }")
    assert config.parse(text, "f").limits[0].policy.weights == {"lim1": 0.001, "lim2": 2.0}
    text = with_limit_key("weights = { lim2 = 1000 }")
    assert config.parse(text, "f").limits[0].policy.weights == {"lim2": 1000.0}


@pytest.mark.parametrize(("written", "group"), [("1000", 1000), ("'drld'", "drld"), ("0", 0)])
def test_a_group_is_a_name_or_a_number(written: str, group: object) -> None:
    spec = config.parse(
        changed(("[limiter]", f"[limiter]\ncontrol_group = {written}")), "drld.toml"
    )
    assert spec.control_group == group


def test_the_example_shows_every_kind_of_value(tmp_path: Path) -> None:
    key = tmp_path / "fleet.key"
    key.touch(0o600)
    key.write_text("00" * 32)
    spec = config.parse(example(key), "drld.toml")
    assert (spec.ring.use, spec.ring.keys) == (1, {1: bytes(32)})
    assert spec.members == {"lim1", "lim2", "lim3"}
    first, second = spec.limits
    assert first.match == Match(
        "eth1", Direction.OUT, destination=IPv4Network("10.9.2.0/24"), protocol=6
    )
    assert second.policy.allocator == "fair"
    assert second.policy.parameters == ALLOCATORS["fair"].Parameters(margin=0.0)
    assert (second.policy.mode, second.on_failure) == (Mode.SHADOW, OnFailure.OPEN)
    assert second.policy.shares == {"lim1": 0.5, "lim2": 0.25, "lim3": 0.25}
    assert second.match == Match(
        "wg0",
        Direction.IN,
        source=IPv6Network("fd00:9:2::/64"),
        destination=IPv6Network("fd00:1::/48"),
        protocol=17,
        source_ports=((4500, 4500), (8000, 8100)),
        destination_ports=((51820, 51820),),
        mark=(0x10, 0xFF),
    )


def test_the_defaults_in_the_example_are_the_defaults() -> None:
    text = example()
    start = text.index("[[limit]]")
    one = text[: text.index("[[limit]]", start + 1)]
    required = ("name =", "listen =", "address =", "id =", "rate =", "match =", "[")
    bare = "\n".join(line for line in one.splitlines() if line.startswith(required))
    assert config.parse(one, "full") == config.parse(bare, "bare")


def test_the_interval_of_a_limit_is_the_gossip_interval_unless_given() -> None:
    text = GOOD + '[gossip]\ninterval = "100ms"\n'
    assert config.parse(text, "f").limits[0].policy.interval_ns == 100_000_000
    text = text.replace("id = 1", 'id = 1\ninterval = "500ms"')
    assert config.parse(text, "f").limits[0].policy.interval_ns == 500_000_000


def test_ipv6_addresses_are_bracketed_and_canonical() -> None:
    text = changed(("10.0.0.1:7946", "[FD00::1]:7946"), ("10.0.0.2:7946", "[fd00:0::2]:1"))
    spec = config.parse(text, "f")
    assert spec.listen == ("fd00::1", 7946)
    assert spec.peers[0].address == ("fd00::2", 1)


@pytest.mark.parametrize(
    ("text", "conditions"),
    [
        ('source = "10.9.2.5"', {"source": IPv4Network("10.9.2.5/32")}),
        ('source = "0.0.0.0/0"', {"source": IPv4Network("0.0.0.0/0")}),
        ('protocol = "TCP"', {"protocol": 6}),
        ("protocol = 0", {"protocol": 0}),
        ('protocol = "47"', {"protocol": 47}),
        (
            'protocol = "icmpv6", source = "fd00::/16"',
            {"protocol": 58, "source": IPv6Network("fd00::/16")},
        ),
        (
            'protocol = "sctp", source_port = "80,8000-8100"',
            {"protocol": 132, "source_ports": ((80, 80), (8000, 8100))},
        ),
        (
            'protocol = 6, destination_port = [80, "443", "8000-8100"]',
            {"protocol": 6, "destination_ports": ((80, 80), (443, 443), (8000, 8100))},
        ),
        ("mark = 16", {"mark": (16, 0xFFFFFFFF)}),
        ("mark = 0", {"mark": (0, 0xFFFFFFFF)}),
        ('mark = "0x10"', {"mark": (16, 0xFFFFFFFF)}),
        ('mark = "16/255"', {"mark": (16, 255)}),
    ],
)
def test_every_condition_of_match_is_read(text: str, conditions: dict[str, Any]) -> None:
    assert match(text) == Match("eth1", Direction.OUT, **conditions)


def test_in_shadow_mode_a_limit_of_nfqueue_may_stand_beside_an_open_one() -> None:
    text = changed(("[limiter]", "[packets]\ndatapath = 'nfqueue'\n[limiter]"))
    text += LIMIT.replace("id = 1", "id = 2").replace('"a"', "'b'\non_failure = 'open'")
    shadow = text.replace("[[limit]]", "[[limit]]\nmode = 'shadow'", 1)
    assert len(config.parse(shadow, "drld.toml").limits) == 2


def test_shares_written_with_nine_digits_are_close_enough() -> None:
    text = with_limit_key("shares = { lim1 = 0.333333333, lim2 = 0.666666667 }")
    assert math.isclose(sum(config.parse(text, "f").limits[0].policy.shares.values()), 1)


def test_a_single_limiter_may_have_a_central_bucket() -> None:
    text = changed(('[[peer]]\nname = "lim2"\naddress = "10.0.0.2:7946"\n', ""))
    text = text.replace("id = 1", 'id = 1\nallocator = "ctb"')
    assert config.parse(text, "f").limits[0].policy.allocator == "ctb"


def probes(text: str) -> ProbeSpec | None:
    return config.parse(GOOD + text, "drld.toml").probes


def test_settings_of_probes_begin_with_a_profile() -> None:
    assert probes("") == ProbeSpec()
    wide = probes('[probes]\nprofile = "wan"\nhelpers = 0')
    assert wide == replace(PROFILES["wan"], helpers=0)
    assert wide is not None
    assert (wide.period_ns, wide.timeout_ns, wide.suspicion) == (5 * 10**9, 2 * 10**9, 6.0)
    quick = probes('[probes]\nperiod = "200ms"\ntimeout = "100ms"\nisolation = 3')
    assert quick == ProbeSpec(period_ns=200_000_000, timeout_ns=100_000_000, isolation=3)
    assert probes('[probes]\nprofile = "off"') is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('profile = "off"\nhelpers = 2', "probes.helpers: must be left out: profile"),
        ('timeout = "600ms"', "probes.timeout: must be at most half of probes.period, 1s: "),
        ('period = "0.9s"', "probes.period: must be at least twice probes.timeout, 500ms"),
        (
            'profile = "wan"\nperiod = "3s"',
            "probes.period: must be at least twice probes.timeout, 2s: ",
        ),
        ("isolation = 2", "probes.isolation: must be at least 3 (got 2)"),
        ("helper = 2", 'probes.helper: unknown key; did you mean "helpers"?'),
    ],
)
def test_impossible_settings_of_probes_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.parse(f"{GOOD}[probes]\n{text}", "drld.toml")
    (line,) = caught.value.problems
    assert line.startswith(f"drld.toml: {problem}")
