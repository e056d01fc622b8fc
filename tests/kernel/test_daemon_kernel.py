"""The daemon as an operator meets it: a process, its rules, its socket, its signals."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable

import pytest

from .attached import rules
from .daemon_host import CENTRAL, SHARED, Daemons, on_one
from .preloaded import ROOT
from .topology import Topology, wait_for

SINK = "10.91.2.1"
PAYLOAD = 972
LENGTH = PAYLOAD + 28
"""IP-layer bytes of each packet that the tests send."""


def send(topology: Topology, count: int) -> None:
    with topology.udp("source", "10.91.1.1") as source:
        for _ in range(count):
            source.sendto(bytes(PAYLOAD), (SINK, 9))


def test_a_limit_is_enforced_and_counted_to_the_byte(
    topology: Topology, daemons: Daemons, firewall: str, datapath: str
) -> None:
    daemon = daemons("lim1").started({"customer-a": CENTRAL}, firewall=firewall)
    with topology.udp("sink", SINK, 9) as sink, topology.capture() as capture:
        send(topology, 30)
        report = daemon.counted("customer-a", 30)
        passed = [packet for packet in capture.wait(10) if len(packet) == LENGTH]
        assert sink.recv(2000) == bytes(PAYLOAD)
    # Ten at once, and one more for each 0.8 s that this took.
    assert 10 <= len(passed) <= 13
    assert report["arrived_bytes"] == 30 * LENGTH
    assert report["forwarded_packets"] == len(passed)
    assert report["forwarded_bytes"] == len(passed) * LENGTH
    assert report["dropped_bytes"] == (30 - len(passed)) * LENGTH
    assert daemon.ask("limit", "show", "customer-a")["arrived_packets"] == 30
    status = daemon.ask("status")["datapath"]
    assert status["name"] == datapath
    assert status["firewall"] == (firewall if datapath == "nfqueue" else "none")


def test_sigterm_removes_everything(topology: Topology, daemons: Daemons, firewall: str) -> None:
    daemon = daemons("lim1").started({"customer-a": SHARED}, firewall=firewall)
    assert rules(topology)
    assert daemon.stop() == 0
    assert daemon.wait_for_state("STOPPING=1")
    assert not rules(topology)
    assert not daemon.socket.exists()
    assert "Traceback" not in daemon.log


def test_leftovers_of_a_killed_daemon_are_removed_by_the_next(
    topology: Topology, daemons: Daemons, firewall: str
) -> None:
    daemon = daemons("lim1").started({"customer-a": SHARED}, firewall=firewall)
    installed = rules(topology)
    daemon.kill()
    assert rules(topology) == installed
    daemon.start()
    assert len(rules(topology).splitlines()) == len(installed.splitlines())
    assert daemon.stop() == 0
    assert not rules(topology)


def test_a_start_without_a_control_socket_keeps_a_dead_daemons_rules(
    topology: Topology, daemons: Daemons
) -> None:
    """systemd tries again every five seconds: in between nothing may pass that did not before."""
    daemon = daemons("lim1").started({"customer-a": SHARED})
    daemon.kill()
    installed = rules(topology)
    assert installed
    daemon.socket.unlink()
    daemon.socket.mkdir()
    daemon.spawn()
    assert daemon.wait() == 3
    assert "limiter.control: " in daemon.log
    assert rules(topology) == installed
    daemon.socket.rmdir()
    daemon.start()
    assert daemon.stop() == 0
    assert not rules(topology)


FAILING = """
import sys
from drld.daemon import command_line as daemon
from drld import engine
engine.Engine.tick = lambda *_: 1 / 0
sys.exit(daemon.main(sys.argv[1:]))
"""


def test_a_daemon_that_fails_leaves_its_rules_in_force(
    topology: Topology, daemons: Daemons, firewall: str
) -> None:
    daemon = daemons("lim1")
    daemon.configure({"customer-a": SHARED + '\non_failure = "closed"'}, firewall=firewall)
    daemon.spawn("-c", FAILING)
    assert daemon.wait_for_state("READY=1")
    assert daemon.wait() == 1
    assert "ZeroDivisionError" in daemon.log
    assert rules(topology)
    daemon.start()
    assert daemon.stop() == 0
    assert not rules(topology)


def test_a_second_daemon_of_the_same_name_is_refused_and_harms_nothing(
    topology: Topology, daemons: Daemons
) -> None:
    first, second = daemons("lim1"), daemons("other")
    first.configure({"customer-a": CENTRAL})
    first.start()
    installed = rules(topology)
    second.name = "lim1"
    second.configure({"customer-a": CENTRAL}, listen="127.0.0.1:7947")
    second.spawn()
    assert second.wait() == 3
    assert "limiter.name: 'lim1'" in second.log
    assert rules(topology) == installed
    send(topology, 20)
    report = first.counted("customer-a", 20)
    assert report["dropped_packets"] >= 7


def test_a_reload_changes_what_packets_meet_at_once(topology: Topology, daemons: Daemons) -> None:
    daemon = daemons("lim1").started({"customer-a": CENTRAL})
    daemon.configure({"customer-a": CENTRAL + '\nmode = "shadow"'})
    assert daemon.ctl("reload").returncode == 0
    with topology.capture() as capture:
        send(topology, 30)
        passed = [packet for packet in capture.wait(30) if len(packet) == LENGTH]
    assert len(passed) == 30
    report = daemon.counted("customer-a", 30)
    assert report["dropped_packets"] >= 17
    daemon.configure({"customer-a": CENTRAL.replace("out0", "in0")})
    assert daemon.ctl("reload").returncode == 0
    with topology.capture() as capture:
        send(topology, 30)
        passed = [packet for packet in capture.wait(30) if len(packet) == LENGTH]
    assert len(passed) == 30
    assert daemon.limit("customer-a")["arrived_packets"] == 30


def test_sighup_takes_over_a_good_file_and_keeps_the_counters(
    topology: Topology, daemons: Daemons
) -> None:
    daemon = daemons("lim1").started({"customer-a": CENTRAL})
    send(topology, 5)
    daemon.counted("customer-a", 5)
    faster = CENTRAL.replace("10kbit", "20kbit")
    second = CENTRAL.replace("out0", "in0")
    daemon.configure({"customer-a": faster, "customer-b": second})
    daemon.signal(signal.SIGHUP)
    assert daemon.wait_for_log("reloaded")
    assert [limit["name"] for limit in daemon.ask("limits")] == ["customer-a", "customer-b"]
    report = wait_for(
        lambda: daemon.limit("customer-a"), lambda report: report["fill_rate_bps"] == 20_000
    )
    assert (report["rate_bps"], report["fill_rate_bps"]) == (20_000, 20_000)
    assert report["arrived_packets"] == 5
    assert daemon.stop() == 0
    assert not rules(topology)


@on_one
def test_a_reload_that_hangs_keeps_no_daemon_from_stopping(
    topology: Topology, daemons: Daemons
) -> None:
    daemon = daemons("lim1").started({"customer-a": CENTRAL})
    daemon.config.unlink()
    os.mkfifo(daemon.config)  # As a file on a server that does not answer.
    daemon.signal(signal.SIGHUP)
    assert daemon.wait_for_state("RELOADING=1")
    assert daemon.stop() == 0
    assert not rules(topology)


@on_one
@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda text: text.replace('"10kbit"', '"fast"'), "limit[0].rate"),
        (lambda text: text.replace('"lim1"', '"lim2"'), "limiter.name"),
    ],
)
def test_a_bad_reload_keeps_the_running_configuration(
    topology: Topology, daemons: Daemons, change: Callable[[str], str], named: str
) -> None:
    daemon = daemons("lim1").started({"customer-a": CENTRAL})
    before = daemon.limit("customer-a")
    daemon.config.write_text(change(daemon.config.read_text()))
    refused = daemon.ctl("reload", check=False)
    assert refused.returncode == 1
    assert named in refused.stderr
    assert named in daemon.ask("status")["config"]["reload_error"]
    assert daemon.limit("customer-a")["rate_bps"] == before["rate_bps"]
    daemon.configure({"customer-a": CENTRAL})
    assert daemon.ctl("reload").returncode == 0
    assert daemon.ask("status")["config"]["reload_error"] is None


@pytest.mark.parametrize(
    ("fabric", "datapath"),
    [("mesh", "nfqueue"), ("pushsum", "kernel"), ("tree", "kernel")],
    indirect=["datapath"],
)
def test_the_static_share_holds_until_peers_are_heard_and_after_they_die(
    daemons: Daemons, fabric: str
) -> None:
    addresses = {"lim1": "127.0.0.1:7946", "lim2": "127.0.0.2:7946"}
    first, second = fleet = [daemons(name) for name in addresses]
    for daemon in fleet:
        daemon.configure(
            {"customer-a": SHARED},
            listen=addresses[daemon.name],
            peers={name: at for name, at in addresses.items() if name != daemon.name},
            fabric=fabric,
        )
    first.start()
    alone = first.limit("customer-a")
    assert alone["fill_rate_bps"] == alone["limit_in_force_bps"] == 5_000_000
    assert alone["depth_bytes"] == 37_500
    assert alone["fleet"]["connected"] == []
    assert first.get("/v1/peers")[0]["age_s"] is None

    second.start()
    # The peer's share counts when it has been connected for a while (docs/conservative-rule.md).
    heard = wait_for(
        lambda: first.limit("customer-a"), lambda limit: limit["limit_in_force_bps"] == 10_000_000
    )
    assert heard["fleet"]["connected"] == ["lim2"]
    peer = wait_for(
        lambda: first.get("/v1/peers")[0],
        lambda peer: peer["received"] > 20 and peer["connected"] and peer["age_s"] < 1,
    )
    assert peer["received"] > 20
    assert peer["connected"]
    assert peer["age_s"] < 1
    assert (peer["lost"], peer["rejected"]) == (0, 0)

    second.kill()
    # A tree counts a lost limiter for some rounds more, without its name.
    left = wait_for(
        lambda: first.limit("customer-a"), lambda limit: limit["limit_in_force_bps"] == 5_000_000
    )
    assert left["fill_rate_bps"] == 5_000_000
    assert left["fleet"]["connected"] == []

    # A restarted peer begins its sequence numbers at zero, and is heard all the same.
    second.start()
    again = wait_for(
        lambda: first.limit("customer-a"), lambda limit: limit["limit_in_force_bps"] == 10_000_000
    )
    assert again["fleet"]["connected"] == ["lim2"]


@on_one
def test_trace_streams_a_record_a_tick(topology: Topology, daemons: Daemons) -> None:
    daemon = daemons("lim1").started({"customer-a": CENTRAL})
    lines = daemon.ctl("trace", "customer-a", "--count", "5", "--json").stdout.splitlines()
    records = [json.loads(line) for line in lines]
    assert len(records) == 5
    assert all(record["limit"] == "customer-a" for record in records)
    gaps = [after["t"] - before["t"] for before, after in itertools.pairwise(records)]
    assert all(gap > 0 for gap in gaps)
    assert daemon.stop() == 0


@on_one
def test_invalid_datagrams_are_counted_and_change_nothing(
    topology: Topology, daemons: Daemons
) -> None:
    daemon = daemons("lim1").started({"customer-a": SHARED}, peers={"lim2": "127.0.0.2:7946"})

    def stranger(address: str) -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.bind((address, 7946))
        return made

    with (
        topology.within("limiter", lambda: stranger("127.0.0.2")) as peer,
        topology.within("limiter", lambda: stranger("127.0.0.3")) as foreign,
    ):
        foreign.sendto(bytes(20), ("127.0.0.1", 7946))
        for size in (0, 19, 20, 21, 1400):
            peer.sendto(bytes(size), ("127.0.0.1", 7946))
        rejected = wait_for(
            lambda: daemon.get("/v1/status")["gossip"]["rejected"],
            lambda counts: sum(counts.values()) == 6,
        )
    assert rejected["address"] == 1
    assert (rejected["length"], rejected["version"]) == (2, 3)
    assert sum(rejected.values()) == 6
    assert daemon.get("/v1/status")["peers"]["connected"] == 0


@on_one
@pytest.mark.parametrize(
    ("listen", "said"),
    [
        ("192.0.2.1:7946", "limiter.listen: cannot bind '192.0.2.1'"),
        ("127.0.0.1:7946", "another daemon"),
    ],
)
def test_a_refusal_of_the_host_is_one_line(daemons: Daemons, listen: str, said: str) -> None:
    running = daemons("lim1").started({"customer-a": SHARED}, listen="127.0.0.9:7946")
    daemon = daemons("lim2")
    daemon.socket = running.socket
    daemon.configure({"customer-a": SHARED}, listen=listen)
    daemon.spawn()
    assert daemon.wait() == 3
    lines = [line for line in daemon.log.splitlines() if line.startswith("drld: ")]
    assert said in lines[-1]
    assert "Traceback" not in daemon.log


def test_the_first_process_of_a_container_stops_during_its_start() -> None:
    """The kernel drops SIGTERM where such a process has no handler."""
    script = (
        "import os, signal; from drld import daemon; from drld.daemon import command_line;"
        "command_line.main = lambda argv: os.kill(os.getpid(), signal.SIGTERM) or 7;"
        "assert os.getpid() == 1; raise SystemExit(daemon.main([]))"
    )
    command = ["unshare", "--pid", "--fork", sys.executable, "-c", script]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0
