"""Facts of this host that concern packets."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import logging
import os
import socket
import struct
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from random import Random
from threading import Thread
from typing import Any, NamedTuple

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from drld import config
from drld.capture.host_checks import Interface, Trial
from drld.capture.kernel.datapath import KernelDatapath
from drld.capture.nfqueue.datapath import NfqueueDatapath
from drld.capture.nfqueue.firewall import IptablesFirewall, NftFirewall, others_on
from drld.capture.patterns import covers
from drld.capture.spec import PacketsSpec, match_of
from drld.doctor.facts.host import PROC, number
from drld.ebpf import links, tcx
from drld.ebpf.attachment import attachment
from drld.ebpf.clsact import PRIORITY
from drld.errors import DatapathError
from drld.model import Enforcement
from drld.police.direction import Direction
from drld.spec import LimitSpec

_CLONE_NEWNET = 0x40000000
_NAME = "doctor"
_TRIAL = f"""
[limiter]
name = "{_NAME}"
listen = "127.0.0.1:7946"
[[limit]]
id = 1
name = "{_NAME}"
rate = "10mbit"
match = {{ out = "lo" }}
"""
_PARENTS = {Direction.IN: 0xFFFFFFF2, Direction.OUT: 0xFFFFFFF3}
_SIOCETHTOOL = 0x8946
_ASKED = {"tso": 0x1E, "gso": 0x23, "gro": 0x2B}
"""Commands of ethtool(8) that return whether an offload is on (linux/ethtool.h)."""
_GET_FLAGS, _LRO_FLAG = 0x25, 1 << 15
_UP = 1
_MASTERS = ("bridge", "bond", "team")
"""Kinds that take the packets of their members."""
_OWN_PROGRAM, _OWN_FILTER = "drld_", "drld:"
"""The beginnings of the names of drld's programs on tcx, and of its filters on clsact."""


class _Filter(NamedTuple):
    """A filter on a hook of clsact."""

    priority: int
    text: str
    """The kind and the priority, for an operator."""
    own: bool
    """Whether it is drld's."""


def trial(packets: PacketsSpec) -> Trial:
    """Attach the datapaths that the configuration may use, in a network namespace of its own."""
    (limit,) = config.parse(_TRIAL, _NAME).limits
    firewall = "auto" if packets.firewall == "none" else packets.firewall
    made: dict[str, Callable[[], KernelDatapath | NfqueueDatapath]] = {
        "kernel": lambda: KernelDatapath(_NAME),
        "nfqueue": lambda: NfqueueDatapath(
            _NAME, firewall, None, Random(0), time.monotonic_ns, timestamps=packets.timestamps
        ),
    }
    refusals: dict[str, str | None] = {}

    def attempt() -> None:
        if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET) != 0:
            reason = f"no network namespace to try it in: {os.strerror(ctypes.get_errno())}"
            refusals.update(dict.fromkeys(made, reason))
            return
        for name, make in made.items():
            if packets.datapath not in ("auto", name):
                continue
            datapath = make()
            try:
                datapath.attach([(limit, Enforcement())], time.monotonic_ns())
            except DatapathError as error:
                refusals[name] = str(error)
            else:
                refusals[name] = None
                datapath.detach()
                return

    logging.getLogger("drld").addHandler(logging.NullHandler())
    # A network namespace belongs to a thread, and this one ends with it.
    trying = Thread(target=attempt, name="doctor")
    trying.start()
    trying.join()
    return Trial(packets.datapath, refusals)


def interfaces() -> dict[str, Interface]:
    """Return the interfaces of this network namespace, by name."""
    with IPRoute() as netlink:
        queueing = {
            each["index"]: each.get_attr("TCA_KIND")
            for each in netlink.get_qdiscs()
            if each["parent"] == 0xFFFFFFFF  # root
        }
        below = links.below()
        listed = list(netlink.get_links())
        names = {link["index"]: _name(link) for link in listed}
        masters = {it["index"]: names[it["index"]] for it in listed if _kind(it) in _MASTERS}
        strict = number(PROC / "sys/net/ipv4/conf/all/rp_filter") or 0
        found = {}
        for link in listed:
            name, index = _name(link), link["index"]
            before: dict[Direction, list[str]] = {}
            after: dict[Direction, list[str]] = {}
            for direction in Direction:
                first, then = _others(netlink, index, direction)
                before[direction], after[direction] = first, then
            own = number(PROC / "sys/net/ipv4/conf" / name / "rp_filter") or 0
            xdp = link.get_attr("IFLA_XDP")
            found[name] = Interface(
                name,
                up=bool(link["flags"] & _UP),
                queueing=queueing.get(index, ""),
                offloads=offloads(name),
                xdp=bool(xdp and xdp.get_attr("IFLA_XDP_ATTACHED")),
                below=below.get(name, ()),
                master=masters.get(link.get_attr("IFLA_MASTER"), ""),
                reverse_path=max(own, strict),
                before=before,
                after=after,
            )
        return found


