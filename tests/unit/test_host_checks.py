"""The doctor's findings from facts about packets."""

from __future__ import annotations

from typing import Any

import pytest

from drld.capture import host_checks as checks
from drld.capture.host_checks import Interface
from drld.capture.spec import Match
from drld.doctor.finding import Level
from drld.police.direction import Direction

from ..factories import limit_spec
from .doctor.test_fleet import levels

OK, UNSEEN, REMARK, WRONG = Level.OK, Level.UNSEEN, Level.REMARK, Level.WRONG
IN, OUT = Direction.IN, Direction.OUT


@pytest.mark.parametrize(
    ("wanted", "refusals", "expected"),
    [
        ("auto", {"kernel": None}, [OK]),
        ("auto", {"kernel": "no headers", "nfqueue": None}, [REMARK, OK]),
        ("auto", {"kernel": "no headers", "nfqueue": "no queue"}, [REMARK, WRONG]),
        ("kernel", {"kernel": "no headers"}, [WRONG]),
        ("nfqueue", {"nfqueue": None}, [OK]),
        ("nfqueue", {"nfqueue": "no queue"}, [WRONG]),
    ],
)
def test_each_limit_that_cannot_be_attached_is_named(
    wanted: str, refusals: dict[str, str | None], expected: list[Level]
) -> None:
    found = list(checks.trial(checks.Trial(wanted, refusals)))
    assert [each.level for each in found] == expected
    for each, refusal in zip(found, refusals.values(), strict=True):
        assert (refusal or "can be attached here") in each.what


def test_without_root_nothing_is_tried() -> None:
    assert levels(checks.trial(None)) == [("datapath", UNSEEN)]


@pytest.mark.parametrize(
    ("reason", "counters", "expected"),
    [
        ("tc-BPF (tcx) on eth0 out", {"reattached": 0}, []),
        ("nfqueue 3; no kernel datapath: no headers", {}, [REMARK]),
        ("nfqueue 3", {"overflow": 2}, [WRONG]),
        ("tc-BPF", {"reattached": 2}, [REMARK]),
    ],
)
def test_trouble_of_the_datapath_in_use_is_found(
    reason: str, counters: dict[str, int], expected: list[Level]
) -> None:
    report: Any = {"reason": reason, "counters": counters}
    assert [each.level for each in checks.in_use(report)] == expected


def mask(*names: str) -> int:
    return sum(1 << checks.CAPABILITIES[name] for name in names)


@pytest.mark.parametrize(
    ("held", "datapath", "expected"),
    [
        (None, "kernel", []),
        (mask(*checks.CAPABILITIES), "kernel", [OK]),
        (mask("CAP_NET_ADMIN", "CAP_SYS_ADMIN"), "kernel", [OK]),
        (mask("CAP_NET_ADMIN", "CAP_BPF", "CAP_PERFMON"), "kernel", [REMARK]),
        (mask("CAP_NET_ADMIN"), "kernel", [WRONG]),
        (mask("CAP_NET_ADMIN"), "nfqueue", [OK]),
        (0, "nfqueue", [WRONG]),
    ],
)
def test_missing_capabilities_are_wrong(
    held: int | None, datapath: str, expected: list[Level]
) -> None:
    assert [each.level for each in checks.capabilities(held, datapath)] == expected


@pytest.mark.parametrize(
    ("facts", "datapath", "expected"),
    [
        (checks.Settings(1, 2), "kernel", []),
        (checks.Settings(None, None), "kernel", []),
        (checks.Settings(0, 2), "kernel", [("bpf_jit_enable", REMARK)]),
        (checks.Settings(1, 0), "kernel", [("unprivileged_bpf_disabled", REMARK)]),
        (checks.Settings(1, 2, flowtables=True), "kernel", []),
        (checks.Settings(1, 2, flowtables=True), "nfqueue", [("flowtable", WRONG)]),
    ],
)
def test_settings_that_harm_the_datapath_are_found(
    facts: checks.Settings, datapath: str, expected: list[tuple[str, Level]]
) -> None:
    assert levels(checks.settings(facts, datapath)) == expected


LARGE = checks.SUPER_PACKETS


