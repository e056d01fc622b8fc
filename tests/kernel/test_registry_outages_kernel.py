"""A fleet whose etcd is away, was wiped, forgot its history, or holds garbage."""

from __future__ import annotations

import json
import signal

from .registry_host import FPS, TABLE, RegistryFleet, in_force, joined, names, status
from .topology import wait_for


def test_the_fleet_keeps_its_last_state_while_etcd_is_away(fleet: RegistryFleet) -> None:
    first, second = fleet.started(1, 2)
    fleet.limit("add", *FPS)
    in_force(first, "customer-a", 10e6, ["lim2"])
    fleet.etcd.kill()
    lost = fleet.wait(first, lambda report: report["registry"]["state"] == "unreachable")
    assert lost["registry"]["error"] is not None
    in_force(first, "customer-a", 10e6, ["lim2"])
    # One that restarts meanwhile remembers.
    second.kill()
    second.start()
    assert status(second)["registry"]["state"] == "unreachable"
    assert status(second)["registry"]["joined"]
    in_force(second, "customer-a", 10e6, ["lim1"])
    in_force(first, "customer-a", 10e6, ["lim2"])
    assert first.log.count("going on with the fleet as last known") == 1
    fleet.etcd.start()
    for daemon in (first, second):
        fleet.wait(daemon, lambda report: report["registry"]["state"] == "connected")
    wait_for(
        lambda: [m["state"] for m in fleet.fleet("members")], lambda seen: seen == ["joined"] * 2
    )
    assert fleet.limit("remove", "1")["applied"] == ["lim1", "lim2"]
    # Once for every outage; a server that has just started may have another.
    assert (
        first.log.count("fleet f at ")
        == first.log.count("going on with the fleet as last known") + 1
    )


def test_a_daemon_that_never_knew_its_fleet_waits_for_etcd(fleet: RegistryFleet) -> None:
    fleet.etcd.kill()
    daemon = fleet.daemon(1)
    daemon.spawn()
    assert daemon.wait_for_log("waiting, and limiting nothing")
    report = fleet.wait(daemon, lambda report: report["registry"]["state"] == "waiting")
    assert not report["ready"]
    assert daemon.ctl("reload", check=False).returncode == 1
    fleet.etcd.start()
    assert daemon.wait_for_state("READY=1")
    # Nor was it said before that it were ready, when it had refused to reload.
    assert daemon.states == ["READY=1"]
    fleet.wait(daemon, lambda report: joined(report, 1))
    assert daemon.stop() == 0


def test_a_fleet_that_was_shut_down_starts_without_etcd(fleet: RegistryFleet) -> None:
    """Each left fewer behind than the one before, and all take their part of the whole."""
    daemons = fleet.started(1, 2)
    fleet.limit("add", *FPS)
    for daemon in daemons:
        assert daemon.stop() == 0
    fleet.etcd.kill()
    for number, daemon in enumerate(daemons, start=1):
        daemon.start()
        assert daemon.wait_for_log(f"lim{number} was not a member, so no limiter counts it")
        assert not joined(daemon.get("/v1/status"), 2)
        assert daemon.get("/v1/limits")[0]["fill_rate_bps"] == 5e6
    fleet.etcd.start()
    for daemon in daemons:
        fleet.wait(daemon, lambda report: joined(report, 2))
        assert names(daemon) == ["customer-a"]


