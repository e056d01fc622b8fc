"""Judgements on the daemon's reports about itself, its peers and its registry (control API)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from drld.config_difference import differences
from drld.control.schema.peers import PeerReport
from drld.control.schema.status import RegistryReport, StatusReport
from drld.doctor.finding import Finding, ok, remark, wrong
from drld.units import human_duration

ACQUAINTANCE_S = 10.0
"""A running peer is heard within this time: handshakes are repeated for some seconds."""
COMPILE_S = 180.0
"""Longest start that the service manager allows (`TimeoutStartSec` of scripts/drld.service)."""

CAUSES = {
    "address": (
        "datagrams come from an address that is no peer's",
        "compare `listen` of the sender with `[[peer]]` here, and look for NAT between both",
    ),
    "key": ("a peer uses a key that this limiter lacks", "drlctl keys list   # on both hosts"),
    "tag": (
        "the keys or the names differ, or datagrams are forged",
        "drlctl keys list   # on both hosts",
    ),
    "fabric": (
        "a peer has another gossip.fabric",
        "write the same gossip.fabric in all files, then reload; without it, a limiter with a "
        "[[broker]] uses a mesh, and others a tree",
    ),
    "length": ("a peer has another gossip.tag", "make [gossip] equal in all files, then reload"),
    "kind": (
        "a peer sends messages of another version",
        "run the same version of drld on all hosts",
    ),
    "version": ("a peer speaks another wire version", "run the same version of drld on all hosts"),
}
"""Mistakes and remedies, by the reason for which datagrams are refused."""
OFTEN_PER_S = 0.1
"""Refusals of one reason that are not left over from restarts: a peer sends 20 a second."""

SEND_ERRORS = {
    "EPERM": ("a firewall of this host refuses them", "nft list ruleset; iptables-save"),
    "EMSGSIZE": ("the MTU of the way is too small", "ip route get PEER"),
}
NO_ROUTE = ("there is no route to a peer", "ip route get PEER")


def daemon(status: StatusReport, own_version: str) -> Iterator[Finding]:
    """The process: it has started, its ticks are in time, and its version is the installed one."""
    uptime_s = status["uptime_s"]
    if status["ready"]:
        yield ok("daemon", f"ready, pid {status['pid']}, up {human_duration(uptime_s)}")
    elif uptime_s > COMPILE_S:
        yield wrong(
            "daemon",
            f"still starting after {human_duration(uptime_s)}",
            "nothing is limited until it is ready",
            "journalctl -u drld",
        )
    else:
        yield remark("daemon", "starting", "nothing is limited until it is ready", "drlctl status")
    if status["version"] != own_version:
        yield remark(
            "version",
            f"the daemon runs drld {status['version']}, installed is {own_version}",
            "an upgrade is in force after a restart only",
            "systemctl kill --signal=KILL drld   # the kernel datapath limits meanwhile",
        )
    probes = status["probes"]
    # Without answers of any peer, awareness says nothing about this daemon.
    if probes and probes["awareness"] and probes["alive"] and not probes["isolated"]:
        yield remark(
            "lateness",
            "the daemon runs late, or loses what it is sent",
            "estimates are old, and peers may suspect this limiter",
            "top   # is the processor busy? raise the intervals of the limits",
        )
    errors = status["datapath"]["counters"].get("errors", 0)
    if errors:
        yield wrong(
            "datapath",
            f"the daemon failed to judge {errors} packets",
            "such packets get what on_failure says",
            "journalctl -u drld   # a bug: report its trace",
        )


def configuration(status: StatusReport, differs: Sequence[str] | None) -> Iterator[Finding]:
    """Compare the configuration in force with the files; `differs`: tables; None: not compared."""
    config = status["config"]
    if config["reload_error"] is not None:
        yield wrong(
            "reload",
            f"the last reload was refused: {config['reload_error'].splitlines()[0]}",
            "the file is not in force, and the next start of the daemon fails",
            f"drld --config {config['file']} --check",
        )
    elif differs:
        yield remark(
            "configuration",
            f"the files differ from what is in force: {', '.join(differs)}",
            "the next start or reload changes it",
            "drlctl diff && drlctl reload",
        )
    elif differs is not None:
        yield ok("configuration", f"{config['file']} is in force")
    if config["unsaved"]:
        yield remark(
            "unsaved changes",
            f"limits with changes that are not saved: {', '.join(config['unsaved'])}",
            "a restart or a reload reverts them",
            "drlctl limit set NAME … --save",
        )


def peers(status: StatusReport, reports: Sequence[PeerReport]) -> Iterator[Finding]:
    """Whether each peer is heard, and the reason if it is not."""
    probes = status["probes"]
    if probes is not None and probes["isolated"]:
        yield wrong(
            "peers",
            "no peer answers this limiter",
            "it enforces its static share alone",
            "check this host's network, its firewall for UDP, and the key in use: drlctl keys list",
        )
    silent = [report for report in reports if not _heard(report, probes is not None)]
    if reports and not silent:
        yield ok("peers", f"{len(reports)} of {len(reports)} heard")
    for report in silent:
        yield _silent(report, status["uptime_s"])
    disagreeing = probes["disagreeing"] if probes is not None else {}
    for name, limits in disagreeing.items():
        yield wrong(
            f"peer {name}",
            f"has a different configuration: {differences(limits)}",
            "limiters that differ do not add up to one limit",
            "compare the files of both hosts, then `drlctl reload` on both",
        )


def _heard(report: PeerReport, probed: bool) -> bool:
    """Whether a peer is heard; in a tree only neighbours send updates, so probes tell better."""
    return report["verdict"] == "alive" if probed else report["connected"]


def _silent(report: PeerReport, uptime_s: float) -> Finding:
    check, verdict, age_s = f"peer {report['name']}", report["verdict"], report["age_s"]
    what = f"{report['address']}: {verdict}"
    if age_s is not None:
        what += f", last update {human_duration(age_s)} ago"
    elif verdict == "unknown":
        what += ", never heard"
    why = "its share of each limit is used by no other limiter"
    if verdict == "left":
        return remark(check, what, why, "start its daemon, or remove its [[peer]] and reload")
    if verdict == "suspect" or (age_s is None and uptime_s < ACQUAINTANCE_S):
        return remark(check, what, why, "drlctl peers   # again, in some seconds")
    return wrong(
        check,
        what,
        why,
        "start its daemon; compare its `listen`, and let UDP pass the firewalls between both; "
        "run drlctl doctor there, too",
    )


def gossip(status: StatusReport) -> Iterator[Finding]:
    """Datagrams of peers that were refused, and datagrams that this host refused to send."""
    found = status["gossip"]
    alike = True
    for reason, (cause, do) in CAUSES.items():
        count = found["rejected"].get(reason, 0)
        if count > max(OFTEN_PER_S * status["uptime_s"], 10):
            alike = False
            yield wrong(
                f"gossip {reason}",
                f"{count} datagrams refused: {cause}",
                "limiters that do not hear each other use their static shares alone",
                do,
            )
    for error, count in found["errors"].items():
        alike = False
        cause, do = SEND_ERRORS.get(error, NO_ROUTE if error.endswith("UNREACH") else (error, ""))
        yield wrong(
            f"gossip {error}",
            f"{count} datagrams could not be sent: {cause}",
            "peers do not hear this limiter",
            do or "drlctl peers",
        )
    if alike and found["received"]:
        yield ok("gossip", f"{found['received']} updates received")


def registry(report: RegistryReport) -> Iterator[Finding]:
    """The fleet's registry in etcd."""
    if report["state"] != "connected":
        waiting = report["state"] == "waiting"
        yield wrong(
            "registry",
            f"{report['state']}: {report['error'] or 'not heard yet'}",
            "nothing is limited here" if waiting else "no limiter can join or leave",
            "etcdctl endpoint health   # docs/registry.md",
        )
    for key, reason in report["problems"].items():
        yield wrong(
            f"registry {key}", reason, "it is not in force here", "drlctl limit set --fleet"
        )
    if report["cache_error"] is not None:
        yield wrong(
            "registry cache",
            report["cache_error"],
            "a start while etcd is away needs it",
            "make its directory writable, or free the disk",
        )
    if report["state"] == "connected" and not report["problem_count"]:
        yield ok("registry", f"connected to {report['endpoint']}")
