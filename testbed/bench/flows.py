"""5,000 TCP flows through two limiters of one limit, against no limiter (the abstract's 3 %).

Half of the flows pass each limiter; without limiters they pass two lanes that only forward. The
limit, 100 Gbit/s, is far above the host's capacity. Still, the limiter that sees traffic first
after a pause has all of the weight for some ticks, and the other drops a few packets. The limiters
gossip through the sink. The figures are goodput, and processor time of the whole host per byte,
daemons included.
"""

from __future__ import annotations

from collections.abc import Sequence

from testbed.bench.contestants import configured, everything
from testbed.bench.lanes import (
    Contestant,
    Field,
    Lane,
    Place,
    Sample,
    Setting,
    ratios,
    values,
    wired,
)
from testbed.bench.summary import Outcome, Row
from testbed.bench.traffic import Tcp
from testbed.daemon import Daemon
from testbed.errors import MeasurementError

FLOWS = 5000
_BUFFER = 64 * 1024
_SLICE_S, _WARMUP_S = 1.0, 0.5
_RATE = ("rate over none's", "")
_CPU = ("processor time a byte over none's", "")
_GBPS = ("rate", "Gbit/s")
_DROPPED = ("dropped", "% of the packets")


class _Fleet(Contestant):
    """Two daemons of one fleet."""

    name = "two limiters"

    async def start_both(self, places: Sequence[Place]) -> list[Daemon]:
        """A daemon in each lane."""
        daemons = []
        for place, other in (places, places[::-1]):
            peer = {"name": other.name, "address": f"{other.lane.exit.address}:7946"}
            fleet = {"gossip": {"fabric": "mesh"}, "peer": [peer]}
            limits = everything(protocol="tcp")(place.lane)
            daemons.append(configured(place, "kernel", limits, fleet))
            daemons[-1].launch(place.members)
            self.processes.append(daemons[-1].process)
        for daemon in daemons:
            await daemon.ready()
        return daemons


async def _dropped(daemon: Daemon) -> float:
    """Part of the packets that a daemon dropped, in per cent."""
    (limit,) = await daemon.ask("/v1/limits")
    if not limit["forwarded_packets"]:
        raise MeasurementError(f"{daemon.name}: no packet came by")
    return 100 * float(limit["dropped_packets"] / limit["arrived_packets"])


async def measure(setting: Setting) -> Outcome:
    """Slices without and with the fleet in turn."""
    lanes = [Lane(number, f"lane{number}") for number in (1, 2, 3, 4)]
    pairs = {lane.number: pair for pair in (lanes[:2], lanes[2:]) for lane in pair}
    fleet = _Fleet()
    async with wired(setting, lanes) as members:
        places = [Place(setting, members, lane) for lane in lanes[2:]]
        try:
            setting.progress.step("starting two daemons")
            daemons = await fleet.start_both(places)
            fleet.pause()
            field = Field(setting, members, [lanes[0], lanes[2]], [Contestant(), fleet])
            tcp = await Tcp.start(field, FLOWS, _SLICE_S, _WARMUP_S, _BUFFER)

            async def through(lane: Lane) -> Sample:
                return await tcp.through(pairs[lane.number])

            none, limited = await field.alternate(f"{FLOWS} flows", setting.choose(21, 3), through)
            fleet.resume()
            dropped = [await _dropped(daemon) for daemon in daemons]
        finally:
            fleet.resume()
    group, case = f"{FLOWS:,} flows", "two limiters"
    rates = [[bps / 1e9 for bps in values(seen, "bps")] for seen in (none, limited)]
    return Outcome(
        [
            Row(group, case, *_RATE, ratios(limited, none, "bps"), at_least=0.97),
            Row(group, case, *_CPU, ratios(limited, none, "cpu_s_per_gb"), below=1.03),
            Row(group, case, *_DROPPED, dropped),
            Row(group, "none", *_GBPS, rates[0]),
            Row(group, case, *_GBPS, rates[1]),
        ],
        _RATE[0],
    )
