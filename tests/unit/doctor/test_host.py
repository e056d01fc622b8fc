"""The doctor's judgements on facts of a host, and how it reads some of them."""

from __future__ import annotations

import os
import pwd
import stat
from typing import Any

import pytest

from drld.doctor import host
from drld.doctor.facts.host import iptables_chains, nft_chains, output, user
from drld.doctor.finding import Level
from drld.gossip.wire.message import MAX_DATAGRAM

from .test_fleet import levels

OK, UNSEEN, REMARK, WRONG = Level.OK, Level.UNSEEN, Level.REMARK, Level.WRONG
DAEMON, OTHER = (7, "drld"), (8, "nginx")


@pytest.mark.parametrize(
    ("local", "pid", "owners", "level", "word"),
    [
        (True, 7, [DAEMON], OK, "by the daemon"),
        (True, 7, [DAEMON, OTHER], WRONG, "nginx (pid 8)"),
        (True, 7, [], WRONG, "the daemon has another"),
        (True, 7, None, OK, "bound"),
        (True, None, [], OK, "free"),
        (True, None, [OTHER], WRONG, "nginx (pid 8)"),
        (True, None, None, UNSEEN, "cannot be seen"),
        (False, None, [], WRONG, "not on this host"),
    ],
)
def test_the_port_is_judged_by_its_owners(
    local: bool, pid: int | None, owners: Any, level: Level, word: str
) -> None:
    found = host.port(host.Port("10.0.0.1", 7946, local, pid, owners))
    assert found.level is level
    assert word in found.what


@pytest.mark.parametrize(
    ("family", "mtu", "expected"),
    [
        (4, 1500, [("routes", OK)]),
        (4, MAX_DATAGRAM + 28, [("routes", OK)]),
        (4, MAX_DATAGRAM + 27, [("MTU to b", REMARK)]),
        (6, MAX_DATAGRAM + 48, [("routes", OK)]),
        (6, MAX_DATAGRAM + 47, [("MTU to b", REMARK)]),
        (4, None, [("route to b", WRONG)]),
    ],
)
def test_routes_to_peers_are_judged(
    family: int, mtu: int | None, expected: list[tuple[str, Level]]
) -> None:
    assert levels(host.ways([host.Way("b", "::1", family, mtu, "no route")])) == expected


RULESET = """
table inet filter {
	chain forward {
		type filter hook forward priority filter; policy drop;
	}
	chain input {
		type filter hook input priority filter; policy drop;
		ct state established accept
		RULE
	}
}
"""


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("udp dport 7946 accept", [("firewall", OK)]),
        ("udp dport { 53, 7946 } accept", [("firewall", OK)]),
        ("udp dport 79461 accept", [("firewall", REMARK)]),
        ("udp dport 7946 drop", [("firewall", WRONG)]),
    ],
)
def test_rules_of_nft_that_drop_gossip_are_found(
    rule: str, expected: list[tuple[str, Level]]
) -> None:
    (chain,) = nft_chains(RULESET.replace("RULE", rule))
    assert chain == host.Chain(
        "table inet filter chain input", True, ("ct state established accept", rule)
    )
    assert levels(host.firewall([chain], 7946)) == expected


def test_rules_of_iptables_that_drop_gossip_are_found() -> None:
    saved = "*filter\n:INPUT DROP [0:0]\n:FORWARD ACCEPT [0:0]\n-A INPUT -i lo -j ACCEPT\nCOMMIT\n"
    (chain,) = iptables_chains("iptables", saved)
    assert (chain.drops, chain.rules) == (True, ("-i lo -j ACCEPT",))
    assert levels(host.firewall([chain], 7946)) == [("firewall", REMARK)]
    (chain,) = iptables_chains("iptables", saved + "-A INPUT -p udp --dport 7946 -j DROP\n")
    assert levels(host.firewall([chain], 7946)) == [("firewall", WRONG)]


def test_a_missing_and_an_unreadable_firewall_are_reported() -> None:
    assert levels(host.firewall([], 7946)) == [("firewall", OK)]
    assert levels(host.firewall(None, 7946)) == [("firewall", UNSEEN)]


@pytest.mark.parametrize(
    ("mode", "owner", "expected"),
    [
        (0o644, 0, [("files", OK)]),
        (0o755, 900, [("files", OK)]),
        (0o664, 0, [("configuration", WRONG)]),
        (0o646, 900, [("configuration", WRONG)]),
        (0o644, 1000, [("configuration", WRONG)]),
        (None, 0, [("files", OK)]),
    ],
)
def test_the_mode_and_owner_of_each_file_are_judged(
    mode: int | None, owner: int, expected: list[tuple[str, Level]]
) -> None:
    mode = None if mode is None else stat.S_IFREG | mode
    file = host.File("configuration", "/etc/drld/drld.toml", mode, owner)
    assert levels(host.files([file], 900)) == expected


def test_files_of_a_stopped_daemon_are_those_of_the_unit_s_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The unit's folders belong to its user, also while the daemon is stopped."""
    unit = pwd.struct_passwd(("drld", "x", 997, 997, "", "/var/lib/drld", "/usr/sbin/nologin"))
    known = {"drld": unit}
    monkeypatch.setattr(pwd, "getpwnam", lambda name: known[name])
    folder = host.File("history", "/var/lib/drld", stat.S_IFDIR | 0o700, 997)
    assert levels(host.files([folder], user(None))) == [("files", OK)]
    assert user(os.getpid()) == os.geteuid()
    known.clear()  # A host without the unit.
    assert levels(host.files([folder], user(None))) == [("history", WRONG)]


def test_drop_ins_that_are_not_read_draw_a_remark() -> None:
    assert levels(host.drop_ins("d", [])) == []
    (found,) = host.drop_ins("d", ["50-a.conf"])
    assert (found.level, "50-a.conf" in found.what) == (REMARK, True)


@pytest.mark.parametrize(
    ("synchronised", "source", "certificates", "level"),
    [
        (True, "tsc", True, OK),
        (False, "tsc", False, OK),
        (None, "tsc", True, OK),
        (False, "tsc", True, REMARK),
        (True, "hpet", False, REMARK),
    ],
)
def test_clocks_are_judged_if_certificates_need_them(
    synchronised: bool | None, source: str, certificates: bool, level: Level
) -> None:
    found = host.clocks(host.Clocks(synchronised, source, certificates))
    assert levels(found) == [("clock", level)]


@pytest.mark.parametrize(
    ("rmem_max", "net_admin", "tracked", "expected"),
    [
        (1 << 22, False, None, []),
        (212992, True, None, []),
        (212992, False, None, [("receive buffer", REMARK)]),
        (None, False, 899, [("conntrack", OK)]),
        (None, False, 900, [("conntrack", WRONG)]),
    ],
)
def test_buffers_below_the_need_draw_a_remark(
    rmem_max: int | None, net_admin: bool, tracked: int | None, expected: list[tuple[str, Level]]
) -> None:
    facts = host.Buffers(rmem_max, 1 << 22, net_admin, tracked, 1000)
    assert levels(host.buffers(facts)) == expected


@pytest.mark.parametrize(
    ("same", "expected"),
    [(True, []), (None, []), (False, [("network namespace", WRONG)])],
)
def test_the_daemon_s_network_namespace_is_compared(
    same: bool | None, expected: list[tuple[str, Level]]
) -> None:
    assert levels(host.namespaces(host.Namespaces(same, 7))) == expected


def test_the_output_of_a_tool_may_have_any_bytes() -> None:
    """Rules of others may have comments in any encoding."""
    assert output("printf", r"comment \377") == "comment \ufffd"