@pytest.mark.parametrize(
    ("facts", "direction", "burst", "datapath", "expected"),
    [
        (Interface("e"), OUT, LARGE, "kernel", (OK, "in order")),
        (Interface("e", up=False), OUT, LARGE, "kernel", (REMARK, "is down")),
        (Interface("e", before={OUT: ["tcx program x"]}), OUT, LARGE, "kernel", (WRONG, "x")),
        (Interface("e", before={OUT: ["tcx program x"]}), IN, LARGE, "kernel", (OK, "")),
        (Interface("e", after={OUT: ["tc filter u32"]}), OUT, LARGE, "kernel", (REMARK, "u32")),
        (Interface("e", master="br0"), OUT, LARGE, "kernel", (OK, "")),
        (Interface("e", master="br0"), OUT, LARGE, "nfqueue", (WRONG, "br0")),
        (Interface("e", xdp=True), IN, LARGE, "kernel", (REMARK, "XDP")),
        (Interface("e", xdp=True), OUT, LARGE, "kernel", (OK, "")),
        (Interface("e", queueing="htb"), OUT, LARGE, "kernel", (REMARK, "htb")),
        (Interface("e", queueing="htb"), IN, LARGE, "kernel", (OK, "")),
        (Interface("e", queueing="fq_codel"), OUT, LARGE, "kernel", (OK, "")),
        (Interface("e", reverse_path=1), IN, LARGE, "kernel", (REMARK, "rp_filter")),
        (Interface("e", reverse_path=1), IN, LARGE, "nfqueue", (OK, "")),
        (Interface("e", reverse_path=2), IN, LARGE, "kernel", (OK, "")),
        (Interface("e", offloads=["gro"]), IN, LARGE - 1, "kernel", (REMARK, "(gro)")),
        (Interface("e", offloads=["gro"]), IN, LARGE, "kernel", (OK, "")),
        (Interface("e", offloads=["gro"]), IN, LARGE - 1, "nfqueue", (OK, "")),
        (Interface("e", offloads=["tso"]), IN, LARGE - 1, "kernel", (OK, "")),
        (Interface("e", offloads=["tso"]), OUT, LARGE - 1, "kernel", (REMARK, "(tso)")),
        (Interface("e", offloads=["lro"]), OUT, LARGE, "kernel", (REMARK, "LRO")),
    ],
)
def test_facts_of_an_interface_that_matter_are_judged(
    facts: Interface,
    direction: Direction,
    burst: int,
    datapath: str,
    expected: tuple[Level, str],
) -> None:
    level, word = expected
    limit = limit_spec(burst=burst, match=Match("e", direction))
    (found,) = checks.interfaces({"e": facts}, [limit], datapath)
    assert (found.check, found.level) == (f"interface e {direction.value}", level)
    assert word in found.what


def test_an_interface_that_is_missing_names_its_limits() -> None:
    limits = [limit_spec(match=Match("e", OUT)), limit_spec(name="b", match=Match("e", OUT))]
    (found,) = checks.interfaces({}, limits, "kernel")
    assert found.level is WRONG
    assert "customer-a, b" in found.why


def test_patterns_are_judged_by_the_interfaces_that_they_stand_for() -> None:
    def judged(datapath: str, *there: Interface) -> list[tuple[str, Level]]:
        limits = [limit_spec(match=Match("e*", OUT), burst=LARGE)]
        return levels(checks.interfaces({each.name: each for each in there}, limits, datapath))

    assert judged("kernel") == [("pattern e* out", REMARK)]
    vlan = Interface("e0.5", below=["e0"])
    assert judged("kernel", Interface("e0"), vlan) == [("interface e0 out", OK)]
    bridge = Interface("e9", below=["e0", "veth1"])
    found = judged("kernel", Interface("e0"), bridge, Interface("veth1"))
    assert found[0] == ("pattern e* out", REMARK)
    assert found[1:] == [("interface e0 out", OK), ("interface e9 out", OK)]
    assert ("pattern e* out", REMARK) not in judged("nfqueue", Interface("e0"), bridge)


def test_the_daemon_has_the_kernel_s_clock() -> None:
    assert levels(checks.clock(0.0)) == []
    assert levels(checks.clock(-3.5)) == [("time namespace", WRONG)]
