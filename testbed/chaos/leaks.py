"""Finds leftovers of a stopped daemon, with the system's tools and not with drld's, as drld would
only leave objects behind that it does not know of.

It checks rules of nft and iptables, filters and qdiscs of tc, programs on tcx, and NFQUEUE queues
in the daemon's namespace. It checks BPF programs and maps by the ids in `/proc/PID/fdinfo` of the
running daemon, and of the programs on its interfaces.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import trio

from drld.ebpf import bpf
from drld.ebpf.bpf import Map, Program
from drld.errors import DrldError
from testbed import netns

_PATIENCE_S = 10.0
"""The kernel frees programs and maps some time after the last reference is gone."""
_POLL_S = 0.1
_TABLES = ("raw", "mangle", "filter", "nat", "security")
_NFT_FRAME = re.compile(r"(table|chain|type|policy|set|map)\b|[{}]|#")
_QUEUES = Path("/proc/thread-self/net/netfilter/nfnetlink_queue")
_KINDS = {"prog_id": "BPF program", "map_id": "BPF map"}

Held = set[tuple[str, int]]
"""(kind, id) of BPF objects."""


def held(pid: int) -> Held:
    """BPF programs and maps that a process has descriptors of."""
    found: Held = set()
    with suppress(FileNotFoundError, ProcessLookupError):
        for info in Path(f"/proc/{pid}/fdinfo").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                for line in info.read_text(encoding="ascii").splitlines():
                    key, _, value = line.partition(":")
                    if key in _KINDS:
                        found.add((key, int(value)))
    return found


def _exists(kind: str, identity: int) -> bool:
    try:
        (Program if kind == "prog_id" else Map).from_id(identity).close()
    except (OSError, DrldError):
        return False
    return True


async def left(namespace: str, objects: Held) -> list[str]:
    """Descriptions of all objects that a limiter with a stopped daemon still has."""
    with trio.move_on_after(_PATIENCE_S):
        while any(_exists(*each) for each in objects):
            await trio.sleep(_POLL_S)
    found = [
        f"{_KINDS[kind]} {number}" for kind, number in sorted(objects) if _exists(kind, number)
    ]
    found += _rules(namespace)
    found += _filters(namespace)
    found += netns.within(namespace, lambda: [*_on_tcx(), *_queues()])
    return found


def _rules(namespace: str) -> list[str]:
    inside = ["ip", "netns", "exec", namespace]
    found = []
    for tool in ("iptables", "ip6tables"):
        for table in _TABLES:
            listed = netns.run([*inside, tool, "-t", table, "-S"], check=False)
            found += [
                f"{tool} -t {table} {line}"
                for line in listed.splitlines()
                if line.startswith(("-A", "-N"))
            ]
    for line in netns.run([*inside, "nft", "list", "ruleset"], check=False).splitlines():
        word = line.strip()
        if "drld" in word or (word and not _NFT_FRAME.match(word)):
            found.append(f"nft {word}")
    return found


def _filters(namespace: str) -> list[str]:
    found = []
    for line in netns.run(["tc", "-netns", namespace, "qdisc", "show"], check=False).splitlines():
        if line.startswith("qdisc clsact"):
            found.append(line)
    for device in _devices(namespace):
        for direction in ("ingress", "egress"):
            command = ["tc", "-netns", namespace, "filter", "show", "dev", device, direction]
            listed = netns.run(command, check=False)
            found += [f"{device} {direction}: {line}" for line in listed.splitlines()]
    return found


def _devices(namespace: str) -> list[str]:
    return netns.within(namespace, lambda: [name for _, name in socket.if_nameindex()])


def _on_tcx() -> Iterator[str]:
    for index, device in socket.if_nameindex():
        for way, hook in (("ingress", bpf.TCX_INGRESS), ("egress", bpf.TCX_EGRESS)):
            with suppress(OSError):  # a kernel without tcx
                for identity in bpf.attached(index, hook):
                    yield f"{device} {way}: BPF program {identity} on tcx"


def _queues() -> Iterator[str]:
    with suppress(FileNotFoundError):
        for row in _QUEUES.read_text(encoding="ascii").splitlines():
            yield f"NFQUEUE {row.split()[0]}"
