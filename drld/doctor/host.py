"""Judgements on facts of the host that any plane needs: gossip, files, clocks, namespaces."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from drld.doctor.finding import Finding, ok, remark, unseen, wrong
from drld.gossip.wire.message import MAX_DATAGRAM

_HEADERS = {4: 28, 6: 48}
"""Bytes of the IP and UDP headers."""


@dataclass(frozen=True, slots=True)
class Port:
    """A UDP port that peers send to."""

    address: str
    number: int
    local: bool
    """Whether the address is one of this host's."""
    pid: int | None
    """The daemon's process; None: none answers."""
    owners: Sequence[tuple[int, str]] | None
    """Process and name of each that has it bound; None: it is bound, by a process that cannot be
    seen."""


def port(facts: Port, check: str = "gossip port", key: str = "limiter.listen") -> Finding:
    """The daemon has bound the port, or can bind it; `key` names it in the configuration."""
    where = f"{facts.address}, UDP port {facts.number}"
    why = "the daemon cannot start, and no peer hears this limiter"
    if not facts.local:
        return wrong(
            check,
            f"{where}: the address is not on this host",
            why,
            "ip address   # correct limiter.listen, or order drld.service after the address",
        )
    if facts.owners is None:
        if facts.pid is not None:
            return ok(check, f"{where}: bound")
        return unseen(check, f"{where}: bound by a process that cannot be seen", "sudo drlctl …")
    strangers = [f"{name} (pid {pid})" for pid, name in facts.owners if pid != facts.pid]
    if strangers:
        return wrong(
            check,
            f"{where}: bound by {', '.join(strangers)}",
            why,
            f"ss -lunp 'sport = :{facts.number}'   # stop that process, or change {key}",
        )
    if facts.pid is not None and not facts.owners:
        return wrong(check, f"{where}: the daemon has another", why, "systemctl restart drld")
    return ok(check, f"{where}: {'bound by the daemon' if facts.owners else 'free'}")


@dataclass(frozen=True, slots=True)
class Way:
    """The route to a peer, as the kernel knows it."""

    peer: str
    address: str
    family: int
    """4 or 6."""
    mtu: int | None
    """Known MTU of the path, bytes; None: there is no route."""
    error: str = ""


def ways(facts: Sequence[Way]) -> Iterator[Finding]:
    """Each peer has a route, and the largest datagram passes in one packet."""
    sound = 0
    for way in facts:
        needed = MAX_DATAGRAM + _HEADERS[way.family]
        if way.mtu is None:
            yield wrong(
                f"route to {way.peer}",
                f"{way.address}: {way.error}",
                "the peer does not hear this limiter",
                f"ip route get {way.address}",
            )
        elif way.mtu < needed:
            yield remark(
                f"MTU to {way.peer}",
                f"{way.address}: {way.mtu} bytes, and gossip has packets of up to {needed}",
                "datagrams of many limits are cut into fragments, which many firewalls drop",
                f"ip route get {way.address}   # then `ip link set dev INTERFACE mtu {needed}`",
            )
        else:
            sound += 1
    if facts and sound == len(facts):
        least = min(way.mtu for way in facts if way.mtu is not None)
        yield ok("routes", f"to {sound} of {sound} peers, MTU at least {least}")


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain of the firewall that packets for this host meet first."""

    name: str
    drops: bool
    """Whether its policy is to drop."""
    rules: Sequence[str]


def firewall(chains: Sequence[Chain] | None, number: int) -> Iterator[Finding]:
    """No chain drops datagrams of peers, as far as its text shows."""
    check = "firewall"
    if chains is None:
        yield unseen(check, "the rules cannot be read", "sudo drlctl doctor")
        return
    clean = True
    for chain in chains:
        words = {rule: rule.replace(",", " ").split() for rule in chain.rules}
        naming = [rule for rule, its in words.items() if str(number) in its]
        refusing = [rule for rule in naming if {"drop", "reject"} & {*rule.lower().split()}]
        do = f"let UDP port {number} of the peers pass, before other rules of this chain"
        if refusing:
            clean = False
            yield wrong(
                check,
                f"{chain.name} refuses UDP port {number}: {refusing[0]}",
                "no peer is heard",
                do,
            )
        elif chain.drops and not naming:
            clean = False
            yield remark(
                check,
                f"{chain.name} drops by default, and no rule of it names port {number}",
                "if no rule accepts the peers otherwise, none is heard",
                do,
            )
    if clean:
        yield ok(check, f"no rule refuses UDP port {number}")


@dataclass(frozen=True, slots=True)
class File:
    """A file or directory that the daemon uses."""

    use: str
    path: str
    mode: int | None
    """`st_mode`; None: it does not exist."""
    owner: int = 0
    full: bool = False
    """Whether its disk has no room for users other than root."""


def files(facts: Sequence[File], daemon_uid: int) -> Iterator[Finding]:
    """Only root and the daemon's user can change the files that the daemon trusts."""
    sound = True
    for file in facts:
        if file.mode is None:
            continue
        if file.owner in (0, daemon_uid) and not file.mode & (stat.S_IWGRP | stat.S_IWOTH):
            continue
        sound = False
        mode = f"mode {stat.S_IMODE(file.mode):04o}, owner {file.owner}"
        yield wrong(
            file.use,
            f"{file.path}: others can write to it ({mode})",
            "they can change limits, or make the daemon run without them",
            f"chown root {file.path} && chmod go-w {file.path}",
        )
    if facts and sound:
        yield ok("files", "only root and the daemon's user can change them")
    if full := [file.path for file in facts if file.full]:
        yield remark(
            "disk",
            f"no space left for {', '.join(full)}",
            "limits stay in force, but changes, history and caches cannot be saved",
            f"df {' '.join(full)}   # and df -i; free the disk",
        )


