"""The cost of the kernel datapath's program per packet, by part.

Nanoseconds by the kernel's own statistics, at a lane's exit, less those of an empty program there:
the statistics themselves take time. Each line's configuration uses one feature more than a line
above it. The program is always the production program.
"""

from __future__ import annotations

from collections.abc import Sequence

from testbed.bench.bpf_stats import statistics_on, timed
from testbed.bench.contestants import Drld, Program, everything, prefixes
from testbed.bench.forward import FLOWS, OFFLOADS
from testbed.bench.lanes import Setting, contest, differences, values
from testbed.bench.summary import Outcome, Row
from testbed.bench.traffic import LARGE_FRAME, Blast, Tcp

OVER_EMPTY = ("over an empty program", "ns a packet")
_EMPTY = ("empty program", "ns a packet")
_SLICE_S, _WARMUP_S = 0.3, 0.1
_BUCKET = {"fill_rate": 10**10, "depth": 10**9}
_FULL, _REFUSING = [_BUCKET], [{"fill_rate": 1, "depth": 1}]
_FLOWS = [{**_BUCKET, "flow_rate": 10**9, "flow_depth": 5 * 10**8, "reserve": 5 * 10**8}]
"""Flow buckets with a level that no flow reaches."""
_WITH_FLOWS = "a limit with flow buckets in force"
_GOAL_NS, _FLOWS_GOAL_NS = 40.0, 30.0


async def measure(setting: Setting) -> Outcome:
    """A stream of UDP through each configuration, then TCP through a daemon's."""
    with statistics_on():
        rows = await _configurations(setting)
        for group, offloads in OFFLOADS.items():
            rows += await _under_tcp(setting, f"TCP, {group}", offloads)
    return Outcome(rows, OVER_EMPTY[0])


async def _configurations(setting: Setting) -> list[Row]:
    cases = [
        Program("no limit matches: hook, headers", everything(protocol="tcp"), _FULL),
        Program("a limit without bucket: clock, counters, flow sample", everything(), [{}]),
        Program("a limit with a bucket", everything(), _FULL),
        Program(_WITH_FLOWS, everything(), _FLOWS),
        Program("a limit of an address: one hash lookup more", prefixes(1), _FULL),
        Program("two limits", everything(2), _FULL),
        Program("a limit that refuses: the exact clock", everything(), _REFUSING),
    ]
    async with contest(setting, [Program("empty"), *cases]) as field:
        blast = Blast(field, LARGE_FRAME, _SLICE_S, warmup_s=_WARMUP_S)
        empty, *others = await field.alternate(
            "UDP", setting.choose(25, 3), timed(field, blast.measure)
        )
    group = "UDP, 1,428 bytes"
    goals = {"a limit with a bucket": _GOAL_NS, _WITH_FLOWS: _FLOWS_GOAL_NS}
    return [
        Row(group, case.name, *OVER_EMPTY, differences(seen, empty, "ns"),
            below=goals.get(case.name))
        for case, seen in zip(cases, others, strict=True)
    ] + [Row(group, "empty program", *_EMPTY, values(empty, "ns"))]  # fmt: skip


async def _under_tcp(setting: Setting, group: str, offloads: Sequence[str]) -> list[Row]:
    flows = Program(_WITH_FLOWS, everything(), _FLOWS)
    async with contest(setting, [Program("empty"), Drld("kernel"), flows], offloads) as field:
        tcp = await Tcp.start(field, FLOWS, _SLICE_S, _WARMUP_S)
        empty, with_it, with_flows = await field.alternate(
            group, setting.choose(25, 3), timed(field, tcp.measure)
        )
    cases = (("drld kernel", with_it, _GOAL_NS), (_WITH_FLOWS, with_flows, _FLOWS_GOAL_NS))
    return [
        Row(group, case, *OVER_EMPTY, differences(seen, empty, "ns"),
            below=None if offloads else goal_ns)
        for case, seen, goal_ns in cases
    ] + [Row(group, "empty program", *_EMPTY, values(empty, "ns"))]  # fmt: skip
