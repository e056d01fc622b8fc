"""The fleet of `testbed.chaos.scene` in virtual time: its limit, its traffic, and what happens.

Each limiter has the scene's TCP flows and its constant stream of UDP, packet by packet, in front of
the daemon's own code. What is forwarded is what the suite measures, on a host that is never late.

`python -m tests.sim.chaos_fleet --seeds N` prints the least that is used in any second, for each
fabric and thing that happens, of N runs, and in which: what `testbed.chaos.promises` promises.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from random import Random

from drld.gossip.fabrics import FABRICS
from drld.model import GRACE_INTERVALS, NS_PER_S, Enforcement
from testbed.chaos.partitions import FLAP_S
from testbed.chaos.promises import (
    CLOSED,
    CUT,
    FLAPPING,
    FROZEN,
    KILLED,
    RESTARTED,
    RESTARTED_CLOSED,
)
from testbed.chaos.scene import FULL_LOAD, GOSSIP_RTT, LIMITERS, RATE, RTT, STREAM_BYTES
from testbed.chaos.series import WINDOW_S
from testbed.chaos.source import STALL_S
from testbed.sim.host import Host
from testbed.sim.run import Simulation

from ..factories import TICK_NS, flow
from ..testbed_factories import experiment

BEGIN_S, AFTER_S = 4.0, 4.0
"""When something happens, and for how long it is watched when it is over."""
STARTS_S = 0.3
"""Within which daemons that are started together are ready."""
_STEP_NS = NS_PER_S // 50
_NOTHING = Enforcement(fill_rate=0, depth=0)


class Fleet:
    """The scene's, and when what happens to it."""

    def __init__(self, fabric: str, seed: int, lasts_s: tuple[float, float]) -> None:
        """`lasts_s`: for how long it happens, at least and at most."""
        self.rng = Random(seed)
        self.begin_s = BEGIN_S + self.rng.random() * TICK_NS / NS_PER_S
        self.healed_s = self.begin_s + self.rng.uniform(*lasts_s)
        self.end_s = self.healed_s + AFTER_S
        self.names = [f"l{number}" for number in range(1, LIMITERS + 1)]
        self.rng.shuffle(self.names)
        self._fabric, self._seed = fabric, seed
        self._plan: list[tuple[float, Callable[[], None]]] = []
        self._pauses: dict[str, tuple[float, float]] = {}

    @property
    def now_ns(self) -> int:
        """The time, while it runs."""
        return self._run._clock.now_ns

    def host(self, name: str) -> Host:
        """A limiter, while it runs."""
        return self._hosts[name]

    def at(self, time_s: float, do: Callable[[], None]) -> None:
        """Have something happen."""
        self._plan.append((time_s, do))

    def silence(self, name: str, until_s: float) -> None:
        """Give up the TCP flows of a limiter until then, as a client does that tries again."""
        self._pauses[name] = self.begin_s, until_s

    def cut(self, paths: Sequence[tuple[str, str]]) -> None:
        """Let nothing through on these paths, and on no others."""
        self._run.fleet.network.cut = set(paths)

    def least(self) -> float:
        """Let it all happen; the least that is forwarded in any second, over the limit."""
        self._run = Simulation(
            experiment(
                seconds=math.ceil(self.end_s) + 1,
                warmup="1s",
                seed=self._seed,
                allocators=["fps"],
                gossip={"fabric": self._fabric, "rtt": GOSSIP_RTT},
                limit={"rate": f"{8 * RATE}bit", "burst": f"{FULL_LOAD.burst}B"},
                flows=[group for name in self.names for group in self._flows(name)],
            ),
            "fps",
            1,
        )
        self._hosts = {host.name: host for host in self._run.fleet.hosts}
        clock = self._run._clock
        begin_ns = clock.now_ns + NS_PER_S
        for number, name in enumerate(self.names):
            self._stream(self._hosts[name], 100 + number)
        for time_s, do in self._plan:
            clock.at(begin_ns + round(time_s * NS_PER_S), lambda do: do(), do)
        passed: list[int] = []
        end_ns = begin_ns + round(self.end_s * NS_PER_S)
        for time_ns in range(begin_ns + round(self.begin_s * NS_PER_S), end_ns, _STEP_NS):
            clock.at(time_ns, lambda _: passed.append(self._passed()))
        self._run.carry_out()
        span = round(WINDOW_S * NS_PER_S) // _STEP_NS
        return min(b - a for a, b in zip(passed, passed[span:], strict=False)) / WINDOW_S / RATE

    def _flows(self, name: str) -> list[dict[str, object]]:
        common = {"limiter": name, "count": FULL_LOAD.flows, "rtt": RTT}
        if name not in self._pauses:
            return [common | {"name": name}]
        end_s, start_s = self._pauses[name]
        again = {"start": f"{start_s * 1000:.0f}ms", "spread": f"{STALL_S}s"}
        return [
            common | {"name": name, "end": f"{end_s * 1000:.0f}ms"},
            common | again | {"name": f"{name}-2"},
        ]

    def _stream(self, host: Host, number: int) -> None:
        clock = self._run._clock
        period_ns = STREAM_BYTES * NS_PER_S // FULL_LOAD.stream

        def send(_: object) -> None:
            host.passes(flow(number), STREAM_BYTES)
            clock.at(clock.now_ns + period_ns, send)

        clock.at(clock.now_ns + self.rng.randrange(period_ns), send)

    def _passed(self) -> int:
        return sum(host.forwarded for host in self._hosts.values())


