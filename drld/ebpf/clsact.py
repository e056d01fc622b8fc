"""BPF programs on clsact, the classifier hooks of an interface (tc-bpf(8)), through pyroute2.

It serves kernels without tcx (`drld.ebpf.tcx`), which costs a packet less.

A filter keeps its program, and so the program's maps, alive without any process or file. The next
daemon of that limiter finds it by its name, `drld:<limiter>:<handover_ids>`. A new filter with the
handle of an old one replaces it in one step: each packet meets one of the two.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from drld.ebpf.bpf import Program
from drld.ebpf.hook import Found
from drld.ebpf.other_limiters import NO_DAEMON, running
from drld.errors import DatapathError
from drld.police.direction import Direction

PRIORITY = 0x647
"""Priority of drld's filters among all filters."""

_PREFIX = "drld:"
"""Beginning of the names of all limiters' filters."""
_PARENT = {Direction.IN: 0xFFFFFFF2, Direction.OUT: 0xFFFFFFF3}


class Clsact:
    """The filters of one limiter in the current network namespace (`attachment.Attachment`)."""

    way = "clsact"

    def __init__(self, limiter_name: str) -> None:
        """Open a netlink socket; the other methods need CAP_NET_ADMIN.

        Raises:
            DatapathError: the socket cannot be opened.
        """
        self._prefix = f"{_PREFIX}{limiter_name}:"
        digest = hashlib.blake2s(limiter_name.encode("utf-8", "surrogatepass"), digest_size=4)
        self._handle = int.from_bytes(digest.digest(), "big") & 0x7FFFFFFF | 1
        try:
            self._netlink = IPRoute()
        except OSError as error:
            raise DatapathError(f"netlink: {error}") from error

    def close(self) -> None:
        """See `Attachment.close`."""
        self._netlink.close()

    def program_name(self, kind: str) -> str:
        """See `Attachment.program_name`."""
        return kind

    def put(self, index: int, direction: Direction, program: Program, handover_ids: str) -> None:
        """See `Attachment.put`."""
        with _explained(f"tc filter on interface {index} {direction.value}"):
            if not self._has_clsact(index):
                self._netlink.tc("add", "clsact", index)
            self._netlink.tc(
                "replace-filter",
                "bpf",
                index,
                self._handle,
                fd=program.fd,
                name=self._prefix + handover_ids,
                parent=_PARENT[direction],
                prio=PRIORITY,
                direct_action=True,
            )

    def remove(self, index: int, direction: Direction) -> None:
        """See `Attachment.remove`; removes clsact, too, if no filter is left on it."""
        with _explained(f"tc filter on interface {index} {direction.value}"):
            if not _exists(index):
                return
            ours = any(self._ours(entry) for entry in self._filters(index, direction))
            if ours:
                self._netlink.tc(
                    "del-filter",
                    "bpf",
                    index,
                    self._handle,
                    parent=_PARENT[direction],
                    prio=PRIORITY,
                )
            # The search for clsact is slow on a host with many interfaces.
            if (ours or self._has_clsact(index)) and not any(
                self._filters(index, each) for each in Direction
            ):
                self._netlink.tc("del", "clsact", index)

    def has(self, index: int, direction: Direction) -> bool:
        """See `Attachment.has`."""
        with _explained(f"tc filter on interface {index} {direction.value}"):
            return any(self._ours(entry) for entry in self._filters(index, direction))

    def found(self) -> list[Found]:
        """See `Attachment.found`."""
        there = {
            qdisc["index"]
            for qdisc in self._netlink.get_qdiscs()
            if qdisc.get_attr("TCA_KIND") == "clsact"
        }
        return [
            Found(interface, link["index"], direction, name[len(self._prefix) :])
            for link in self._links()
            # pyroute2 has bytes where a name is not UTF-8.
            for interface in [os.fsdecode(link.get_attr("IFLA_IFNAME"))]
            if link["index"] in there
            for direction in Direction
            for entry in self._filters(link["index"], direction)
            if (name := self._ours(entry))
        ]

    def others(self, index: int, direction: Direction) -> list[str]:
        """See `Attachment.others`."""
        with _explained(f"tc filter on interface {index} {direction.value}"):
            names = {_name(entry) or "" for entry in self._filters(index, direction)}
        theirs = {name for name in names if name.startswith(_PREFIX)}
        limiters = sorted({it.split(":")[1] for it in theirs if not it.startswith(self._prefix)})
        alive = running() if limiters else []
        return [f"limiter {name}{'' if name in alive else NO_DAEMON}" for name in limiters]

    def _links(self) -> list[Any]:
        return list(self._netlink.get_links())

    def _has_clsact(self, index: int) -> bool:
        return any(
            qdisc.get_attr("TCA_KIND") == "clsact" for qdisc in self._netlink.get_qdiscs(index)
        )

    def _filters(self, index: int, direction: Direction) -> list[Any]:
        listed = self._netlink.get_filters(index, parent=_PARENT[direction])
        # The kernel also lists the priority itself, with handle 0.
        return [entry for entry in listed if entry["handle"]]

    def _ours(self, entry: Any) -> str | None:
        name = _name(entry)
        return name if name is not None and name.startswith(self._prefix) else None


def _name(entry: Any) -> str | None:
    """The name of a filter; None if it has none."""
    options = entry.get_attr("TCA_OPTIONS")
    return options.get_attr("TCA_BPF_NAME") if hasattr(options, "get_attr") else None


def _exists(index: int) -> bool:
    try:
        socket.if_indextoname(index)
    except OSError:
        return False
    return True


@contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except (NetlinkError, OSError) as error:
        raise DatapathError(f"{what}: {error}") from error
