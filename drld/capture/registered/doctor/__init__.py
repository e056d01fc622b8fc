"""The checks of packets by `drlctl doctor`: facts of this host, and findings about them."""

from __future__ import annotations

from collections.abc import Iterator

from drld.capture import host_checks as checks
from drld.capture.registered.doctor import facts
from drld.capture.spec import Match, PacketsSpec
from drld.doctor.facts.host import PROC, number, output, shifted_s
from drld.doctor.finding import Examined, Finding


def findings(examined: Examined) -> Iterator[Finding]:
    """All findings; none if the configuration has no limits on packets."""
    spec, status = examined.spec, examined.status
    if spec is None:
        return
    limits = [limit for limit in spec.limits if isinstance(limit.match, Match)]
    if not limits and spec.registry is None:
        return
    packets = spec.plane(PacketsSpec)
    trial = facts.trial(packets) if examined.root else None
    yield from checks.trial(trial)
    yield from checks.clock(shifted_s(status["pid"] if status else None))
    if status is not None:
        datapath = status["datapath"]["name"]
        yield from checks.in_use(status["datapath"])
    else:
        datapath = packets.datapath
        if datapath == "auto":
            datapath = "kernel" if trial is None or not trial.refusals["kernel"] else "nfqueue"
    yield from checks.capabilities(examined.capabilities, datapath)
    yield from checks.settings(
        checks.Settings(
            number(PROC / "sys/net/core/bpf_jit_enable"),
            number(PROC / "sys/kernel/unprivileged_bpf_disabled"),
            bool(examined.root and (output("nft", "list", "flowtables") or "").count("flowtable")),
        ),
        datapath,
    )
    yield from checks.interfaces(facts.interfaces(), limits, datapath)
    yield from checks.other_limiters(facts.other_limiters(spec.name, limits))
