"""5,000 TCP flows through two limiters of one limit, against no limiter (the abstract's 3 %).

Half of the flows pass each limiter; without limiters they pass two lanes that only forward. The
limit, 100 Gbit/s, is far above the host's capacity. Still, the limiter that sees traffic first
after a pause has all of the weight for some ticks, and the other drops a few packets. The limiters
gossip through the sink. The figures are goodput, and processor time of the whole host per byte,
daemons included.
"""

from __future__ import annotations

import signal

from testbed.bench.contestants import Nothing, everything, launch_daemon, ready, tell
from testbed.bench.lanes import Field, Lane, Place, Sample, Setting, ratios, values, wired
from testbed.bench.summary import Outcome, Target, row
from testbed.bench.traffic import Tcp
from testbed.control import ask
from testbed.crew import Child
from testbed.errors import MeasurementError

FLOWS = 5000
_BUFFER = 64 * 1024
_SLICE_S, _WARMUP_S = 1.0, 0.5
_RATE = ("rate over none's", "")
_CPU = ("processor time a byte over none's", "")
_GBPS = ("rate", "Gbit/s")
_DROPPED = ("dropped", "% of the packets")


class _Fleet(Nothing):
    """Two daemons of one fleet."""

    name = "two limiters"

    def __init__(self) -> None:
        self._daemons: dict[Place, Child] = {}

    async def start_both(self, places: tuple[Place, Place]) -> None:
        """A daemon in each lane."""
        for place, other in (places, places[::-1]):
            peer = {"name": other.name, "address": f"{other.lane.exit_address}:7946"}
            fleet = {"gossip": {"fabric": "mesh"}, "peer": [peer]}
            limits = everything(protocol="tcp")(place.lane)
            self._daemons[place] = launch_daemon(place, "kernel", limits, fleet)
        for place, daemon in self._daemons.items():
            await ready(place, daemon)

    def pause(self) -> None:
        """See `Contestant`."""
        for daemon in self._daemons.values():
            tell(daemon, signal.SIGSTOP)

    def resume(self) -> None:
        """See `Contestant`."""
        for daemon in self._daemons.values():
            tell(daemon, signal.SIGCONT)

    async def dropped(self) -> list[float]:
        """Part of the packets that each daemon dropped, in per cent."""
        found = []
        for place in self._daemons:
            (limit,) = await ask(place.control, "/v1/limits")
            if not limit["forwarded_packets"]:
                raise MeasurementError(f"{place.name}: no packet came by")
            found.append(100 * limit["dropped_packets"] / limit["arrived_packets"])
        return found


async def measure(setting: Setting) -> Outcome:
    """Slices without and with the fleet in turn."""
    lanes = [Lane(number, f"lane{number}") for number in (1, 2, 3, 4)]
    pairs = {lane.number: pair for pair in (lanes[:2], lanes[2:]) for lane in pair}
    fleet = _Fleet()
    async with wired(setting, lanes) as members:
        try:
            setting.progress.step("starting two daemons")
            await fleet.start_both(
                (Place(setting, members, lanes[2]), Place(setting, members, lanes[3]))
            )
            fleet.pause()
            field = Field(setting, members, [lanes[0], lanes[2]], [Nothing(), fleet])
            tcp = await Tcp.start(field, FLOWS, _SLICE_S, _WARMUP_S, _BUFFER)

            async def through(lane: Lane) -> Sample:
                return await tcp.through(pairs[lane.number])

            none, limited = await field.alternate(f"{FLOWS} flows", setting.choose(21, 3), through)
            fleet.resume()
            dropped = await fleet.dropped()
        finally:
            fleet.resume()
    group, case = f"{FLOWS:,} flows", "two limiters"
    gbps = [[bps / 1e9 for bps in values(seen, "bps")] for seen in (none, limited)]
    return Outcome(
        [
            row(group, case, _RATE, ratios(limited, none, "bps"), target=Target(0.97)),
            row(group, case, _CPU, ratios(limited, none, "cpu_s_per_gb"),
                target=Target(1.03, at_least=False)),
            row(group, case, _DROPPED, dropped),
            row(group, "none", _GBPS, gbps[0]),
            row(group, case, _GBPS, gbps[1]),
        ],
        _RATE[0],
    )  # fmt: skip
