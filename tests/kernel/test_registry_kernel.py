"""Fleets that come and go: real daemons, a real etcd, and what happens to either."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from testbed.netns import run

from .registry_host import FPS, LENGTH, TABLE, RegistryFleet, in_force, joined, names, status
from .topology import wait_for

STATIC = ("--name", "slow", "--rate", "16kbit", "--burst", "24kB", "--out", "uplink")
"""2,000 bytes/s: of two limiters each passes twelve packets at once, and then one a second."""


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
        report = daemon.counted("slow", 60)
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
    first.counted("slower", 300)
    first.kill()
    first.start()
    fleet.wait(first, lambda report: report["limits"] == 1)
    fleet.send(1, 120)
    report = first.counted("slower", 120)
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

    # A limiter that is removed meanwhile joins like a new one.
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