def drop_ins(directory: str, ignored: Sequence[str]) -> Iterator[Finding]:
    """Files beside the drop-ins that are not read."""
    if ignored:
        yield remark(
            "drop-ins",
            f"{directory}: not read: {', '.join(ignored)}",
            "a drop-in is a file whose name ends in .toml and does not begin with a dot",
            "rename or remove it",
        )


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of this host."""

    synchronised: bool | None
    """Whether the kernel's clock is disciplined; None: unknown."""
    source: str
    """The kernel's clock source."""
    certificates: bool
    """Whether drld checks certificates, which have dates."""


SLOW_SOURCES = ("acpi_pm", "hpet", "pit", "jiffies", "refined-jiffies")
"""Clock sources that take a microsecond or more to read, or are coarse."""


def clocks(facts: Clocks) -> Iterator[Finding]:
    """Gossip, probes and buckets use the monotonic clock of each host: skew is harmless there."""
    if facts.certificates and facts.synchronised is False:
        yield remark(
            "clock",
            "the wall clock is not synchronised",
            "certificates of etcd are checked against it; nothing else of drld needs it",
            "timedatectl set-ntp true",
        )
    elif facts.source in SLOW_SOURCES:
        yield remark(
            "clock",
            f"the clock source is {facts.source}",
            "each packet takes the time, and this source is slow to read",
            "cat /sys/devices/system/clocksource/clocksource0/available_clocksource",
        )
    else:
        said = {True: "synchronised", False: "not synchronised", None: "of unknown state"}
        needed = "" if facts.certificates else ", and not needed"
        state = said[facts.synchronised]
        yield ok("clock", f"source {facts.source}; the wall clock is {state}{needed}")


@dataclass(frozen=True, slots=True)
class Buffers:
    """Limits on socket buffers, and on connections."""

    rmem_max: int | None
    wanted: int
    """Receive buffer that the daemon asks for, bytes."""
    net_admin: bool
    """Whether the daemon may exceed `rmem_max` (CAP_NET_ADMIN)."""
    tracked: int | None = None
    """Connections that conntrack knows; None: it is not loaded."""
    trackable: int | None = None


_FULL = 0.9
"""Part of conntrack's table from which on a burst of connections fills it."""


def buffers(facts: Buffers) -> Iterator[Finding]:
    """Socket buffers and the table of connections have room for gossip."""
    if facts.rmem_max is not None and facts.rmem_max < facts.wanted and not facts.net_admin:
        yield remark(
            "receive buffer",
            f"net.core.rmem_max is {facts.rmem_max}; the daemon asks for {facts.wanted}, and may "
            "not exceed it",
            "a large fleet's gossip is lost while the daemon is late",
            f"sysctl -w net.core.rmem_max={facts.wanted}",
        )
    if facts.tracked is None or not facts.trackable:
        return
    if facts.tracked >= _FULL * facts.trackable:
        yield wrong(
            "conntrack",
            f"{facts.tracked} of {facts.trackable} connections",
            "when the table is full the kernel drops packets of new ones, gossip included",
            f"sysctl -w net.netfilter.nf_conntrack_max={4 * facts.trackable}",
        )
    else:
        yield ok("conntrack", f"{facts.tracked} of {facts.trackable} connections")


@dataclass(frozen=True, slots=True)
class Namespaces:
    """The namespaces of this process and the daemon."""

    same_network: bool | None
    """Whether both are in one network namespace; None: no daemon, or it cannot be seen."""
    pid: int | None


def namespaces(facts: Namespaces) -> Iterator[Finding]:
    """Check that the doctor looks at the daemon's network."""
    if facts.same_network is False:
        yield wrong(
            "network namespace",
            f"the daemon (pid {facts.pid}) is in another one: the findings are not about its host",
            "interfaces, routes and rules belong to a network namespace",
            f"nsenter --net --target {facts.pid} drlctl doctor",
        )