def test_a_wiped_etcd_is_filled_again_and_no_limiter_drops_a_member(fleet: RegistryFleet) -> None:
    first, second = fleet.started(1, 2)
    fleet.limit("add", *FPS)
    third = fleet.daemon(3)
    third.start()
    fleet.wait(third, lambda report: joined(report, 3))
    third.kill()
    before = fleet.etcd.get("/drld/f/")
    fleet.etcd.wipe()
    fleet.etcd.start()
    kept = ["fleet", "limits/1", "members/lim1", "members/lim2", "members/lim3"]
    wanted = {key: before[key] for key in (f"/drld/f/{name}" for name in kept)}

    def restored() -> dict[str, bytes]:
        found = fleet.etcd.get("/drld/f/")
        return {key: value for key, value in found.items() if "/alive/" not in key}

    assert wait_for(restored, lambda seen: seen == wanted) == wanted
    for daemon in (first, second):
        report = fleet.wait(daemon, lambda report: report["registry"]["state"] == "connected")
        assert report["registry"]["members"] == 3
        assert report["limits"] == 1
        fleet.wait(daemon, lambda report: report["registry"]["lost"] == 0)
    # Everything deleted while all watch: the same.
    fleet.etcd.delete("/drld/f/")
    assert wait_for(restored, lambda seen: seen == wanted) == wanted
    for daemon in (first, second):
        report = fleet.wait(daemon, lambda report: joined(report, 3))
        assert report["limits"] == 1
    # Each time, one of them may see etcd only when the other has put all there again.
    warned = [daemon.log.count("etcd has lost") for daemon in (first, second)]
    assert max(warned) <= 2 <= sum(warned)
    third.start()
    assert fleet.wait(third, lambda report: joined(report, 3))


def test_garbage_changes_nothing_and_is_named(fleet: RegistryFleet) -> None:
    first, second = fleet.started(1, 2)
    fleet.limit("add", *FPS)
    fleet.etcd.put("/drld/f/limits/1", b"\xff\x00 garbage")
    fleet.etcd.put("/drld/f/limits/9", json.dumps({**TABLE, "id": 9, "rate": "fast"}))
    fleet.etcd.put("/drld/f/members/lim2", "[1, 2]")
    fleet.etcd.put("/drld/f/members/\x1b[31m", "{}")
    fleet.etcd.put("/drld/f/limits/12345678", "{}")
    for number in range(18):
        fleet.etcd.put(f"/drld/f/members/junk{number}", "{")

    for daemon in (first, second):
        # lim2 puts its own key right again.
        report = fleet.wait(daemon, lambda report: report["registry"]["problem_count"] == 20)
        problems = report["registry"]["problems"]
        assert problems["/drld/f/limits/1"].startswith("etcd /drld/f/limits/1: not JSON")
        assert "rate: must be a rate such as" in problems["/drld/f/limits/9"]
        assert report["registry"]["members"] == 2
        assert names(daemon) == ["customer-a"]
        assert "\x1b" not in daemon.log
    in_force(first, "customer-a", 10e6, ["lim2"])
    fleet.etcd.put("/drld/f/members/junk18", "{")
    report = fleet.wait(first, lambda report: report["registry"]["problem_count"] == 21)
    assert len(report["registry"]["problems"]) == 20
    # And it can be put right.
    fleet.etcd.delete("/drld/f/members/junk")
    assert fleet.limit("set", "1", *FPS)["ids"] == [1]
    assert fleet.limit("remove", "9")["applied"] == ["lim1", "lim2"]
    for daemon in (first, second):
        fleet.wait(daemon, lambda report: joined(report, 2))


def test_a_frozen_limiter_survives_a_compacted_history(fleet: RegistryFleet) -> None:
    first, second = fleet.started(1, 2)
    second.signal(signal.SIGSTOP)
    for rate in range(1, 30):
        fleet.etcd.put("/drld/f/limits/7", json.dumps({**TABLE, "rate": f"{rate}mbit"}))
    fleet.etcd.compact()
    fleet.etcd.kill()
    fleet.etcd.start()
    fleet.etcd.put("/drld/f/limits/8", json.dumps({**TABLE, "id": 8, "name": "eight"}))
    fleet.etcd.compact()
    second.signal(signal.SIGCONT)
    for daemon in (first, second):
        fleet.wait(daemon, lambda report: report["limits"] == 2)
        assert daemon.limit("seven")["rate_bps"] == 29e6
