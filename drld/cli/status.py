"""`drlctl status`: the daemon as a whole."""

from __future__ import annotations

import time
from typing import cast

import click

from drld.cli.client import Daemon
from drld.cli.limit_fields import UNTIL
from drld.cli.output import NONE, counts, json_option, write_fields, write_json
from drld.config_difference import differences
from drld.control.schema.status import GossipReport, ProbesReport, RegistryReport, StatusReport
from drld.units import human_duration, human_size


@click.command()
@json_option
@click.pass_obj
def status(daemon: Daemon, as_json: bool) -> None:
    """Show the daemon as a whole.

    \b
    drlctl status --json
    """
    report = cast(StatusReport, daemon.get("/v1/status"))
    if as_json:
        write_json(report)
    else:
        write_fields(_fields(report))


def _fields(report: StatusReport) -> list[tuple[str, str]]:
    datapath, fabric, gossip = report["datapath"], report["fabric"], report["gossip"]
    config = report["config"]
    queue = NONE if datapath["queue"] is None else datapath["queue"]
    loaded = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(config["loaded_at"]))
    rejected = gossip["rejected"]
    fields = [
        (
            "limiter",
            f"{report['name']}, drld {report['version']}, pid {report['pid']}, "
            f"up {human_duration(report['uptime_s'])}",
        ),
        ("state", "ready" if report["ready"] else "starting"),
        (
            "datapath",
            f"{datapath['name']} ({datapath['reason']}), firewall {datapath['firewall']}, "
            f"queue {queue}",
        ),
        ("counters", counts(datapath["counters"]) or NONE),
        (
            "fabric",
            f"{fabric['name']}, branching {fabric['branching']}, "
            f"every {human_duration(fabric['interval_s'])}",
        ),
        ("peers", f"{report['peers']['connected']} of {report['peers']['configured']} connected"),
        ("probes", _probes(report["probes"])),
        (
            "gossip",
            f"{gossip['sent']} sent ({human_size(gossip['bytes_sent'])}), "
            f"{gossip['received']} received, {sum(rejected.values())} rejected"
            + (f" ({counts(rejected)})" if rejected else "")
            + (f"; {gossip['floods']} floods" if gossip["floods"] else "")
            + (f"; errors: {counts(gossip['errors'])}" if gossip["errors"] else ""),
        ),
        (
            "sessions",
            f"{gossip['sessions']} begun; handshakes: {gossip['handshakes']} sent, "
            f"{gossip['greetings']} received; probes: "
            f"{gossip['control_sent']} sent, {gossip['control_received']} received",
        ),
        *_deltas(report["deltas"]),
        ("limits", str(report["limits"])),
        ("config", f"{config['file']}, loaded {loaded}"),
    ]
    if config["unsaved"]:
        fields.append(("unsaved", f"{', '.join(config['unsaved'])} {UNTIL}"))
    if report["registry"] is not None:
        fields += _registry_fields(report["registry"])
    disagreeing = report["probes"]["disagreeing"] if report["probes"] else {}
    fields += [
        ("differs", f"{peer} has a different configuration: {differences(limits)}")
        for peer, limits in disagreeing.items()
    ]
    if config["reload_error"] is not None:
        refused = "refused, so the configuration above stays in force:"
        fields.append(("reload", f"{refused}\n{config['reload_error']}"))
    return fields


def _deltas(deltas: GossipReport | None) -> list[tuple[str, str]]:
    """The fields about the second socket; none if there is none."""
    if deltas is None:
        return []
    rejected = deltas["rejected"]
    return [
        (
            "deltas",
            f"{deltas['control_sent']} sent ({human_size(deltas['bytes_sent'])}), "
            f"{deltas['control_received']} received, {sum(rejected.values())} rejected"
            + (f" ({counts(rejected)})" if rejected else "")
            + (f"; errors: {counts(deltas['errors'])}" if deltas["errors"] else "")
            + f"; sessions: {deltas['sessions']} begun",
        )
    ]


def _registry_fields(registry: RegistryReport) -> list[tuple[str, str]]:
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(registry["since"]))
    where = registry["endpoint"] or registry["error"] or "not heard yet"
    fields = [
        (
            "fleet",
            f"{registry['fleet']}, members: {registry['members']}, limits: {registry['limits']}",
        ),
        ("registry", f"{registry['state']} since {since}: {where}"),
    ]
    if registry["state"] == "waiting":
        fields.append(("joining", "nothing is limited here until the fleet is known"))
    elif not registry["joined"]:
        names = ", ".join(registry["waiting_for"]) or "etcd"
        fields.append(("joining", f"at its static share; not known to count it: {names}"))
    if registry["lost"]:
        fields.append(("lost", f"{registry['lost']} keys, in force, being put into etcd again"))
    if registry["problem_count"]:
        listed = "\n".join(registry["problems"].values())
        fields.append(("problems", f"{registry['problem_count']}, not in force here:\n{listed}"))
    if registry["cache_error"] is not None:
        fields.append(("cache", registry["cache_error"]))
    return fields


def _probes(probes: ProbesReport | None) -> str:
    if probes is None:
        return "off"
    found = {
        "alive": probes["alive"],
        "suspect": probes["suspect"],
        "dead": probes["dead"],
        "left": probes["left"],
        "unknown": probes["unknown"],
    }
    shown = ", ".join(f"{count} {state}" for state, count in found.items() if count)
    return (shown or NONE) + ("; no peer answers this limiter" if probes["isolated"] else "")
