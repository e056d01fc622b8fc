"""The traffic that a fleet forwards during faults, under TCP and under constant demand.

`python -m tests.sim.conservative_tcp` prints the table of results/conservative-rule.md. Of each
allocator on each fabric: the highest 1 s window without faults, with faults, and of those with
faults that begin later than a detection time after the last event, with the mean of these; and how
many runs with faults keep to `BOUND`.
With `--begin`: what a fleet forwards that was idle, when everybody begins at once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from drld.allocators import ALLOCATORS
from drld.gossip.fabrics import FABRICS
from drld.model import NS_PER_S
from testbed.sim.host import Host
from testbed.sim.network import Network
from testbed.sim.run import SAMPLE_NS

from ..factories import MBIT, limit_spec
from ..fleets.limiters import PACKET, PacketFleet
from ..fleets.tcp import TcpFleet
from ..testbed_factories import experiment

LIMIT = 10 * MBIT
BURST = 75_000
BOUND = 1.1 + BURST / LIMIT
"""The most that a fleet may forward in 1 s, over the limit. The depth counts once, as of the one
bucket that the fleet emulates, for any number of buckets, and for none."""
FLOWS = {"l1": 3, "l2": 5, "l3": 2}
EVENTS_S = (8.0, 13.0, 18.0, 23.0)
"""l1 is cut off, and heard again; l2 dies, and returns."""
SECONDS = 28


@dataclass(frozen=True, slots=True)
class Kind:
    """An allocator and its parameters."""

    allocator: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


KINDS = {
    "gtb": Kind("gtb"),
    "grd of the paper": Kind("grd", {"lead": 0.0, "guard": False}),
    "grd lead": Kind("grd", {"lead": 0.2, "guard": False}),
    "grd": Kind("grd", {"lead": 0.2, "guard": True}),
    "fps": Kind("fps"),
    "fps-random-drop": Kind("fps-random-drop"),
}


@dataclass(frozen=True, slots=True)
class Forwarded:
    """Rates over the limit, of all limiters together."""

    worst: float
    """Highest 1 s window."""
    settled: float
    """Highest of those that begin later than a detection time after the last event."""
    used: float
    """Mean of those."""


def summary(
    samples: Sequence[tuple[float, int]], events_s: Sequence[float], detection_s: float
) -> Forwarded:
    """The rates, from samples of the bytes forwarded so far, one each `SAMPLE_NS`."""
    span = NS_PER_S // SAMPLE_NS
    windows = [
        (begin_s, (samples[index + span][1] - first) / LIMIT)
        for index, (begin_s, first) in enumerate(samples[:-span])
        if begin_s >= 2
    ]
    settled = [
        rate
        for begin_s, rate in windows
        if not any(begin_s - detection_s <= event_s < begin_s + 1 for event_s in events_s)
    ]
    return Forwarded(max(rate for _, rate in windows), max(settled), sum(settled) / len(settled))


def faults_of(
    network: Network[Any], hosts: Mapping[str, Host]
) -> Iterable[tuple[float, Callable[[], None]]]:
    """The events, by their times, s: the first limiter is cut off, and the second one dies."""
    first, second, *_ = hosts
    others = [name for name in hosts if name != first]
    what = (
        partial(network.partition, [first], others),
        network.heal,
        hosts[second].kill,
        hosts[second].revive,
    )
    return zip(EVENTS_S, what, strict=True)


def under_tcp(kind: Kind, fabric: str, *, faults: bool, seed: int = 1) -> Forwarded:
    """Ten flows of TCP, 40 ms."""
    allocator = kind.allocator
    made = experiment(
        seconds=SECONDS,
        warmup="1s",
        seed=seed,
        allocators=[allocator],
        gossip={"fabric": fabric, "rtt": "40ms"},
        limit={
            "rate": "10mbit",
            "burst": "75kB",
            "parameters": {allocator: dict(kind.parameters)},
        },
        flows=[{"limiter": name, "count": n, "rtt": "40ms"} for name, n in FLOWS.items()],
    )
    fleet = TcpFleet(made, allocator)
    samples = fleet.sample(range(0, SECONDS * NS_PER_S, SAMPLE_NS))
    if faults:
        for event_s, what in faults_of(fleet.network, fleet.hosts):
            fleet.at(event_s, what)
    fleet.carry_out()
    detection_s = fleet.hosts["l1"].managed.limiter.fabric.detection_ns / NS_PER_S
    return summary(samples, EVENTS_S if faults else (), detection_s)


def packet_fleet(kind: Kind, fabric: str, size: int, seed: int) -> PacketFleet:
    """A fleet without traffic."""
    parameters = ALLOCATORS[kind.allocator].Parameters(**kind.parameters)
    limit = limit_spec(kind.allocator, parameters=parameters)
    return PacketFleet(limit, size, seed=seed, fabric=fabric)


def under_constant_demand(kind: Kind, fabric: str, *, faults: bool, seed: int = 1) -> Forwarded:
    """Each flow sends a third of the limit, whatever is dropped."""
    fleet = packet_fleet(kind, fabric, 3, seed)
    for number, (name, count) in enumerate(zip(fleet.names, FLOWS.values(), strict=True)):
        for flow in range(count):
            fleet.constant(name, 10 * number + flow, LIMIT / 3)
    if faults:
        for event_s, what in faults_of(fleet.network, fleet.nodes):
            fleet.at(round(event_s * NS_PER_S), what)
    samples = []
    for step in range(SECONDS * NS_PER_S // SAMPLE_NS):
        fleet.run_until(step * SAMPLE_NS / NS_PER_S)
        forwarded = sum(len(node.times) for node in fleet.nodes.values())
        samples.append((step * SAMPLE_NS / NS_PER_S, forwarded * PACKET))
    detection_s = fleet.fabric("l0").detection_ns / NS_PER_S
    return summary(samples, EVENTS_S if faults else (), detection_s)


def when_all_begin(kind: Kind, fabric: str, limiters: int) -> float:
    """The highest 1 s window over the limit: each sends the whole limit, from one moment on."""
    fleet = packet_fleet(kind, fabric, limiters, 1)
    fleet.run_until(3)
    for number, name in enumerate(fleet.names):
        fleet.constant(name, number, LIMIT)
    fleet.run_until(7)
    times = sorted(time_ns for node in fleet.nodes.values() for time_ns in node.times)
    highest = begin = 0
    for end, time_ns in enumerate(times):
        while times[begin] <= time_ns - NS_PER_S:
            begin += 1
        highest = max(highest, end + 1 - begin)
    return highest * PACKET / LIMIT


DEMANDS = {"TCP": under_tcp, "constant": under_constant_demand}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kind", action="append", choices=KINDS, help="of allocator")
    parser.add_argument("--fabric", action="append", choices=FABRICS)
    parser.add_argument("--demand", action="append", choices=DEMANDS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--begin", type=int, metavar="LIMITERS", help="all at once, and no faults")
    args = parser.parse_args()
    if args.begin:
        for kind in args.kind or KINDS:
            for fabric in args.fabric or FABRICS:
                highest = when_all_begin(KINDS[kind], fabric, args.begin)
                print(f"{kind}, {fabric}: {highest:.2f}", flush=True)
        return 0
    print("| demand | allocator | fabric | no faults | faults | later | used later | holds |")
    print("|---|---|---|---|---|---|---|---|")
    broken = 0
    seeds = range(1, args.seeds + 1)
    for demand in args.demand or DEMANDS:
        for kind in args.kind or KINDS:
            for fabric in args.fabric or FABRICS:
                carry_out = partial(DEMANDS[demand], KINDS[kind], fabric)
                calm = [carry_out(faults=False, seed=seed) for seed in seeds]
                runs = [carry_out(faults=True, seed=seed) for seed in seeds]
                over = [seed for seed, run in zip(seeds, runs, strict=True) if run.worst > BOUND]
                broken += len(over)
                print(
                    f"| {demand} | {kind} | {fabric} "
                    f"| {max(run.worst for run in calm):.3f} "
                    f"| {max(run.worst for run in runs):.3f} "
                    f"| {max(run.settled for run in runs):.3f} "
                    f"| {min(run.used for run in runs):.3f} "
                    f"| {len(runs) - len(over)} of {len(runs)} |",
                    flush=True,
                )
                if over:
                    print(f"{kind}, {fabric}: above with seeds {over}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
