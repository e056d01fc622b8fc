"""Judgements on what the datapaths need of the host (`drlctl doctor`), on facts alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from drld.capture.patterns import followed, is_pattern
from drld.capture.spec import match_of
from drld.control.schema.status import DatapathReport
from drld.doctor.finding import Finding, ok, remark, unseen, wrong
from drld.police.direction import Direction
from drld.spec import LimitSpec

CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21, "CAP_PERFMON": 38, "CAP_BPF": 39}
"""Numbers of the capabilities that the datapaths use."""
SUPER_PACKETS = 300_000
"""Bytes of burst from which on super-packets do no harm (docs/kernel-datapath.md)."""
QUEUEING = ("tbf", "htb", "hfsc", "cake", "netem", "red", "ets", "drr", "qfq")
"""Queueing disciplines that shape, or drop on purpose."""


@dataclass(frozen=True, slots=True)
class Trial:
    """The outcome of the doctor's attempt to attach each datapath in a namespace of its own."""

    wanted: str
    """The value of the configuration key `packets.datapath`."""
    refusals: Mapping[str, str | None]
    """The reason why each tried datapath fails, by its name; None: it works."""


def trial(facts: Trial | None) -> Iterator[Finding]:
    """Check that the datapath of the configuration can be attached here."""
    check = "datapath"
    if facts is None:
        yield unseen(
            check,
            "only root can try the datapaths, and see the programs of others",
            "sudo drlctl doctor",
        )
        return
    for name, refusal in facts.refusals.items():
        why = f"the daemon {'runs with nfqueue instead' if name == 'kernel' else 'does not start'}"
        do = "scripts/setup runtime   # installs headers and tools; see docs/troubleshooting.md"
        if refusal is None:
            yield ok(check, f"{name}: can be attached here")
        elif facts.wanted == "auto" and name == "kernel":
            yield remark(check, f"{name}: {refusal}", why, do)
        else:
            yield wrong(check, f"{name}: {refusal}", "the daemon does not start", do)


def clock(shifted_s: float) -> Iterator[Finding]:
    """Check that the daemon has the kernel's monotonic clock, from which its time namespace is so
    many seconds away."""
    if shifted_s:
        yield wrong(
            "time namespace",
            f"the monotonic clock is shifted by {shifted_s:g} s",
            "BPF programs use the kernel's own clock: they take the daemon for dead, or never do",
            "start drld outside of the time namespace",
        )


def in_use(report: DatapathReport) -> Iterator[Finding]:
    """Check the datapath in use, as the daemon reports it."""
    check, counters = "datapath in use", report["counters"]
    if "no kernel datapath: " in report["reason"]:
        reason = report["reason"].partition("no kernel datapath: ")[2]
        yield remark(
            check,
            f"nfqueue, as the kernel's cannot be had: {reason}",
            "each packet costs the daemon time, and on_failure has another default",
            "correct the reason, then restart the daemon",
        )
    if counters.get("overflow"):
        yield wrong(
            check,
            f"the queue was full {counters['overflow']} times",
            "the kernel dropped these packets, whatever the limits say",
            'packets.datapath = "kernel", or fewer packets in the limits of this host',
        )
    if counters.get("reattached"):
        yield remark(
            check,
            f"programs or rules were put back {counters['reattached']} times",
            "packets may have passed unlimited for up to a second each time",
            "journalctl -u drld | grep again",
        )


def capabilities(held: int | None, datapath: str) -> Iterator[Finding]:
    """Check that the daemon has the capabilities that its datapath needs."""
    if held is None:
        return
    needed = ["CAP_NET_ADMIN"]
    if datapath != "nfqueue":
        needed += ["CAP_BPF", "CAP_PERFMON", "CAP_SYS_ADMIN"]
    missing = [name for name in needed if not held >> CAPABILITIES[name] & 1]
    administrator = bool(held >> CAPABILITIES["CAP_SYS_ADMIN"] & 1)
    if administrator:  # CAP_SYS_ADMIN includes the two, which Linux 5.8 split off
        missing = [name for name in missing if name not in ("CAP_BPF", "CAP_PERFMON")]
    do = "compare CapabilityBoundingSet with scripts/drld.service, then restart the daemon"
    if missing == ["CAP_SYS_ADMIN"]:
        why = "after a kill, limits start with full buckets, and tcx cannot be used"
        yield remark("capabilities", f"the daemon lacks {missing[0]}", why, do)
    elif missing:
        why = "the datapath cannot be attached, or not again after a reload"
        yield wrong("capabilities", f"the daemon lacks {', '.join(missing)}", why, do)
    else:
        yield ok("capabilities", f"the daemon has {', '.join(needed)}")


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the kernel; None: this kernel does not have it."""

    jit: int | None
    """The value of the sysctl `net.core.bpf_jit_enable`."""
    unprivileged: int | None
    """The value of the sysctl `kernel.unprivileged_bpf_disabled`."""
    flowtables: bool = False
    """Whether nft has flowtables, whose packets skip the hooks of netfilter."""


def settings(facts: Settings, datapath: str) -> Iterator[Finding]:
    """Findings on settings that slow BPF programs, or let packets bypass the datapath."""
    if facts.jit == 0:
        yield remark(
            "bpf_jit_enable",
            "BPF programs are interpreted",
            "a packet costs several times the processor time",
            "sysctl -w net.core.bpf_jit_enable=1",
        )
    if facts.unprivileged == 0:
        yield remark(
            "unprivileged_bpf_disabled",
            "any user may load BPF programs",
            "drld does not need it, and it has been a way into kernels",
            "sysctl -w kernel.unprivileged_bpf_disabled=2",
        )
    if facts.flowtables and datapath == "nfqueue":
        yield wrong(
            "flowtable",
            "nft has flowtables",
            "their packets skip the hooks of the queue, so no limit sees them",
            'packets.datapath = "kernel", or keep limited flows out of the flowtable',
        )


@dataclass(frozen=True, slots=True)
class Interface:
    """An interface of this host."""

    name: str
    up: bool = True
    queueing: str = ""
    """Kind of its queueing discipline."""
    offloads: Collection[str] = ()
    """The offloads in use, among `gro`, `gso`, `tso` and `lro`."""
    xdp: bool = False
    below: Sequence[str] = ()
    """The interfaces below it."""
    master: str = ""
    """The bridge or bond above it."""
    reverse_path: int = 0
    """The rp_filter in force: 1 is strict."""
    before: Mapping[Direction, Sequence[str]] = field(default_factory=dict)
    """Programs and filters of others that meet packets before drld's."""
    after: Mapping[Direction, Sequence[str]] = field(default_factory=dict)
    """Programs and filters of others that meet packets after drld's."""


