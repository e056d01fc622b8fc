"""Fleets that come and go: real daemons, a real etcd, and what happens to either."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.netns import run

from .daemon_host import DaemonHost
from .registry_host import LENGTH, RegistryFleet, joined, status
from .topology import remove_stale, wait_for

pytestmark = pytest.mark.kernel

FPS = ("--name", "customer-a", "--rate", "10mbit", "--burst", "75kB", "--out", "uplink")
STATIC = ("--name", "slow", "--rate", "16kbit", "--burst", "24kB", "--out", "uplink")
"""2,000 bytes/s: of two limiters each passes twelve packets at once, and then one a second."""
TABLE = {"id": 7, "name": "seven", "rate": "10mbit", "burst": "75kB", "match": {"out": "uplink"}}


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[RegistryFleet]:
    """A namespace with etcd; daemons in it end with the test."""
    remove_stale()
    made = RegistryFleet(tmp_path)
    try:
        made.build()
        yield made
    finally:
        made.remove()


def in_force(daemon: DaemonHost, name: str, bps: float, connected: list[str]) -> None:
    """Wait until a limit is in force with that rate, and with these peers."""

    def as_wished(limit: Any) -> bool:
        rate, peers = limit["limit_in_force_bps"], limit["fleet"]["connected"]
        return bool(rate == pytest.approx(bps) and peers == connected)

    limit = wait_for(lambda: daemon.limit(name), as_wished)
    assert as_wished(limit), (limit, daemon.log)


def names(daemon: DaemonHost) -> list[str]:
    return [limit["name"] for limit in daemon.get("/v1/limits")]


def test_limiters_join_and_leave_and_a_limit_is_added_to_all(fleet: RegistryFleet) -> None:
    first, second = fleet.started(1, 2)
    added = fleet.limit("add", *FPS)
    assert added["ids"] == [1]
    assert (added["applied"], added["late"], added["refused"]) == (["lim1", "lim2"], [], {})
    for daemon, other in ((first, "lim2"), (second, "lim1")):
        assert names(daemon) == ["customer-a"]
        in_force(daemon, "customer-a", 10e6, [other])

    third = fleet.daemon(3)
    third.start()
    fleet.wait(third, lambda report: joined(report, 3))
    in_force(first, "customer-a", 10e6, ["lim2", "lim3"])
    in_force(third, "customer-a", 10e6, ["lim1", "lim2"])
    assert [(m["name"], m["state"]) for m in fleet.fleet("members")] == [
        ("lim1", "joined"),
        ("lim2", "joined"),
        ("lim3", "joined"),
    ]

    assert third.stop() == 0
    assert "left fleet f" in third.log
    fleet.wait(first, lambda report: joined(report, 2))
    in_force(first, "customer-a", 10e6, ["lim2"])

    second.kill()
    # It stays a member, and its share stays out of the limit.
    in_force(first, "customer-a", 5e6, [])
    wait_for(lambda: fleet.fleet("members")[1]["state"], lambda state: state == "away")
    assert status(first)["registry"]["members"] == 2
    assert fleet.fleet("remove", "lim2")["applied"] == ["lim1"]
    in_force(first, "customer-a", 10e6, [])

    changed = fleet.limit("set", "customer-a", "--rate", "20mbit")
    assert changed["ids"] == [1]
    in_force(first, "customer-a", 20e6, [])
    change = first.ask("history")[0]
    assert (change["via"], change["keys"]) == ("registry", {"rate": ["10mbit", "20mbit"]})
    assert change["revision"] == changed["revision"]
    assert fleet.limit("remove", "customer-a")["applied"] == ["lim1"]
    assert names(first) == []
    assert fleet.limit("add", *FPS)["ids"] == [2]
    for daemon in (first, second, third):
        assert "Traceback" not in daemon.log


def test_a_limit_that_is_added_is_enforced_by_all(fleet: RegistryFleet) -> None:
    fleet.started(1, 2)
    fleet.limit("add", *STATIC, "--allocator", "static")
    for number, daemon in enumerate(fleet.daemons.values(), start=1):
        fleet.send(number, 60)
        report = wait_for(lambda: daemon.limit("slow"), lambda seen: seen["arrived_packets"] == 60)  # noqa: B023 -- called at once
        assert report["arrived_packets"] == 60
        # Half of the burst, and then a packet a second.
        assert 12 <= report["forwarded_bytes"] / LENGTH <= 30
        assert report["dropped_packets"] >= 30


def test_mistakes_are_refused_before_anything_is_written(fleet: RegistryFleet) -> None:
    (first,) = fleet.started(1)
    assert "limit[0].rate: must be a rate" in fleet.limit(
        "add", *FPS, "--rate", "10mbot", check=False
    )
    fleet.limit("add", *FPS)
    said = fleet.limit("add", *FPS, check=False)
    assert "name: must be unique, but etcd /drld/f/limits/1 has it" in said
    said = fleet.limit("add", *FPS, "--id", "1", check=False)
    assert "id: must be one that was never given out, but etcd /drld/f/limits/1 has it" in said
    said = fleet.fleet("remove", "lim1", check=False)
    assert "lim1 is alive" in said
    assert "no member 'lim9'" in fleet.fleet("remove", "lim9", check=False)
    assert "no limit 'nix'" in fleet.limit("remove", "nix", check=False)
    assert list(fleet.etcd.get("/drld/f/limits/")) == ["/drld/f/limits/1"]
    assert status(first)["registry"]["rejected"] == 0


def test_a_limit_that_a_host_refuses_is_reported_and_delays_no_other(
    fleet: RegistryFleet,
) -> None:
    first, second = fleet.started(1, 2)
    added = fleet.limit("add", *FPS[:6], "--out", "up1", check=False)
    assert added["refused"] == {} or added["late"] == []
    odd = ("--name", "odd", "--rate", "1mbit", "--burst", "15kB", "--out", "nowhere0")
    refused = fleet.limit("add", *odd, check=False)["refused"]
    assert refused.keys() == {"lim1", "lim2"}
    assert "nowhere0" in refused["lim1"]["/drld/f/limits/2"]
    later = ("--name", "later", "--rate", "1mbit", "--burst", "15kB", "--out", "uplink")
    assert fleet.limit("add", *later)["applied"] == ["lim1", "lim2"]
    assert names(first) == ["customer-a", "later"]
    # A restart finds the same, and a join is not held up.
    second.kill()
    second.start()
    fleet.wait(second, lambda report: report["limits"] == 2)
    third = fleet.daemon(3)
    third.start()
    fleet.wait(third, lambda report: report["registry"]["joined"])
    assert status(first)["registry"]["members"] == 3
    report = fleet.wait(third, lambda report: report["registry"]["problem_count"])
    assert "etcd /drld/f/limits/2" in report["registry"]["problems"]["/drld/f/limits/2"]


def test_an_interface_that_is_gone_holds_up_limits_there_and_no_member(
    fleet: RegistryFleet,
) -> None:
    first, second = fleet.started(1, 2)
    for name in ("one", "two"):
        fleet.limit("add", "--name", name, *FPS[2:])
    run(["ip", "-n", fleet.namespace, "link", "delete", "up1"])
    done = fleet.limit("remove", "two", check=False)
    assert (done["late"], done["refused"].keys()) == ([], {"lim1"})
    reason = done["refused"]["lim1"]["/drld/f/limits/2"]
    why = "not removed: limit one: match.out: interface up1: does not exist"
    assert reason.endswith(why)
    assert (names(first), names(second)) == (["one", "two"], ["one"])
    third = fleet.daemon(3)
    third.start()
    for daemon in (first, second, third):
        fleet.wait(daemon, lambda report: report["registry"]["members"] == 3)
    fleet.wait(third, lambda report: report["registry"]["joined"])
    in_force(second, "one", 10e6, ["lim1", "lim3"])


def test_a_restart_keeps_the_tokens_of_limits_beside_one_that_is_refused(
    fleet: RegistryFleet,
) -> None:
    (first,) = fleet.started(1)
    slower = ("--name", "slower", "--rate", "10kbit", "--burst", "120kB", "--out", "uplink")
    fleet.limit("add", *slower, "--allocator", "static")
    odd = ("--name", "odd", "--rate", "1mbit", "--burst", "15kB", "--out", "nowhere0")
    assert fleet.limit("add", *odd, check=False)["refused"]
    fleet.send(1, 300)
    wait_for(lambda: first.limit("slower"), lambda seen: seen["arrived_packets"] == 300)
    first.kill()
    first.start()
    fleet.wait(first, lambda report: report["limits"] == 1)
    fleet.send(1, 120)
    report = wait_for(lambda: first.limit("slower"), lambda seen: seen["arrived_packets"] == 120)
    assert report["arrived_packets"] == 120
    # A full bucket would let all pass; this one gets a packet's tokens in 0.8 s.
    assert report["forwarded_bytes"] / LENGTH <= 60


def test_auto_starts_with_the_fleets_limits_without_a_kernel_datapath(
    fleet: RegistryFleet, tmp_path: Path
) -> None:
    daemon = fleet.daemon(1)
    daemon.config.write_text(daemon.config.read_text().replace('"kernel"', '"auto"'))
    daemon.environment = {
        "BCC_KERNEL_SOURCE": str(tmp_path / "none"),
        "CACHE_DIRECTORY": str(tmp_path / "none"),
    }
    fleet.etcd.put("/drld/f/limits/7", json.dumps(TABLE))
    daemon.start()
    assert daemon.wait_for_log("drld: ready: limits: ")
    assert "drld: ready: limits: 1, " in daemon.log
    assert status(daemon)["datapath"]["name"] == "nfqueue"


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


def test_a_reload_that_adds_a_registry_is_refused(fleet: RegistryFleet) -> None:
    """The file no longer names its peers: a limiter alone would enforce all of the limit."""
    daemon = fleet.daemon(1)
    registry = daemon.config.read_text()
    peer = '[[peer]]\nname = "lim2"\naddress = "127.0.0.2:7946"\n'
    own = '[[limit]]\nid = 1\nname = "own"\nrate = "10mbit"\nburst = "75kB"\n'
    own += 'match = { out = "up1" }\n'
    daemon.config.write_text(registry.partition("[registry]")[0] + peer + own)
    daemon.start()
    in_force(daemon, "own", 5e6, [])
    daemon.config.write_text(registry + own)
    said = daemon.ctl("reload", check=False)
    assert said.returncode == 1
    assert "registry: cannot change while the daemon runs: restart it" in said.stderr
    assert status(daemon)["peers"]["configured"] == 1
    in_force(daemon, "own", 5e6, [])


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
    # When it was wiped one of them may have come back when the other had put all there again.
    warned = [daemon.log.count("etcd has lost") for daemon in (first, second)]
    assert sorted(warned) in ([1, 2], [2, 2])
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


def test_two_fleets_share_an_etcd(fleet: RegistryFleet) -> None:
    first, other = fleet.daemon(1, fleet="f"), fleet.daemon(2, fleet="f2", name="lim1")
    # A daemon of the same name would take the same rules.
    other.config.write_text(other.config.read_text().replace('name = "lim1"', 'name = "lim2"'))
    first.start()
    other.start()
    fleet.limit("add", *FPS, file=other.config)
    fleet.wait(other, lambda report: report["limits"] == 1)
    for daemon in (first, other):
        fleet.wait(daemon, lambda report: joined(report, 1))
    assert names(first) == []
    fleet.etcd.delete("/drld/f2/")
    fleet.wait(other, lambda report: joined(report, 1))
    assert names(other) == ["customer-a"]
    assert status(first)["registry"]["rejected"] == 0


def test_a_taken_name_is_not_registered(fleet: RegistryFleet) -> None:
    fleet.started(1)
    fleet.etcd.put("/drld/f/alive/lim2", '{"address": "127.0.0.7:7946"}')
    second = fleet.daemon(2, ttl="2s")
    second.start()
    report = fleet.wait(second, lambda report: report["registry"]["problem_count"] == 1)
    assert "another limiter has the name 'lim2'" in next(
        iter(report["registry"]["problems"].values())
    )
    assert not report["registry"]["joined"]
    assert "/drld/f/members/lim2" not in fleet.etcd.get("/drld/f/")
    fleet.etcd.delete("/drld/f/alive/lim2")
    fleet.wait(second, lambda report: joined(report, 2))


def test_a_daemon_that_stands_still_is_a_member_and_counted_out_by_gossip_alone(
    fleet: RegistryFleet,
) -> None:
    first, second = fleet.started(1, 2, ttl="2s")
    fleet.limit("add", *FPS)
    in_force(first, "customer-a", 10e6, ["lim2"])

    def stand_still() -> None:
        second.signal(signal.SIGSTOP)
        assert wait_for(lambda: "/drld/f/alive/lim2" not in fleet.etcd.get("/drld/f/"), bool)
        in_force(first, "customer-a", 5e6, [])
        assert status(first)["registry"]["members"] == 2

    stand_still()
    second.signal(signal.SIGCONT)
    in_force(first, "customer-a", 10e6, ["lim2"])
    in_force(second, "customer-a", 10e6, ["lim1"])
    assert wait_for(lambda: "/drld/f/alive/lim2" in fleet.etcd.get("/drld/f/"), bool)
    # It has never been anything else.
    assert status(second)["registry"]["joined"]

    # One that is removed meanwhile joins as whoever is new.
    stand_still()
    assert fleet.fleet("remove", "lim2")["applied"] == ["lim1"]
    in_force(first, "customer-a", 10e6, [])
    second.signal(signal.SIGCONT)
    for daemon, other in ((first, "lim2"), (second, "lim1")):
        fleet.wait(daemon, lambda report: joined(report, 2))
        in_force(daemon, "customer-a", 10e6, [other])
        assert "Traceback" not in daemon.log


def test_a_newcomer_has_its_static_share_while_a_member_cannot_answer(
    fleet: RegistryFleet,
) -> None:
    first, second = fleet.started(1, 2)
    fleet.limit("add", *FPS)
    second.kill()
    third = fleet.daemon(3)
    third.start()
    report = fleet.wait(third, lambda report: report["registry"]["waiting_for"] == ["lim2"])
    assert not report["registry"]["joined"]
    in_force(third, "customer-a", 10e6 / 3, [])
    in_force(first, "customer-a", 10e6 / 3, [])
    assert third.limit("customer-a")["fill_rate_bps"] == pytest.approx(10e6 / 3)
    second.start()
    fleet.wait(third, lambda report: joined(report, 3))
    in_force(third, "customer-a", 10e6, ["lim1", "lim2"])
