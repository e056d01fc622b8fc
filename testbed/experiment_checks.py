"""The rules of an experiment that concern several keys."""

from __future__ import annotations

from collections.abc import Sequence

from drld.config.allocator import read_allocator
from drld.config.problems import Problems
from testbed import events
from testbed.churn import check_churn
from testbed.datagrams import UdpTable, check_udp
from testbed.experiment import Experiment
from testbed.experiment_tables import CENTRAL, NS_PER_S, STEP_NS, FlowsTable
from testbed.fields import LONGEST_NAME, places
from testbed.workload import WebTable, check_web

_RESERVED = frozenset({"lo", "out", "ctl", "all", "default"})
"""Names of devices and options, which no group may have."""


def check(experiment: Experiment, problems: Problems) -> None:
    """Check rules that concern several keys."""
    table, limiters = experiment.table, experiment.limiters
    if table.warmup >= table.seconds * NS_PER_S:
        left = f"leaves nothing of the {table.seconds:g} seconds to measure"
        problems.add(["warmup"], f"{left} (--set warmup=1s makes it shorter)")
    if round(table.seconds * NS_PER_S) % STEP_NS:
        problems.refuse(["seconds"], table.seconds, "a multiple of 0.2")
    if len(set(limiters)) != len(limiters):
        problems.add(["limiters"], "a name stands there twice")
    if not experiment.sources and not experiment.udp:
        kinds = "[[flows]], [[web]], [[udp]] or [churn]"
        problems.add(["flows"], f"missing: no traffic without {kinds}")
    if table.churn is not None:
        check_churn(table.churn, problems)
    for name, parameters in table.limit.parameters.items():
        read_allocator(["limit", "parameters", name], {**parameters, "name": name}, problems)
    if table.limit.shares and set(table.limit.shares) != set(limiters):
        problems.add(["limit", "shares"], f"needs a share for each of {', '.join(limiters)}")
    for name in {*table.limit.weights} - {*limiters}:
        problems.refuse(["limit", "weights"], name, f"one of {', '.join(limiters)}")
    _check_sources(experiment, problems)
    _check_calls(experiment, problems)
    for index, flows in enumerate(table.flows):
        where: list[int | str] = ["flows", index]
        if flows.end is not None and flows.end <= flows.start:
            problems.add([*where, "end"], "not after the start")
        if flows.egress and (flows.rtt or flows.loss or flows.rate or flows.gso):
            without = '`rtt = "0s"`, and neither `loss`, `rate` nor `gso`'
            problems.add([*where, "egress"], f"needs {without}: there is no path to the limiter")
        if flows.period is not None and (
            flows.end is None or flows.period < flows.end - flows.start
        ):
            problems.add([*where, "period"], "needs an `end`, and to be as long as the flows live")
    paths = [group.name for group in experiment.groups if not group.table.egress]
    names = [*paths, *(group.name for group in experiment.web)]
    check_web(experiment.web, table.demand, experiment.duration_ns, problems)
    check_udp(table.udp, problems)
    events.check(table.events, names, experiment.limiters, experiment.duration_ns, problems)
    for name in {*table.allocators} & {*CENTRAL}:
        if any(event.kill for event in table.events):
            problems.add(["allocators"], f"{name} has no limiter of those that `events` kill")


def _check_sources(experiment: Experiment, problems: Problems) -> None:
    """Check the common rules of groups of flows, web servers and UDP sources."""
    seen: set[str] = set()
    limiters = set(experiment.limiters)
    table = experiment.table
    keys: list[tuple[str, int]] = _keys("flows", table.flows)
    keys += [("churn", index) for index in range(len(keys), len(experiment.groups))]
    keys += [*_keys("web", table.web), *_keys("udp", table.udp)]
    for key, source in zip(keys, (*experiment.sources, *experiment.udp), strict=True):
        if source.limiter not in limiters:
            known = ", ".join(experiment.limiters)
            problems.refuse([*key, "limiter"], source.limiter, f"one of {known}")
        if source.name in seen or source.name in _RESERVED:
            problems.refuse([*key, "name"], source.name, "a name that is not taken")
        if len(source.name) > LONGEST_NAME:
            longest = f"at most {LONGEST_NAME} characters, of which a limiter takes some"
            problems.refuse([*key, "name"], source.name, longest)
        seen.add(source.name)
    for kind, tables in (("flows", table.flows), ("web", table.web)):
        for index, path in enumerate(tables):
            if path.queue is not None and path.rate is None:
                problems.add([kind, index, "queue"], "means nothing without a `rate`")


def _check_calls(experiment: Experiment, problems: Problems) -> None:
    """Check that callers have a limiter of their own, and that what they get can be judged."""
    table, calls = experiment.table, experiment.table.calls
    if calls is None:
        return
    taken = {source.limiter for source in (*experiment.sources, *experiment.udp)}
    if calls.limiter in taken or calls.limiter not in experiment.limiters:
        problems.refuse(["calls", "limiter"], calls.limiter, "a limiter without other traffic")
    if central := [name for name in table.allocators if name in CENTRAL]:
        problems.add(["calls"], f"{central[0]} has one limiter, and packets need another")
    if table.detail != "limiters":
        problems.add(["calls"], 'needs detail = "limiters"')


def _keys(kind: str, tables: Sequence[FlowsTable | WebTable | UdpTable]) -> list[tuple[str, int]]:
    """Key and index of each group of some tables in the file."""
    return [(kind, index) for index, table in enumerate(tables) for _ in places(table.limiter)]
