"""`[probes]`: a profile, and what is set besides."""

from __future__ import annotations

from dataclasses import replace

from drld.config.problems import Problems
from drld.config.schema import ProbesTable
from drld.model import NS_PER_S
from drld.spec import ProbeSpec

PROFILES = {
    "lan": ProbeSpec(),
    "wan": ProbeSpec(period_ns=5 * NS_PER_S, timeout_ns=2 * NS_PER_S, suspicion=6.0),
}


def read_probes(table: ProbesTable | None, problems: Problems) -> ProbeSpec | None:
    """What a table asks for; None where nobody is to be probed."""
    if table is None:
        return None
    given = table.model_dump(exclude={"profile"}, exclude_none=True)
    if table.profile == "off":
        for key in given:
            problems.add(["probes", key], 'must be left out, for profile = "off" probes nobody')
        return None
    for key in ("period", "timeout"):
        if key in given:
            given[f"{key}_ns"] = given.pop(key)
    spec = replace(PROFILES[table.profile], **given)
    if spec.period_ns < 2 * spec.timeout_ns:
        problems.add(
            ["probes", "period" if table.timeout is None else "timeout"],
            f"a timeout of {spec.timeout_ns / NS_PER_S:g} s is more than half of the period of "
            f"{spec.period_ns / NS_PER_S:g} s: the other half is for the answers of helpers",
        )
    return spec
