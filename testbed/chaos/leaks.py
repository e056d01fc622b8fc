"""Finds what a stopped daemon left behind.

It asks the system's tools and not drld's, as drld only leaves objects behind of which it does not
know. The objects are rules of nft and iptables, filters and qdiscs of tc, programs on tcx, and
NFQUEUE queues in the daemon's namespace. BPF programs and maps are found by their ids in
`/proc/PID/fdinfo` of the running daemon.
"""

from __future__ import annotations

import itertools
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
_NFT_FRAME = re.compile(r"(table|chain|type|policy|set|map)\b|[{}]|#|$")
"""Lines of a ruleset that are no rule."""
_QUEUES = Path("/proc/thread-self/net/netfilter/nfnetlink_queue")
_KINDS = {"prog_id": "BPF program", "map_id": "BPF map"}

Held = set[tuple[str, int]]
"""(kind, id) of BPF objects."""


def held(pid: int) -> Held:
    """The BPF programs and maps of which a process has descriptors."""
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
    kept = [f"{_KINDS[kind]} {number}" for kind, number in sorted(objects) if _exists(kind, number)]
    inside = netns.within(namespace, lambda: [*_on_tcx(), *_queues()])
    return [*kept, *_rules(namespace), *_filters(namespace), *inside]


def _rules(namespace: str) -> list[str]:
    inside = f"ip netns exec {namespace}"
    found = []
    for tool, table in itertools.product(("iptables", "ip6tables"), _TABLES):
        lines = _lines(f"{inside} {tool} -t {table} -S")
        found += [f"{tool} -t {table} {line}" for line in lines if line.startswith(("-A", "-N"))]
    words = (line.strip() for line in _lines(f"{inside} nft list ruleset"))
    found += [f"nft {word}" for word in words if "drld" in word or not _NFT_FRAME.match(word)]
    return found


def _filters(namespace: str) -> list[str]:
    tc = f"tc -netns {namespace}"
    found = [line for line in _lines(f"{tc} qdisc show") if line.startswith("qdisc clsact")]
    devices = netns.within(namespace, lambda: [name for _, name in socket.if_nameindex()])
    for device, way in itertools.product(devices, ("ingress", "egress")):
        lines = _lines(f"{tc} filter show dev {device} {way}")
        found += [f"{device} {way}: {line}" for line in lines]
    return found


def _lines(command: str) -> list[str]:
    """The lines that a command prints; none if the kernel lacks its subject."""
    return netns.run(command.split(), check=False).splitlines()


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