Act = Callable[[Fleet], None]


def cut(*paths: tuple[int, int]) -> Act:
    """Paths from and to limiters, by number."""

    def act(fleet: Fleet) -> None:
        broken = [(fleet.names[source], fleet.names[destination]) for source, destination in paths]
        fleet.at(fleet.begin_s, lambda: fleet.cut(broken))
        fleet.at(fleet.healed_s, lambda: fleet.cut(()))

    return act


ALONE = ((0, 1), (1, 0), (0, 2), (2, 0))


def flap(*rhythm: float) -> Act:
    """One is cut off and back, again and again: for so long each, or as `testbed.chaos.partitions`
    has it, at random."""

    def act(fleet: Fleet) -> None:
        broken = [(fleet.names[source], fleet.names[destination]) for source, destination in ALONE]
        lasting = itertools.cycle(rhythm)
        now_s = fleet.begin_s
        while now_s < fleet.healed_s:
            for paths in (broken, []):
                fleet.at(now_s, functools.partial(fleet.cut, paths))
                now_s += next(lasting, None) or fleet.rng.uniform(*FLAP_S)

    return act


def killed(count: int, *, closed: bool = False) -> Act:
    """Some daemons die, and are started again; `closed`: nothing passes their hosts meanwhile."""

    def act(fleet: Fleet) -> None:
        for name in fleet.names[:count]:
            back_s = fleet.healed_s + fleet.rng.random() * STARTS_S
            fleet.at(fleet.begin_s, functools.partial(_kill, fleet, name))
            fleet.at(back_s, functools.partial(_revive, fleet, name))
            if closed:
                close = functools.partial(_close, fleet, name)
                fleet.at(fleet.begin_s, close)
                # Later than it has fallen back to its share.
                fleet.at(fleet.begin_s + (GRACE_INTERVALS * TICK_NS + 1) / NS_PER_S, close)
                fleet.silence(name, back_s)

    return act


def _kill(fleet: Fleet, name: str) -> None:
    fleet.host(name).kill()


def _revive(fleet: Fleet, name: str) -> None:
    fleet.host(name).revive()


def _close(fleet: Fleet, name: str) -> None:
    fleet.host(name).policer.program(_NOTHING, (), fleet.now_ns)


def freeze(fleet: Fleet) -> None:
    """One stands still."""
    for_ns = round((fleet.healed_s - fleet.begin_s) * NS_PER_S)
    fleet.at(fleet.begin_s, lambda: fleet.host(fleet.names[0]).freeze(for_ns))


ACTS: Mapping[str, tuple[Act, ...]] = {
    CUT: (cut(*ALONE), cut((0, 1), (0, 2)), cut((0, 1), (1, 0))),
    FROZEN: (freeze,),
    FLAPPING: (flap(), flap(1.2, 0.2), flap(1.2, 1.2), flap(1.4, 0.4)),
    **{KILLED[count]: (killed(count),) for count in KILLED},
    RESTARTED: (killed(1),),
    CLOSED[1]: (killed(1, closed=True),),
    CLOSED[2]: (killed(2, closed=True),),
    RESTARTED_CLOSED: (killed(1, closed=True),),
}
"""What is promised, and what happens that it is promised of."""
LASTS_S = {FLAPPING: (10.0, 10.0), RESTARTED: (0.7, 3.0), RESTARTED_CLOSED: (0.7, 3.0)}
LONG_S = 5.0, 5.0
"""For how long, at random; longer than a detection time, where nothing is said."""


def least(fabric: str, what: str, number: int, seed: int) -> float:
    """The least that is used in any second, over the limit, if one of these things happens."""
    fleet = Fleet(fabric, seed, LASTS_S.get(what, LONG_S))
    ACTS[what][number](fleet)
    return fleet.least()


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
