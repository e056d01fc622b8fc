"""The fleet of `testbed.chaos.scene` in virtual time: its limit, its traffic, and what happens.

Each limiter has the scene's TCP flows and its constant stream of UDP, packet by packet, in front of
the daemon's own code. What is forwarded is what the suite measures, on a host that is never late.

`python -m tests.sim.chaos_fleet --seeds N` prints the least that is used in any second, for each
fabric and thing that happens, of N runs, and in which: what `testbed.chaos.promises` promises.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from random import Random

from drld.gossip.fabrics import FABRICS
from drld.model import GRACE_INTERVALS, NS_PER_S, Enforcement
from testbed.chaos.partitions import FLAP_S
from testbed.chaos.promises import (
    CLOSED,
    CUT,
    FLAPPING,
    FROZEN,
    FROZEN_CLOSED,
    KILLED,
    RESTARTED,
    RESTARTED_CLOSED,
)
from testbed.chaos.scene import FULL_LOAD, GOSSIP_RTT, LIMITERS, RATE, RTT, STREAM_BYTES
from testbed.chaos.series import WINDOW_S
from testbed.chaos.source import STALL_S
from testbed.sim.host import Host

from ..factories import TICK_NS, flow
from ..fleets.tcp import TcpFleet
from ..testbed_factories import experiment

BEGIN_S, AFTER_S = 4.0, 4.0
"""The begin of the fault, and the time for which the fleet is watched after it, s."""
STARTS_S = 0.3
"""Within which daemons that are started together are ready."""
_STEP_NS = NS_PER_S // 50
_NOTHING = Enforcement(fill_rate=0, depth=0)
Deed = Callable[[TcpFleet], object]


class Scene:
    """The fleet of the scene, and a plan of what happens to it."""

    def __init__(self, fabric: str, seed: int, lasts_s: tuple[float, float]) -> None:
        """Draw the times.

        Args:
            fabric: its name.
            seed: of the times, the order of the limiters, and the run.
            lasts_s: shortest and longest duration of the fault.
        """
        self.rng = Random(seed)
        self.begin_s = BEGIN_S + self.rng.random() * TICK_NS / NS_PER_S
        self.healed_s = self.begin_s + self.rng.uniform(*lasts_s)
        self.names = [f"l{number}" for number in range(1, LIMITERS + 1)]
        self.rng.shuffle(self.names)
        self._fabric, self._seed = fabric, seed
        self._plan: list[tuple[float, Deed]] = []
        self._pauses: dict[str, float] = {}

    def at(self, time_s: float, do: Deed) -> None:
        """Plan something."""
        self._plan.append((time_s, do))

    def silence(self, name: str, until_s: float) -> None:
        """Give up the TCP flows of a limiter until then, as a client does that tries again."""
        self._pauses[name] = until_s

    def least(self) -> float:
        """Carry the plan out; return the least that passes in any second, over the limit."""
        end_s = self.healed_s + AFTER_S
        fleet = TcpFleet(
            experiment(
                seconds=math.ceil(end_s),
                warmup="1s",
                seed=self._seed,
                allocators=["fps"],
                gossip={"fabric": self._fabric, "rtt": GOSSIP_RTT},
                limit={"rate": f"{8 * RATE}bit", "burst": f"{FULL_LOAD.burst}B"},
                flows=[group for name in self.names for group in self._flows(name)],
            ),
            "fps",
        )
        for number, name in enumerate(self.names):
            self._stream(fleet, name, 100 + number)
        for time_s, do in self._plan:
            fleet.at(time_s, partial(do, fleet))
        begin_ns, end_ns = round(self.begin_s * NS_PER_S), round(end_s * NS_PER_S)
        samples = fleet.sample(range(begin_ns, end_ns, _STEP_NS))
        fleet.carry_out()
        passed = [forwarded for _, forwarded in samples]
        span = round(WINDOW_S * NS_PER_S) // _STEP_NS
        return min(b - a for a, b in zip(passed, passed[span:], strict=False)) / WINDOW_S / RATE

    def _flows(self, name: str) -> list[dict[str, object]]:
        common = {"limiter": name, "count": FULL_LOAD.flows, "rtt": RTT}
        if name not in self._pauses:
            return [common | {"name": name}]
        again = {"start": f"{self._pauses[name] * 1000:.0f}ms", "spread": f"{STALL_S}s"}
        return [
            common | {"name": name, "end": f"{self.begin_s * 1000:.0f}ms"},
            common | again | {"name": f"{name}-2"},
        ]

    def _stream(self, fleet: TcpFleet, name: str, number: int) -> None:
        clock, host = fleet.clock, fleet.hosts[name]
        period_ns = STREAM_BYTES * NS_PER_S // FULL_LOAD.stream

        def send(_: object) -> None:
            host.passes(flow(number), STREAM_BYTES)
            clock.at(clock.now_ns + period_ns, send)

        clock.at(clock.now_ns + self.rng.randrange(period_ns), send)


Act = Callable[[Scene], None]
"""Plans a fault."""


def cut(*paths: tuple[int, int]) -> Act:
    """Cut paths from and to limiters, by number."""

    def act(scene: Scene) -> None:
        scene.at(scene.begin_s, _cut(scene, paths))
        scene.at(scene.healed_s, _cut(scene, ()))

    return act


def _cut(scene: Scene, paths: Iterable[tuple[int, int]]) -> Deed:
    broken = {(scene.names[source], scene.names[destination]) for source, destination in paths}
    return lambda fleet: setattr(fleet.network, "cut", set(broken))


ALONE = ((0, 1), (1, 0), (0, 2), (2, 0))


def flap(*rhythm: float) -> Act:
    """Cut one limiter off and connect it, again and again.

    Each state lasts for the times of the rhythm, s, or at random as in `testbed.chaos.partitions`.
    """

    def act(scene: Scene) -> None:
        lasting = itertools.cycle(rhythm)
        now_s = scene.begin_s
        while now_s < scene.healed_s:
            for paths in (ALONE, ()):
                scene.at(now_s, _cut(scene, paths))
                now_s += next(lasting, None) or scene.rng.uniform(*FLAP_S)

    return act


def killed(count: int, *, closed: bool = False) -> Act:
    """Kill some daemons and start them again; `closed`: nothing passes their hosts meanwhile."""

    def act(scene: Scene) -> None:
        for name in scene.names[:count]:
            back_s = scene.healed_s + scene.rng.random() * STARTS_S
            scene.at(scene.begin_s, _to_host(Host.kill, name))
            scene.at(back_s, _to_host(Host.revive, name))
            if closed:
                _keep_closed(scene, name, back_s)

    return act


def freeze(*, closed: bool = False) -> Act:
    """Freeze one daemon; `closed`: nothing passes its host meanwhile."""

    def act(scene: Scene) -> None:
        name = scene.names[0]
        for_ns = round((scene.healed_s - scene.begin_s) * NS_PER_S)
        scene.at(scene.begin_s, _to_host(lambda host: host.freeze(for_ns), name))
        if closed:
            _keep_closed(scene, name, scene.healed_s)

    return act


def _to_host(do: Callable[[Host], object], name: str) -> Deed:
    return lambda fleet: do(fleet.hosts[name])


def _keep_closed(scene: Scene, name: str, until_s: float) -> None:
    """Let nothing pass a host whose daemon has just failed, until it is back."""
    scene.at(scene.begin_s, _to_host(_close, name))
    # Later than it has fallen back to its share.
    fallen_s = scene.begin_s + (GRACE_INTERVALS * TICK_NS + 1) / NS_PER_S
    scene.at(fallen_s, _to_host(_close, name))
    scene.silence(name, until_s)


def _close(host: Host) -> None:
    host.policer.program(_NOTHING, (), host._clock.now_ns)


ACTS: Mapping[str, tuple[Act, ...]] = {
    CUT: (cut(*ALONE), cut((0, 1), (0, 2)), cut((0, 1), (1, 0))),
    FROZEN: (freeze(),),
    FROZEN_CLOSED: (freeze(closed=True),),
    FLAPPING: (flap(), flap(1.2, 0.2), flap(1.2, 1.2), flap(1.4, 0.4)),
    **{KILLED[count]: (killed(count),) for count in KILLED},
    RESTARTED: (killed(1),),
    CLOSED[1]: (killed(1, closed=True),),
    CLOSED[2]: (killed(2, closed=True),),
    RESTARTED_CLOSED: (killed(1, closed=True),),
}
"""The promises, and the events that each is about."""
LASTS_S = {FLAPPING: (10.0, 10.0), RESTARTED: (0.7, 3.0), RESTARTED_CLOSED: (0.7, 3.0)}
LONG_S = 5.0, 5.0
"""Bounds of a fault's random duration, s; longer than a detection time by default."""


def least(fabric: str, what: str, number: int, seed: int) -> float:
    """The least that is used in any second, over the limit, if one of these things happens."""
    scene = Scene(fabric, seed, LASTS_S.get(what, LONG_S))
    ACTS[what][number](scene)
    return scene.least()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=20, help="runs of each")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--fabric", action="append", choices=FABRICS, help="no others")
    parser.add_argument("--what", action="append", choices=ACTS, help="nothing else")
    args = parser.parse_args()
    for fabric in args.fabric or FABRICS:
        for what in args.what or ACTS:
            for number in range(len(ACTS[what])):
                found = sorted(
                    (least(fabric, what, number, seed), seed)
                    for seed in range(args.first, args.first + args.seeds)
                )
                middle, _ = found[len(found) // 2]
                lowest, seed = found[0]
                print(
                    f"{fabric} {what} [{number}]: {lowest:.3f} (seed {seed}), median {middle:.3f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
