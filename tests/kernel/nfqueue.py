"""Rules and queues in the limiter's namespace: those of nfqueue datapaths, and those of others."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from drld.capture.nfqueue.packet_queue import listed

from .remote import RemoteNfqueueDatapath
from .topology import Topology

Start = Callable[..., RemoteNfqueueDatapath]

_QUEUES = Path("/proc/thread-self/net/netfilter/nfnetlink_queue")


def rules(topology: Topology) -> list[str]:
    """All firewall rules in the limiter's namespace, without counters and comments."""
    saved = [
        line.split(" [")[0]
        for tool in ("iptables-save", "ip6tables-save")
        for line in topology.run("limiter", tool).splitlines()
        if not line.startswith("#")
    ]
    # What iptables made shows here too, with counters.
    listed = topology.run("limiter", "nft", "--stateless", "list", "ruleset").splitlines()
    return saved + listed


def our_rules(topology: Topology) -> list[str]:
    return [line for line in rules(topology) if "drld" in line]


def went_wrong(datapath: RemoteNfqueueDatapath) -> dict[str, int]:
    """The counters that are not zero, but for those of how packets were charged."""
    charged = ("stamped_ebpf", "stamped_kernel", "unstamped")
    return {name: n for name, n in datapath.counters().items() if n and name not in charged}


def charged(datapath: RemoteNfqueueDatapath, source: str = "ebpf") -> tuple[int, int]:
    """Packets charged when they arrived, and when they were read.

    As soon as any socket of the host wants timestamps, the kernel stamps, and our program leaves
    its stamps alone.
    """
    counters = datapath.counters()
    assert source == "ebpf" or not counters["stamped_ebpf"]
    return counters["stamped_ebpf"] + counters["stamped_kernel"], counters["unstamped"]


def queues(topology: Topology) -> list[int]:
    """Bound queue numbers in the limiter's namespace."""
    return sorted(topology.within("limiter", listed))


def waiting(topology: Topology) -> int:
    """Packets in the one queue of the limiter's namespace.

    Looked up by no process of its own: who waits for packets must not let them grow old.
    """
    return int(topology.within("limiter", _QUEUES.read_text).split()[2])


def before_the_hosts(tools: Path) -> dict[str, str]:
    """Variables under which the tools in a directory are found before the host's."""
    return {"PATH": f"{tools}:{os.environ['PATH']}"}


def refusing_tools(directory: Path, *tools: str) -> Path:
    """Tools in a directory that refuse rules as long as the returned file is there."""
    switch = directory / "refuse"
    for tool in tools:
        script = directory / tool
        script.write_text(
            "#!/bin/sh\n"
            f'if [ -e {switch} ] && [ "$1" != list ]; then echo out of cheese >&2; exit 4; fi\n'
            f'PATH=/usr/sbin:/sbin exec {tool} "$@"\n'
        )
        script.chmod(0o755)
    return switch


def last_tool(firewall: str) -> str:
    """The command that the firewall runs last when it installs rules."""
    return "nft" if firewall == "nft" else "ip6tables-restore"


def plant_other_rules(topology: Topology) -> None:
    """Rules of the operator, and of another limiter."""
    for tool in ("iptables", "ip6tables"):
        for arguments in (
            "-N theirs",
            "-A theirs -j RETURN",
            "-A PREROUTING -i in0 -p udp --dport 7000 -j MARK --set-xmark 0x15/0xff",
            "-A PREROUTING -j theirs",
            "-A POSTROUTING -j theirs",
            "-N drld-lim10-in",  # of another limiter
            "-A drld-lim10-in -i lo -j RETURN",
            "-A PREROUTING -j drld-lim10-in",
        ):
            topology.run("limiter", tool, "-t", "mangle", *arguments.split())
        # iptables-nft makes a built-in chain when it is first used, and then keeps it.
        for arguments in (
            "-N theirs",
            "-A theirs -j RETURN",
            "-A FORWARD -j theirs",
            "-A OUTPUT -j theirs",
        ):
            topology.run("limiter", tool, "-t", "security", *arguments.split())
        topology.run(
            "limiter", tool, "-A", "FORWARD", "-m", "mark", "--mark", "0x15", "-j", "ACCEPT"
        )
    topology.run("limiter", "nft", "add table inet drld-lim10")
