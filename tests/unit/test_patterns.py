"""Interfaces by pattern: which they are, and that each packet is counted once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from drld.capture.iptables_rules import ChainState, iptables_install
from drld.capture.matcher import Matcher
from drld.capture.nft_rules import nft_install
from drld.capture.packet import Header
from drld.capture.patterns import covers, followed
from drld.capture.queue_hooks import Hook, Point, plan
from drld.capture.spec import Match
from drld.errors import DatapathError
from drld.police.direction import Direction
from drld.spec import LimitSpec, OnFailure

from ..factories import limit_spec
from . import test_matcher as matcher

OUT = Direction.OUT


@pytest.mark.parametrize(
    ("interface", "name", "expected"),
    [
        ("eth0", "eth0", True),
        ("eth0", "eth01", False),
        ("eth*", "eth0", True),
        ("eth*", "eth", True),
        ("eth*", "veth0", False),
        ("eth0", "eth*", False),
    ],
)
def test_the_names_that_a_pattern_covers(interface: str, name: str, expected: bool) -> None:
    assert covers(interface, name) is expected


@pytest.mark.parametrize(
    ("pattern", "below", "names", "twice"),
    [
        ("eth*", {"eth1": [], "eth0": [], "lo": []}, ["eth0", "eth1"], []),
        ("eth*", {}, [], []),
        # A VLAN's packets cross the interface below it.
        ("eth*", {"eth0": [], "eth0.5": ["eth0"], "eth0.5.7": ["eth0.5"]}, ["eth0"], []),
        ("bond*", {"bond0": ["eth0"], "bond0.5": ["bond0"], "eth0": []}, ["bond0"], []),
        ("e*", {"eth0": [], "ebond": ["eth0", "eth1"], "eth1": []}, ["eth0", "eth1"], []),
        # Between both lies one that does not match.
        ("e*", {"eth0": [], "bond0": ["eth0"], "e5": ["bond0"]}, ["eth0"], []),
        # A bridge to ports of which only one matches.
        ("b*", {"b0": [], "br0": ["b0", "eth0"], "eth0": []}, ["b0", "br0"], ["br0"]),
    ],
)
def test_the_lowest_of_stacked_interfaces_counts(
    pattern: str, below: Mapping[str, Sequence[str]], names: list[str], twice: list[str]
) -> None:
    assert followed(pattern, below) == (names, twice)


def test_the_matcher_forgets_interfaces_that_it_cannot_keep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("drld.capture.matcher.MEMORY", 9)
    limits = [matcher.limit(1, "veth*"), matcher.limit(2, "veth7"), matcher.limit(3, "eth1")]
    found = Matcher(limits)
    header: Header = matcher.header()
    for number in range(20):
        ids = [it.id for it in found.classify(header, f"veth{number}", OUT, 0)]
        assert ids == ([1, 2] if number == 7 else [1])
    assert [it.id for it in found.classify(header, "eth1", OUT, 0)] == [3]
    assert not found.classify(header, "eth2", OUT, 0)
    assert len(found._out) <= 12


def limit(interface: str, on_failure: OnFailure = OnFailure.CLOSED, **match: Any) -> LimitSpec:
    return limit_spec(match=Match(interface, OUT, **match), on_failure=on_failure)


def test_both_tools_get_the_pattern_in_their_own_notation() -> None:
    hooks = plan([limit("veth*")])
    nothing = dict.fromkeys(Point, ChainState())
    assert 'oifname "veth*" queue num 3' in nft_install("a", hooks, 3)
    assert "-o veth+ -j NFQUEUE --queue-num 3" in iptables_install("a", hooks, 3, 4, nothing)


def test_rules_that_can_meet_the_same_packet_agree() -> None:
    limits = [limit("veth*", OnFailure.OPEN), limit("veth1", OnFailure.CLOSED)]
    with pytest.raises(DatapathError, match="all limits on out veth"):
        plan(limits)
    assert [hook.bypass for hook in plan([*limits[:1], limit("eth1")])] == [False, True]
    opened: tuple[Hook, ...] = plan([limits[0], limit("veth1", OnFailure.OPEN)])
    assert [hook.bypass for hook in opened] == [True, True]


def test_a_packet_is_not_queued_at_two_points() -> None:
    """A limit that matches marks is carried out late, and then all of them are."""
    limits = [limit("a*"), limit("ab", mark=(1, 1)), limit("ac")]
    assert [hook.stamped for hook in plan(limits, stamped=True)] == [False, False, False]
    assert [hook.stamped for hook in plan(limits[1:], stamped=True)] == [False, True]
    assert [hook.stamped for hook in plan(limits[::2], stamped=True)] == [True, True]
