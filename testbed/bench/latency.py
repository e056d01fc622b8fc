"""The latency that a datapath adds to a packet, measured with a moderate stream of UDP.

Each packet carries its sending time, and the kernel stamps its arrival at the sink. So the figures
include a system call and two veth pairs. A datapath's latency is a quantile of its slice less the
same quantile of the neighbouring slice without a datapath.
"""

from __future__ import annotations

from testbed.bench.contestants import NFT, Drld
from testbed.bench.lanes import (
    SINK,
    SOURCE,
    Contestant,
    Field,
    Lane,
    Sample,
    Setting,
    contest,
    differences,
    values,
)
from testbed.bench.summary import Outcome, Row
from testbed.bench.traffic import start_pinned
from testbed.errors import MeasurementError
from testbed.linkcheck import quantile_ms, timed

_ADDED, _WHOLE = ("added", "µs"), ("under way", "µs")
_QUANTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
_RATE = 2000


async def measure(setting: Setting) -> Outcome:
    """Measure all datapaths in one run, a slice each in turn."""
    rivals: list[Contestant] = [Contestant(), Drld("kernel"), Drld("nfqueue"), NFT]
    stream = {"rate": _RATE, "seconds": setting.choose(3, 1)}
    async with contest(setting, [Contestant(), *rivals]) as field:

        async def time_packets(lane: Lane) -> Sample:
            return await _time_packets(field, lane, stream)

        none, *others = await field.alternate("all", setting.choose(7, 2), time_packets)
    rows: list[Row] = []
    for name in _QUANTILES:
        rows.append(Row(name, "none", *_WHOLE, values(none, name)))
        for rival, seen in zip(rivals, others, strict=True):
            case = "none again" if rival.name == "none" else rival.name
            rows += [
                Row(name, case, *_ADDED, differences(seen, none, name)),
                Row(name, case, *_WHOLE, values(seen, name)),
            ]
    return Outcome(rows, _ADDED[0])


async def _time_packets(field: Field, lane: Lane, stream: dict[str, int]) -> Sample:
    job = {"destination": lane.sink.address, **stream}
    receiver = await start_pinned(field, SINK, "udp", job, "receive")
    sender = await start_pinned(field, SOURCE, "udp", job, "send")
    try:
        sent, delays = await timed(sender, receiver, stream["seconds"])
    finally:
        await field.members.dismiss((receiver, sender))
    if len(delays) != sent["packets"]:
        raise MeasurementError(f"{sent['packets']} packets were sent, but {len(delays)} received")
    return {name: quantile_ms(delays, share) * 1e3 for name, share in _QUANTILES.items()}