def interfaces(
    there: Mapping[str, Interface], limits: Sequence[LimitSpec], datapath: str
) -> Iterator[Finding]:
    """Check that each interface of the limits exists, and that nothing on it gets in the way."""
    hooks: dict[tuple[str, Direction], list[LimitSpec]] = {}
    for limit in limits:
        match = match_of(limit)
        hooks.setdefault((match.interface, match.direction), []).append(limit)
    below = {name: each.below for name, each in there.items()}
    for (name, direction), own in [*hooks.items()]:
        if not is_pattern(name):
            continue
        names, twice = followed(name, below)
        where = f"pattern {name} {direction.value}"
        if not names:
            why = "if that lasts, limits on it see no packet"
            yield remark(where, "stands for no interface now", why, "ip link   # correct `match`")
        for each in twice if datapath == "kernel" else ():
            yield remark(
                where,
                f"{each} lies on interfaces of which some, not all, match",
                "packets that cross both are counted twice",
                "name one of them, or choose a pattern without the upper one",
            )
        for each in names:
            hooks.setdefault((each, direction), []).extend(own)
    for (name, direction), own in hooks.items():
        if is_pattern(name):
            continue
        found = there.get(name)
        where = f"interface {name} {direction.value}"
        if found is None:
            yield wrong(
                where,
                "does not exist",
                f"limits on it see no packet: {', '.join(limit.name for limit in own)}",
                "ip link   # correct `match`, or order drld.service after the interface",
            )
            continue
        findings = [*_interface(found, direction, own, datapath)]
        yield from findings or [ok(where, "in order")]


def other_limiters(found: Iterable[tuple[str, Direction, str]]) -> Iterator[Finding]:
    """Report each other limiter that polices an interface of this one; `found` names them."""
    for name, direction, other in found:
        yield wrong(
            f"interface {name} {direction.value}",
            f"{other} polices it too",
            "a packet must pass the limits of both; with iptables, it meets those of one alone",
            "stop one of them; if it has no daemon, start one of its name once, and stop it",
        )


def _interface(
    found: Interface, direction: Direction, limits: Sequence[LimitSpec], datapath: str
) -> Iterator[Finding]:
    name, kernel = found.name, datapath == "kernel"
    where = f"interface {name} {direction.value}"
    if not found.up:
        why = "no packet passes it"
        yield remark(where, "is down", why, f"ip link set dev {name} up")
    if found.master and not kernel:
        yield wrong(
            where,
            f"is a member of {found.master}",
            f"nfqueue sees its packets at {found.master}, or not at all if they are only bridged",
            f'name {found.master} in `match`, or packets.datapath = "kernel"',
        )
    if before := found.before.get(direction):
        yield wrong(
            where,
            f"meets packets before drld: {', '.join(before)}",
            "it may pass packets that no limit has seen",
            f"bpftool net; tc filter show dev {name} "
            f"{'ingress' if direction is Direction.IN else 'egress'}   # remove or move it",
        )
    if after := found.after.get(direction):
        yield remark(
            where,
            f"meets packets that drld has passed: {', '.join(after)}",
            "what it drops counts as forwarded, and what it redirects may be counted again",
            f"tc filter show dev {name} {'ingress' if direction is Direction.IN else 'egress'}",
        )
    if found.xdp and direction is Direction.IN:
        yield remark(
            where,
            "has an XDP program",
            "packets that it drops, answers or redirects are under no limit",
            "bpftool net",
        )
    if found.queueing in QUEUEING and direction is Direction.OUT:
        yield remark(
            where,
            f"has the queueing discipline {found.queueing}",
            "what it drops counts as forwarded; two limiters in a row fight over TCP",
            f"tc -s qdisc show dev {name}   # its rate should be above the limits'",
        )
    if found.reverse_path == 1 and direction is Direction.IN and kernel:
        yield remark(
            where,
            "rp_filter is strict",
            "packets that it drops were charged already",
            f"sysctl -w net.ipv4.conf.{name}.rp_filter=2",
        )
    small = [it.name for it in limits if it.policy.burst < SUPER_PACKETS]
    cause = {"gro", "lro"} if direction is Direction.IN else {"gro", "lro", "gso", "tso"}
    on = sorted(cause & {*found.offloads})
    if kernel and small and on:
        yield remark(
            where,
            f"makes super-packets ({', '.join(on)}), and bursts are below 300 kB: "
            f"{', '.join(small)}",
            "with a round trip of next to nothing, TCP waits for timeouts when one is dropped",
            'burst = "300kB" or more, or docs/kernel-datapath.md (GSO and small buckets)',
        )
    if "lro" in found.offloads and direction is Direction.OUT:
        yield remark(
            where,
            "has LRO on",
            "packets that were merged by LRO cannot be forwarded as they came",
            f"ethtool -K {name} lro off",
        )
