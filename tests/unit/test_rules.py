"""Golden texts for the tools."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_network

import pytest

from drld.capture.iptables_rules import (
    ChainState,
    iptables_chain,
    iptables_install,
    iptables_put_back,
    iptables_state,
)
from drld.capture.nfqueue.firewall import operator_rules
from drld.capture.nft_rules import nft_install, nft_release, nft_remove
from drld.capture.queue_hooks import Hook, Point, label, plan
from drld.capture.spec import Match, match_of
from drld.errors import DatapathError
from drld.police.direction import Direction
from drld.policy import Mode
from drld.spec import LimitSpec, OnFailure

from ..factories import limit_spec, with_policy

IN, OUT = Direction.IN, Direction.OUT
NOTHING = dict.fromkeys(Point, ChainState())


def limit(
    interface: str,
    direction: Direction,
    destination: str | None = None,
    source: str | None = None,
    on_failure: OnFailure = OnFailure.CLOSED,
) -> LimitSpec:
    match = Match(
        interface,
        direction,
        source=ip_network(source) if source else None,
        destination=ip_network(destination) if destination else None,
    )
    return limit_spec(match=match, on_failure=on_failure)


# The plan


def test_each_interface_and_direction_has_one_hook() -> None:
    limits = [limit("eth1", OUT), limit("eth0", IN), limit("eth1", OUT), limit("eth1", IN)]
    hooks = plan(limits)
    assert [(hook.interface, hook.direction) for hook in hooks] == [
        ("eth0", IN),
        ("eth1", IN),
        ("eth1", OUT),
    ]
    assert all(hook.families == (4, 6) and hook.side is None for hook in hooks)


@pytest.mark.parametrize(
    ("settings", "bypass"),
    [
        ("open", True),
        ("open open", True),
        ("default", False),
        ("closed", False),
        ("closed default", False),
        ("shadow-default", True),
        ("shadow-default open", True),
        ("shadow-default default", False),
        ("shadow-closed", False),
    ],
)
@pytest.mark.parametrize("silent", [Mode.SHADOW, Mode.PAUSE])
def test_a_hook_is_bypassed_if_no_limit_of_it_stops_packets(
    settings: str, bypass: bool, silent: Mode
) -> None:
    limits = [
        with_policy(limit("eth1", OUT, on_failure=OnFailure(word)), mode=silent)
        if mode
        else limit("eth1", OUT, on_failure=OnFailure(word))
        for mode, word in (setting.rpartition("shadow-")[1:] for setting in settings.split())
    ]
    other = limit("eth1", IN, on_failure=OnFailure.CLOSED)
    (_, hook) = plan([*limits, other])
    assert hook.bypass is bypass


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("closed share", r'limit b: on_failure = "share": only the kernel datapath'),
        (
            "open default",
            r'limit a: on_failure = "open", but limit b has the default, "closed": .* on out eth1',
        ),
        ("closed open", r'limit b: on_failure = "open", but limit a has "closed"'),
    ],
)
def test_on_failure_that_only_the_kernel_datapath_has_is_refused(settings: str, said: str) -> None:
    limits = [
        with_policy(limit("eth1", OUT, on_failure=OnFailure(word)), name=name)
        for name, word in zip("ab", settings.split(), strict=True)
    ]
    with pytest.raises(DatapathError, match=said):
        plan(limits)


def test_prefixes_narrow_a_hook_if_every_limit_has_one_on_the_same_side() -> None:
    (hook,) = plan(
        [
            limit("eth1", OUT, "10.9.2.0/25"),
            limit("eth1", OUT, "10.9.2.128/25", source="10.0.0.0/8"),
            limit("eth1", OUT, "10.9.2.7/32"),
            limit("eth1", OUT, "fd00::/64"),
        ]
    )
    assert (hook.side, hook.families) == ("daddr", (4, 6))
    assert hook.prefixes == {4: ("10.9.2.0/24",), 6: ("fd00::/64",)}

    (hook,) = plan(
        [limit("eth1", OUT, source="10.0.0.0/8"), limit("eth1", OUT, source="11.0.0.0/8")]
    )
    assert (hook.side, hook.families) == ("saddr", (4,))
    assert hook.prefixes == {4: ("10.0.0.0/7",)}


def test_a_limit_without_a_prefix_widens_its_hook() -> None:
    (hook,) = plan([limit("eth1", OUT, "10.9.2.0/24"), limit("eth1", OUT)])
    assert hook == Hook("eth1", OUT, False, (4, 6))


def test_different_sides_leave_only_the_families() -> None:
    (hook,) = plan([limit("eth1", OUT, "10.9.2.0/24"), limit("eth1", OUT, source="10.0.0.0/8")])
    assert hook == Hook("eth1", OUT, False, (4,))


@pytest.mark.parametrize("name", ["", "-j", "*", "e*h", "eth+", 'e"0', "a b", "e;0", "x" * 16, "é"])
def test_interface_names_that_mean_something_to_a_firewall_are_refused(name: str) -> None:
    with pytest.raises(DatapathError, match="customer-a: no interface can be called"):
        plan([limit(name, OUT)])


# Names


def test_simple_names_stay_and_others_are_hashed() -> None:
    assert label("lim1") == "lim1"
    assert label("eu-west.1") == "eu-west.1"
    assert label("x" * 19) == "x" * 19
    for name in ("x" * 20, "x" * 64, 'a"; b', "", "é"):
        made = label(name)
        assert 9 <= len(made) <= 19
        assert made.isascii()
        assert not set(made) & set('"; ')
    assert label("x" * 20) != label("x" * 21)


def test_chain_names_fit_iptables() -> None:
    for name in ("lim1", "x" * 19, "x" * 64):
        for point in Point:
            assert len(iptables_chain(name, point)) <= 28


# nft

SETS = (
    Hook("eth0", IN, True, (4,), "saddr", {4: ("10.0.0.0/8", "172.16.0.0/12")}),
    Hook("eth1", IN, False, (6,)),
    Hook("eth1", OUT, False, (4, 6), "daddr", {4: ("10.9.2.0/24",), 6: ("fd00::/64",)}),
    Hook("eth2", OUT, True, (4, 6)),
)


def test_nft_gets_one_table_with_all_hooks() -> None:
    assert nft_install("lim1", SETS, 17) == (
        "add table inet drld-lim1\n"
        "add chain inet drld-lim1 in"
        " { type filter hook prerouting priority -149; policy accept; }\n"
        "add chain inet drld-lim1 out"
        " { type filter hook postrouting priority -149; policy accept; }\n"
        "flush table inet drld-lim1\n"
        'add rule inet drld-lim1 in iifname "eth0"'
        " ip saddr { 10.0.0.0/8, 172.16.0.0/12 } queue num 17 bypass\n"
        'add rule inet drld-lim1 in iifname "eth1" meta nfproto ipv6 queue num 17\n'
        'add rule inet drld-lim1 out oifname "eth1" ip daddr { 10.9.2.0/24 } queue num 17\n'
        'add rule inet drld-lim1 out oifname "eth1" ip6 daddr { fd00::/64 } queue num 17\n'
        'add rule inet drld-lim1 out oifname "eth2" queue num 17 bypass\n'
    )


def test_nft_removes_the_table_or_empties_it_and_keeps_its_chains() -> None:
    assert nft_remove("lim1") == "add table inet drld-lim1\ndelete table inet drld-lim1\n"
    assert nft_release("lim1") == "add table inet drld-lim1\nflush table inet drld-lim1\n"


# iptables

RULES_4 = """*mangle
:drld-lim1-in - [0:0]
:drld-lim1-out - [0:0]
-A drld-lim1-in -i eth0 -j NFQUEUE --queue-num 17 --queue-bypass
{jump_in}-A drld-lim1-out -o eth1 -d 10.9.2.0/24 -j NFQUEUE --queue-num 17
-A drld-lim1-out -o eth2 -j NFQUEUE --queue-num 17 --queue-bypass
{jump_out}COMMIT
"""
JUMP_IN = "-A PREROUTING -j drld-lim1-in\n"
JUMP_OUT = "-A POSTROUTING -j drld-lim1-out\n"


ONCE = ChainState(True, 1)


@pytest.mark.parametrize(
    ("there", "jump_in", "jump_out"),
    [
        pytest.param({}, JUMP_IN, JUMP_OUT, id="from nothing"),
        pytest.param({Point.IN: ONCE, Point.OUT: ONCE}, "", "", id="again: no second jump"),
        pytest.param(
            {Point.IN: ChainState(True, 0), Point.OUT: ChainState(True, 3)},
            JUMP_IN,
            "-D POSTROUTING -j drld-lim1-out\n" * 2,
            id="what is half there is repaired",
        ),
    ],
)
def test_iptables_gets_chains_and_one_jump_each(
    there: dict[Point, ChainState], jump_in: str, jump_out: str
) -> None:
    expected = RULES_4.format(jump_in=jump_in, jump_out=jump_out)
    assert iptables_install("lim1", SETS, 17, 4, {**NOTHING, **there}) == expected


def test_ip6tables_gets_the_hooks_of_ipv6_alone() -> None:
    assert iptables_install("lim1", SETS[1:3], 17, 6, NOTHING) == (
        "*mangle\n"
        ":drld-lim1-in - [0:0]\n"
        ":drld-lim1-out - [0:0]\n"
        "-A drld-lim1-in -i eth1 -j NFQUEUE --queue-num 17\n"
        f"{JUMP_IN}"
        "-A drld-lim1-out -o eth1 -d fd00::/64 -j NFQUEUE --queue-num 17\n"
        f"{JUMP_OUT}"
        "COMMIT\n"
    )


def test_iptables_removes_rules_that_are_not_wanted() -> None:
    states = {**NOTHING, Point.IN: ChainState(True, 2), Point.OUT: ChainState(True, 1)}
    assert iptables_install("lim1", SETS[2:3], 17, 4, states) == (
        "*mangle\n"
        ":drld-lim1-out - [0:0]\n"
        "-D PREROUTING -j drld-lim1-in\n"
        "-D PREROUTING -j drld-lim1-in\n"
        "-F drld-lim1-in\n"
        "-X drld-lim1-in\n"
        "-A drld-lim1-out -o eth1 -d 10.9.2.0/24 -j NFQUEUE --queue-num 17\n"
        "COMMIT\n"
    )
    assert iptables_install("lim1", (), 17, 4, NOTHING) == ""


SAVED = """# Generated by iptables-save
*filter
:INPUT ACCEPT [0:0]
:drld-lim1-out - [0:0]
-A POSTROUTING -j drld-lim1-out
COMMIT
*mangle
:PREROUTING ACCEPT [3:180]
:POSTROUTING ACCEPT [0:0]
:drld-lim1-in - [0:0]
:drld-lim10-out - [0:0]
-A PREROUTING -j drld-lim1-in
-A PREROUTING -i eth0 -j drld-lim1-in
-A PREROUTING -j drld-lim1-in
-A POSTROUTING -j drld-lim10-out
-A drld-lim1-in -i eth0 -j NFQUEUE --queue-num 17
COMMIT
"""


# Where packets bear the time of their arrival

STAMPED = replace(SETS[2], stamped=True)
STAMPED_4 = """*security
:drld-lim1-via - [0:0]
:drld-lim1-gen - [0:0]
-A drld-lim1-via -o eth1 -d 10.9.2.0/24 -j NFQUEUE --queue-num 17
-A FORWARD -j drld-lim1-via
-A drld-lim1-gen -o eth1 -d 10.9.2.0/24 -m addrtype ! --src-type LOCAL -j NFQUEUE --queue-num 17
-A OUTPUT -j drld-lim1-gen
COMMIT
*mangle
:drld-lim1-out - [0:0]
-A drld-lim1-out -o eth1 -d 10.9.2.0/24 -m addrtype --src-type LOCAL -j NFQUEUE --queue-num 17
-A POSTROUTING -j drld-lim1-out
COMMIT
"""


def test_hooks_out_are_stamped_unless_a_limit_matches_marks() -> None:
    plain, inwards = limit("eth1", OUT), limit("eth0", IN)
    marked = replace(plain, match=replace(match_of(plain), interface="eth2", mark=(1, 1)))
    hooks = plan([plain, inwards, marked], stamped=True)
    assert [(hook.interface, hook.stamped) for hook in hooks] == [
        ("eth0", False),
        ("eth1", True),
        ("eth2", False),
    ]
    assert not any(hook.stamped for hook in plan([plain, inwards, marked]))
    (both,) = plan(
        [plain, replace(plain, match=replace(match_of(plain), mark=(1, 1)))], stamped=True
    )
    assert not both.stamped


def test_nft_takes_packets_of_a_stamped_hook_early() -> None:
    assert nft_install("lim1", [replace(SETS[3], stamped=True)], 17) == (
        "add table inet drld-lim1\n"
        "add chain inet drld-lim1 in"
        " { type filter hook prerouting priority -149; policy accept; }\n"
        "add chain inet drld-lim1 out"
        " { type filter hook postrouting priority -149; policy accept; }\n"
        "add chain inet drld-lim1 via"
        " { type filter hook forward priority 51; policy accept; }\n"
        "add chain inet drld-lim1 gen"
        " { type filter hook output priority 51; policy accept; }\n"
        "flush table inet drld-lim1\n"
        'add rule inet drld-lim1 via oifname "eth2" queue num 17 bypass\n'
        'add rule inet drld-lim1 out oifname "eth2" fib saddr type local queue num 17 bypass\n'
        'add rule inet drld-lim1 gen oifname "eth2" fib saddr type != local queue num 17 bypass\n'
    )


def test_iptables_takes_packets_of_a_stamped_hook_early() -> None:
    assert iptables_install("lim1", [STAMPED], 17, 4, NOTHING) == STAMPED_4


def test_a_hook_that_moves_is_never_without_a_rule() -> None:
    """A packet between two tables may meet both, but at least one."""
    states = iptables_state("lim1", STAMPED_4)
    assert states[Point.FORWARDED] == ChainState(
        True, 1, ("-A drld-lim1-via -o eth1 -d 10.9.2.0/24 -j NFQUEUE --queue-num 17",)
    )
    back = iptables_install("lim1", [SETS[2]], 17, 4, states)
    assert back.index("*mangle") < back.index("*security")
    assert "-F drld-lim1-via\n-X drld-lim1-via\n" in back
    there = iptables_install("lim1", [STAMPED], 17, 4, iptables_state("lim1", RULES_4))
    assert there.index("*security") < there.index("*mangle")
    again = iptables_install("lim1", [STAMPED], 17, 4, states)
    assert again.count("-j drld-lim1") == 0


def test_iptables_chains_are_put_back_as_they_were() -> None:
    before = iptables_state("lim1", RULES_4.format(jump_in=JUMP_IN, jump_out=JUMP_OUT))
    after = iptables_state("lim1", STAMPED_4)
    back = iptables_put_back("lim1", before, after)
    rules = before[Point.IN].rules + before[Point.OUT].rules
    assert all(f"{rule}\n" in back for rule in rules)
    assert "-F drld-lim1-via\n-X drld-lim1-via\n" in back
    assert iptables_put_back("lim1", NOTHING, after).count("-X ") == 3
    assert iptables_put_back("lim1", before, before) == ""
    # A chain without a jump to it gets none.
    idle = {**NOTHING, Point.IN: ChainState(True, 0, rules)}
    assert iptables_put_back("lim1", idle, NOTHING) == ""


def test_iptables_state_counts_the_limiter_s_own_chains_and_jumps_alone() -> None:
    assert iptables_state("lim1", SAVED) == {
        **NOTHING,
        Point.IN: ChainState(True, 2, ("-A drld-lim1-in -i eth0 -j NFQUEUE --queue-num 17",)),
    }
    assert iptables_state("lim10", SAVED) == {**NOTHING, Point.OUT: ChainState(True, 1)}
    assert iptables_state("lim1", "") == NOTHING


def test_operators_get_the_rules_for_both_tools() -> None:
    text = operator_rules("lim1", SETS[:1], 17)
    assert nft_install("lim1", SETS[:1], 17) in text
    assert iptables_install("lim1", SETS[:1], 17, 4, NOTHING) in text
    assert "ip6tables" not in text
