"""The programs attached in the limiter's namespace, by either way, and their removal by hand."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Iterator

from drld.ebpf import bpf, tcx
from drld.ebpf.bpf import Program
from drld.police.direction import Direction

from .topology import Topology

WAYS = ["clsact", "tcx"] if tcx.available() else ["clsact"]
HOOKS = {"ingress": Direction.IN, "egress": Direction.OUT}


def _programs() -> Iterator[tuple[str, str, Program]]:
    for index, device in socket.if_nameindex():
        for hook, direction in HOOKS.items():
            for identity in bpf.attached(index, tcx.HOOK[direction]):
                with contextlib.closing(Program.from_id(identity)) as program:
                    yield device, hook, program


def tcx_programs(topology: Topology) -> list[tuple[str, str, str]]:
    """Interface, hook and name of every program on tcx, those of other programs too."""

    def look() -> list[tuple[str, str, str]]:
        return [(device, hook, program.name()) for device, hook, program in _programs()]

    return topology.within("limiter", look) if "tcx" in WAYS else []


def identities(topology: Topology, interface: str, hook: str) -> list[int]:
    """The kernel's numbers of the programs on one hook, whosever they are."""

    def look() -> list[int]:
        return bpf.attached(socket.if_nametoindex(interface), tcx.HOOK[HOOKS[hook]])

    listed = topology.run("limiter", "tc", "filter", "show", "dev", interface, hook)
    found = [int(number) for number in re.findall(r" id (\d+) ", listed)]
    return found + (topology.within("limiter", look) if "tcx" in WAYS else [])


def take_off_tcx(topology: Topology, *devices: str) -> None:
    """Detach every program from these interfaces, or from all."""

    def take() -> None:
        for device, hook, program in _programs():
            if device in devices or not devices:
                bpf.detach(socket.if_nametoindex(device), tcx.HOOK[HOOKS[hook]], program)

    if "tcx" in WAYS:
        topology.within("limiter", take)


def ours(topology: Topology, *devices: str) -> list[str]:
    """Our programs on these interfaces, and every clsact qdisc there."""
    on_tcx = [
        f"{device} {hook}"
        for device, hook, name in tcx_programs(topology)
        if name.startswith("drld_")
    ]
    lines = []
    for device in devices:
        for hook in HOOKS:
            at = f"{device} {hook}"
            listed = topology.run("limiter", "tc", "filter", "show", "dev", device, hook)
            lines += [at for line in listed.splitlines() if "drld:" in line]
            lines += [at for each in on_tcx if each == at]
        listed = topology.run("limiter", "tc", "qdisc", "show", "dev", device)
        lines += [f"{device} clsact" for line in listed.splitlines() if "clsact" in line]
    return lines


def rules(topology: Topology) -> str:
    """Everything in the limiter's namespace that leads to a queue or a program."""
    listed = [
        topology.run("limiter", "iptables-save", "-t", "mangle"),
        topology.run("limiter", "ip6tables-save", "-t", "mangle"),
        topology.run("limiter", "nft", "list", "ruleset"),
    ]
    for device in ("in0", "out0"):
        for hook in ("ingress", "egress"):
            listed.append(topology.run("limiter", "tc", "filter", "show", "dev", device, hook))
        listed.append(topology.run("limiter", "tc", "qdisc", "show", "dev", device))
    listed += [" ".join(program) for program in tcx_programs(topology)]
    lines = "\n".join(listed).lower().splitlines()
    ours = re.compile(r"\bqueue (num|to)|nfqueue|drld[:_]|clsact")
    return "\n".join(line for line in lines if ours.search(line))
