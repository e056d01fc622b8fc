"""`drlctl doctor` on a host in order, and on one where several things are broken for real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .daemon_host import SHARED, DaemonHost
from .preloaded import ROOT
from .topology import DEADLINE_S, Topology, wait_for

LISTEN, PEER = "10.91.2.2:7946", "10.91.2.1:7946"
LIMITS = {"customer-a": SHARED.replace('burst = "75kB"\n', "")}


@pytest.fixture
def hosts(topology: Topology, tmp_path: Path) -> Iterator[tuple[DaemonHost, DaemonHost]]:
    """A limiter, and a peer at the sink; both of one fleet."""
    made = [
        DaemonHost(topology.names[role], tmp_path, name, "kernel")
        for role, name in (("limiter", "lim1"), ("sink", "lim2"))
    ]
    for daemon, listen, peer, address in (
        (made[0], LISTEN, "lim2", PEER),
        (made[1], PEER, "lim1", LISTEN),
    ):
        interface = "out0" if daemon is made[0] else "k0"
        limits = {name: text.replace("out0", interface) for name, text in LIMITS.items()}
        daemon.configure(limits, listen=listen, peers={peer: address})
    yield made[0], made[1]
    for daemon in made:
        daemon.close()


def examine(topology: Topology, daemon: DaemonHost) -> tuple[bool, dict[str, Any]]:
    """Whether anything is wrong, and what is not in order, by check."""
    done = subprocess.run(
        [
            *("ip", "netns", "exec", topology.names["limiter"], sys.executable, "-m", "drld.cli"),
            *("--socket", str(daemon.socket), "doctor", "--config", str(daemon.config), "--json"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=3 * DEADLINE_S,
    )
    report = json.loads(done.stdout)
    assert done.returncode == report["wrong"]
    found = {each["check"]: each for each in report["findings"] if each["level"] != "ok"}
    # The kernel that runs the tests, and what else runs there, decide about these.
    for setting in ("bpf_jit_enable", "unprivileged_bpf_disabled", "lateness"):
        found.pop(setting, None)
    return report["wrong"], found


# The route's MTU: with so small a one on the interface, the kernel takes its IPv6 addresses away.
BREAK = """
    ip route change 10.91.2.0/24 dev out0 src 10.91.2.2 mtu 1000
    tc qdisc add dev out0 clsact
    tc filter add dev out0 egress bpf bytecode "1,6 0 0 0,"
    nft add table inet foreign
    nft 'add chain inet foreign in { type filter hook input priority 0; }'
    nft add rule inet foreign in udp dport 7946 drop
"""


def test_the_doctor_tells_a_sound_host_from_a_faulty_one(
    topology: Topology, hosts: tuple[DaemonHost, DaemonHost]
) -> None:
    daemon, peer = hosts
    daemon.start()
    peer.start()
    wait_for(lambda: daemon.get("/v1/status")["probes"]["alive"], lambda alive: alive == 1)
    # On a host without processor time the peer may be suspect for a moment.
    in_order: tuple[bool, dict[str, Any]] = (False, {})
    seen = wait_for(lambda: examine(topology, daemon), lambda seen: seen == in_order)
    assert seen == in_order

    peer.kill()
    try:
        topology.run("limiter", "sh", "-e", stdin=BREAK)
        daemon.config.write_text(daemon.config.read_text().replace("10mbit", "20mbit"))
        daemon.config.chmod(0o664)
        wait_for(lambda: daemon.get("/v1/peers")[0]["verdict"], lambda it: it != "alive")
        wrong, found = examine(topology, daemon)
    finally:
        route = ("ip", "route", "change", "10.91.2.0/24", "dev", "out0", "src", "10.91.2.2")
        topology.run("limiter", *route)
    assert wrong
    assert "1000 bytes" in found["MTU to lim2"]["what"]
    assert PEER in found["peer lim2"]["what"]
    assert "limit customer-a" in found["configuration"]["what"]
    assert "mode 0664" in found["configuration file mode"]["what"]
    assert "tc filter" in found["interface out0 out"]["what"]
    assert "table inet foreign chain in refuses UDP port 7946" in found["firewall"]["what"]

    daemon.stop()
    with topology.udp("limiter", "10.91.2.2", 7946):
        wrong, found = examine(topology, daemon)
    assert wrong
    assert "cannot reach a daemon" in found["daemon"]["what"]
    assert f"(pid {os.getpid()})" in found["gossip port"]["what"]