def other_limiters(limiter: str, limits: Sequence[LimitSpec]) -> list[tuple[str, Direction, str]]:
    """The other limiters that police interfaces of these limits, as `drld.ebpf.other_limiters`."""
    rules = []
    for firewall in (NftFirewall, IptablesFirewall):
        with contextlib.suppress(DatapathError):
            rules += firewall(limiter).others()
    found = {*others_on(limits, rules)}
    with contextlib.suppress(DatapathError), contextlib.closing(attachment(limiter)) as programs:
        for index, name in socket.if_nameindex():
            ways = {it.direction for it in map(match_of, limits) if covers(it.interface, name)}
            for direction in ways:
                found |= {(name, direction, it) for it in programs.others(index, direction)}
    return sorted(found, key=str)


def _name(link: Any) -> str:
    """The name of a link; pyroute2 has bytes where it is not UTF-8."""
    return os.fsdecode(link.get_attr("IFLA_IFNAME"))


def _kind(link: Any) -> str:
    information = link.get_attr("IFLA_LINKINFO")
    return (information and information.get_attr("IFLA_INFO_KIND")) or ""


def _others(netlink: IPRoute, index: int, direction: Direction) -> tuple[list[str], list[str]]:
    """Return the programs and filters of others on a hook: those before drld's, and those after.

    If drld has none there, all come after: nfqueue gets a packet between ingress and egress.
    """
    names = list(_programs(index, direction))
    own = next((at for at, name in enumerate(names) if name.startswith(_OWN_PROGRAM)), None)
    filters = list(_filters(netlink, index, direction))
    others = [it for it in filters if not it.own]
    first = [f"tcx program {name}" for name in names[:own]]
    if own is not None:
        then = [f"tcx program {it}" for it in names[own:] if not it.startswith(_OWN_PROGRAM)]
        return first, [*then, *(it.text for it in others)]
    if len(others) < len(filters):
        # Packets meet the programs of tcx before the filters of clsact.
        first += [it.text for it in others if it.priority <= PRIORITY]
        return first, [it.text for it in others if it.priority > PRIORITY]
    return [], [*first, *(it.text for it in others)]


def _programs(index: int, direction: Direction) -> Iterator[str]:
    with contextlib.suppress(OSError, DatapathError):
        yield from tcx.names_of(index, direction)


def _filters(netlink: IPRoute, index: int, direction: Direction) -> Iterator[_Filter]:
    """Yield the filters on a hook."""
    try:
        listed = netlink.get_filters(index, parent=_PARENTS[direction])
    except NetlinkError:
        return
    for entry in listed:
        kind = entry.get_attr("TCA_KIND")
        options = entry.get_attr("TCA_OPTIONS")
        name = options.get_attr("TCA_BPF_NAME") if hasattr(options, "get_attr") else None
        # The kernel also lists each priority itself, with the handle 0.
        if entry["handle"]:
            priority = entry["info"] >> 16
            own = (name or "").startswith(_OWN_FILTER)
            yield _Filter(priority, f"tc filter {kind} (priority {priority})", own)


def offloads(interface: str) -> Collection[str]:
    """The offloads in use, among `gro`, `gso`, `tso` and `lro`."""
    found = {name for name, command in _ASKED.items() if _ethtool(interface, command)}
    if _ethtool(interface, _GET_FLAGS) & _LRO_FLAG:
        found.add("lro")
    return found


def _ethtool(interface: str, command: int) -> int:
    """The value that an ethtool command returns; 0 if the interface does not have it."""
    value = ctypes.create_string_buffer(struct.pack("=II", command, 0), 8)
    request = struct.pack("=16sQ16x", os.fsencode(interface), ctypes.addressof(value))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            fcntl.ioctl(asking, _SIOCETHTOOL, request)
        except OSError:
            return 0
    return int(struct.unpack("=II", value.raw)[1])
