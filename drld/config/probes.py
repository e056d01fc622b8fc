"""`[probes]`: a profile, and what is set besides."""

from __future__ import annotations

from dataclasses import replace

from drld.config.problems import Problems
from drld.config.schema import ProbesTable
from drld.model import NS_PER_S
from drld.spec import ProbeSpec
from drld.units import format_duration

PROFILES = {
    "lan": ProbeSpec(),
    "wan": ProbeSpec(period_ns=5 * NS_PER_S, timeout_ns=2 * NS_PER_S, suspicion=6.0),
}


def read_probes(table: ProbesTable | None, problems: Problems) -> ProbeSpec | None:
    """The settings of a table; None: probes are off."""
    if table is None:
        return None
    given = table.model_dump(exclude={"profile"}, exclude_none=True)
    if table.profile == "off":
        for key in given:
            problems.add(["probes", key], 'must be left out: profile = "off" probes no peer')
        return None
    for key in ("period", "timeout"):
        if key in given:
            given[f"{key}_ns"] = given.pop(key)
    spec = replace(PROFILES[table.profile], **given)
    if spec.period_ns < 2 * spec.timeout_ns:
        timeout, period = format_duration(spec.timeout_ns), format_duration(spec.period_ns)
        if table.timeout is None:
            allowed = f"at least twice probes.timeout, {timeout}: helpers need the other half"
            problems.refuse(["probes", "period"], period, allowed)
        else:
            allowed = f"at most half of probes.period, {period}: helpers need the other half"
            problems.refuse(["probes", "timeout"], timeout, allowed)
    return spec
