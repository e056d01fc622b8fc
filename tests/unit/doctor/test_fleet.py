"""The doctor's judgements on a daemon's reports."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import pytest

from drld.control.schema.peers import PeerReport
from drld.control.schema.status import RegistryReport, StatusReport
from drld.doctor import fleet
from drld.doctor.finding import Finding, Level
from tests.control_fake import PEERS, STATUS

OK, REMARK, WRONG = Level.OK, Level.REMARK, Level.WRONG


def status(**changes: Any) -> StatusReport:
    """A daemon in order."""
    made: Any = copy.deepcopy(STATUS)
    made["probes"]["disagreeing"] = {}
    made["gossip"]["rejected"] = {}
    made["datapath"]["counters"] = {}
    for path, value in changes.items():
        *tables, key = path.split("__")
        table = made
        for each in tables:
            table = table[each]
        table[key] = value
    result: StatusReport = made
    return result


def peer(**changes: Any) -> PeerReport:
    made: Any = {**PEERS[0], **changes}
    result: PeerReport = made
    return result


def levels(found: Iterable[Finding]) -> list[tuple[str, Level]]:
    return [(each.check, each.level) for each in found]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [("daemon", OK)]),
        ({"ready": False}, [("daemon", WRONG)]),
        ({"ready": False, "uptime_s": 4.0}, [("daemon", REMARK)]),
        ({"version": "0.0.9"}, [("daemon", OK), ("version", REMARK)]),
        ({"probes__awareness": 3}, [("daemon", OK), ("lateness", REMARK)]),
        ({"probes__awareness": 3, "probes__alive": 0}, [("daemon", OK)]),
        ({"probes__awareness": 3, "probes__isolated": True}, [("daemon", OK)]),
        ({"datapath__counters": {"errors": 1}}, [("daemon", OK), ("datapath", WRONG)]),
    ],
)
def test_the_state_of_the_process_is_judged(
    changes: dict[str, Any], expected: list[tuple[str, Level]]
) -> None:
    assert levels(fleet.daemon(status(**changes), "0.1.0")) == expected


@pytest.mark.parametrize(
    ("changes", "differs", "expected"),
    [
        ({}, [], [("configuration", OK)]),
        ({}, None, []),
        ({}, ["limit a"], [("configuration", REMARK)]),
        ({"config__reload_error": "drld.toml: bad"}, ["limit a"], [("reload", WRONG)]),
        ({"config__unsaved": ["a"]}, [], [("configuration", OK), ("unsaved changes", REMARK)]),
    ],
)
def test_the_configuration_in_force_is_compared_with_the_file(
    changes: dict[str, Any], differs: list[str] | None, expected: list[tuple[str, Level]]
) -> None:
    assert levels(fleet.configuration(status(**changes), differs)) == expected


@pytest.mark.parametrize(
    ("report", "uptime_s", "probed", "level"),
    [
        (peer(), 100, True, OK),
        (peer(connected=False), 100, True, OK),  # in a tree, no neighbour
        (peer(connected=False), 100, False, WRONG),
        (peer(verdict="dead"), 100, True, WRONG),
        (peer(verdict="suspect"), 100, True, REMARK),
        (peer(verdict="left"), 100, True, REMARK),
        (peer(verdict="unknown", age_s=None), 100, True, WRONG),
        (peer(verdict="unknown", age_s=None), 3, True, REMARK),
    ],
)
def test_each_peer_is_judged_by_its_verdict(
    report: PeerReport, uptime_s: float, probed: bool, level: Level
) -> None:
    made = status(uptime_s=uptime_s)
    if not probed:
        made["probes"] = None
    (found,) = fleet.peers(made, [report])
    assert found.level is level
    assert found.check == ("peers" if level is OK else "peer lim2")
    assert level is OK or report["verdict"] in found.what


@pytest.mark.parametrize(
    ("report", "what"),
    [
        (peer(verdict="dead", age_s=None), "dead"),  # heard by probes: no neighbour in the tree
        (peer(verdict="dead", age_s=3), "dead, last update 3.00 s ago"),
        (peer(verdict="unknown", age_s=None), "unknown, never heard"),
    ],
)
def test_a_silent_peer_was_never_heard_only_if_probes_say_so(report: PeerReport, what: str) -> None:
    (found,) = fleet.peers(status(), [report])
    assert found.what == f"{report['address']}: {what}"


def test_a_fleet_of_one_has_no_peers_to_speak_of() -> None:
    assert levels(fleet.peers(status(), [])) == []


def test_isolation_and_disagreement_are_wrong() -> None:
    found = fleet.peers(status(probes__isolated=True), [peer(verdict="suspect")])
    assert levels(found) == [("peers", WRONG), ("peer lim2", REMARK)]
    (_, differing) = fleet.peers(
        status(probes__disagreeing={"lim2": ["a", "b (not there)"]}), [peer()]
    )
    assert (differing.level, differing.what) == (
        WRONG,
        "has a different configuration: limits that differ: a; limits missing there: b",
    )


@pytest.mark.parametrize("reason", fleet.CAUSES)
def test_refusals_count_if_they_go_on(reason: str) -> None:
    rejected = {reason: 200, "replayed": 9000}
    for uptime_s, expected in ((100.0, [(f"gossip {reason}", WRONG)]), (1e5, [("gossip", OK)])):
        found = fleet.gossip(status(uptime_s=uptime_s, gossip__rejected=rejected))
        assert levels(found) == expected


@pytest.mark.parametrize(
    ("error", "cause"),
    [("EPERM", "firewall"), ("ENETUNREACH", "no route"), ("EMSGSIZE", "MTU"), ("EIO", "EIO")],
)
def test_errors_of_sending_are_reported(error: str, cause: str) -> None:
    (found,) = fleet.gossip(status(gossip__errors={error: 3}))
    assert found.level is WRONG
    assert cause in found.what
    assert found.do


def registry(**changes: Any) -> RegistryReport:
    made: Any = {
        "state": "connected",
        "endpoint": "http://etcd1:2379",
        "error": None,
        "problems": {},
        "problem_count": 0,
        "cache_error": None,
        **changes,
    }
    result: RegistryReport = made
    return result


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [("registry", OK)]),
        ({"state": "waiting"}, [("registry", WRONG)]),
        ({"state": "unreachable", "error": "no answer"}, [("registry", WRONG)]),
        ({"problems": {"/k": "not JSON"}, "problem_count": 1}, [("registry /k", WRONG)]),
        ({"cache_error": "disk full"}, [("registry cache", WRONG), ("registry", OK)]),
    ],
)
def test_the_state_of_the_registry_is_judged(
    changes: dict[str, Any], expected: list[tuple[str, Level]]
) -> None:
    assert levels(fleet.registry(registry(**changes))) == expected
