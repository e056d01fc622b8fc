"""A daemon that chooses its datapath itself, and what it costs when it has begun."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .attached import WAYS, identities, rules
from .daemon_host import SHARED, DaemonHost
from .nfqueue import refusing_tools
from .topology import Topology, wait_for

SINK = "10.91.2.1"


@pytest.fixture
def undecided(topology: Topology, tmp_path: Path) -> Iterator[DaemonHost]:
    """A daemon with `datapath = "auto"`."""
    daemon = DaemonHost(topology.names["limiter"], tmp_path, "lim1", "auto")
    yield daemon
    daemon.close()


def test_auto_takes_the_kernel_datapath_if_the_host_has_it(
    topology: Topology, undecided: DaemonHost
) -> None:
    undecided.configure({"customer-a": SHARED})
    undecided.start()
    said = f"tc-BPF ({WAYS[-1]}) on out0 out"
    status = undecided.ask("status")["datapath"]
    assert (status["name"], status["reason"]) == ("kernel", said)
    assert f"kernel ({said})" in undecided.ctl("status").stdout
    assert undecided.wait_for_log(said)
    assert undecided.stop() == 0


def test_auto_takes_nfqueue_if_the_host_has_no_kernel_datapath(
    topology: Topology, undecided: DaemonHost, tmp_path: Path
) -> None:
    undecided.environment = {
        "BCC_KERNEL_SOURCE": str(tmp_path / "none"),
        "CACHE_DIRECTORY": str(tmp_path / "cache"),
    }
    undecided.configure({"customer-a": SHARED})
    undecided.start()
    status = undecided.ask("status")["datapath"]
    assert status["name"] == "nfqueue"
    assert "no kernel datapath: no kernel headers" in status["reason"]
    assert undecided.wait_for_log("no kernel datapath, nfqueue instead: no kernel headers")
    assert "drld:" not in topology.run("limiter", "tc", "filter", "show", "dev", "out0", "egress")
    assert undecided.stop() == 0


def test_auto_refuses_what_only_the_other_datapath_can_do(
    topology: Topology, undecided: DaemonHost, tmp_path: Path
) -> None:
    share = SHARED + '\non_failure = "share"'
    undecided.configure({"customer-a": share})
    undecided.start()
    assert undecided.ask("status")["datapath"]["name"] == "kernel"
    assert undecided.limit("customer-a")["on_failure"] == "share"
    assert undecided.stop() == 0
    undecided.environment = {
        "BCC_KERNEL_SOURCE": str(tmp_path / "none"),
        "CACHE_DIRECTORY": str(tmp_path / "cache"),
    }
    undecided.spawn()
    assert undecided.wait() == 3
    told = undecided.log.splitlines()[-1]
    assert 'limit customer-a: on_failure = "share": only the kernel datapath' in told
    assert "no kernel datapath: no kernel headers" in told
    assert not rules(topology)
    undecided.configure({"customer-a": SHARED})
    undecided.start()
    undecided.configure({"customer-a": share})
    refused = undecided.ctl("reload", check=False)
    assert refused.returncode == 1
    assert 'limit customer-a: on_failure = "share"' in refused.stderr
    assert undecided.limit("customer-a")["on_failure"] == "default"


def test_auto_without_any_datapath_keeps_a_dead_daemons_rules(
    topology: Topology, undecided: DaemonHost, tmp_path: Path
) -> None:
    undecided.configure({"customer-a": SHARED})
    undecided.start()
    left = identities(topology, "out0", "egress")
    assert left
    undecided.kill()
    tools = tmp_path / "tools"
    tools.mkdir()
    switch = refusing_tools(tools, "nft", "iptables-restore", "ip6tables-restore")
    undecided.environment = {
        "BCC_KERNEL_SOURCE": str(tmp_path / "none"),
        "CACHE_DIRECTORY": str(tmp_path / "cache"),
        "PATH": f"{tools}:{os.environ['PATH']}",
    }
    switch.touch()
    undecided.spawn()
    assert undecided.wait() == 3
    told = undecided.log.splitlines()[-1]
    assert "out of cheese; no kernel datapath: no kernel headers" in told
    assert identities(topology, "out0", "egress") == left
    switch.unlink()
    undecided.start()
    assert undecided.ask("status")["datapath"]["name"] == "nfqueue"
    assert identities(topology, "out0", "egress") == []
    assert undecided.stop() == 0


def test_a_required_kernel_datapath_that_is_unavailable_is_an_error(
    undecided: DaemonHost,
) -> None:
    undecided.datapath = "kernel"
    undecided.configure({"customer-a": SHARED.replace("out0", "out9")})
    undecided.spawn()
    assert undecided.wait() == 3
    said = "drld: limit customer-a: match.out: interface out9: does not exist"
    assert said in undecided.log


def test_a_daemon_that_has_started_needs_little_memory(undecided: DaemonHost) -> None:
    undecided.configure({"customer-a": SHARED})
    undecided.spawn("-m", "drld")
    assert undecided.wait_for_state("READY=1")
    pid = undecided.ask("status")["pid"]
    status = Path(f"/proc/{pid}/status").read_text()
    resident_kb = int(next(line for line in status.splitlines() if "VmRSS" in line).split()[1])
    assert resident_kb < 80_000
    assert undecided.stop() == 0


@pytest.mark.parametrize("chosen", ["kernel", "nfqueue"])
def test_a_daemon_of_requests_gets_its_first_limit_on_packets_by_a_reload(
    topology: Topology, undecided: DaemonHost, tmp_path: Path, chosen: str
) -> None:
    if chosen == "nfqueue":
        undecided.environment = {
            "BCC_KERNEL_SOURCE": str(tmp_path / "none"),
            "CACHE_DIRECTORY": str(tmp_path / "cache"),
        }
    calls = 'unit = "requests"\nrate = "9/d"\nburst = 3\nmatch = { namespace = "api" }'
    front = ["[requests]", f'listen = "{tmp_path}/requests"']
    undecided.configure({"calls": calls}, gossip=front)
    undecided.start()
    assert undecided.ask("status")["datapath"]["name"] == "none"
    check = "check", "--namespace", "api", "--cost", "2"
    assert undecided.ctl(*check).returncode == 0
    # What no datapath of the host can do leaves all as it was.
    bad = SHARED.replace("match = {", 'on_failure = "share"\nmatch = {').replace("out0", "out9")
    undecided.configure({"calls": calls, "customer-a": bad}, gossip=front)
    refused = undecided.ctl("reload", check=False)
    assert 'limit customer-a: on_failure = "share": only the kernel datapath' in refused.stderr
    assert undecided.ask("status")["datapath"]["name"] == "none"
    undecided.configure({"calls": calls, "customer-a": SHARED}, gossip=front)
    undecided.ctl("reload")
    assert undecided.ask("status")["datapath"]["name"] == chosen
    with topology.udp("source", "10.91.1.1") as source, topology.udp("sink", SINK, 9) as sink:
        source.sendto(b"first", (SINK, 9))
        assert sink.recv(100) == b"first"
    report = wait_for(
        lambda: undecided.limit("customer-a"), lambda report: report["forwarded_packets"] > 0
    )
    assert report["forwarded_packets"] == 1
    # The other plane's level stays.
    assert undecided.ctl(*check, check=False).returncode == 3
    assert undecided.stop() == 0
    assert not rules(topology)
    assert identities(topology, "out0", "egress") == []


@pytest.mark.parametrize("datapath", ["auto", "kernel", "nfqueue"])
def test_without_limits_a_daemon_needs_neither_root_nor_a_datapath(
    undecided: DaemonHost, datapath: str
) -> None:
    undecided.datapath = datapath
    undecided.wrapper = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
    undecided.configure({})
    undecided.start()
    status = undecided.ask("status")["datapath"]
    assert (status["name"], status["counters"]) == ("none", {})
    assert undecided.wait_for_log(f"no limits, and no datapath: {status['reason']}")
    undecided.configure({"customer-a": SHARED})
    refused = undecided.ctl("reload", check=False)
    assert refused.returncode == 1
    assert refused.stderr == (
        "drlctl: the daemon refuses: limits on packets need root, or the capabilities in "
        "drld.service: this process lacks CAP_NET_ADMIN\n"
    )
    assert undecided.ask("limits") == []
    assert undecided.ask("status")["datapath"]["name"] == "none"
    assert undecided.stop() == 0
    undecided.spawn()
    assert undecided.wait() == 3
