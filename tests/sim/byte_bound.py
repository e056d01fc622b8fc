"""The bound on bytes of `fair`: how much a fleet forwards beyond it, under traffic of all kinds.

`python -m tests.sim.byte_bound` prints, for each fabric, size and path, the most bytes beyond
(1 + margin) L t in any window of N random runs, over B (docs/conservative-rule.md, "A bound on
bytes"; figures: results/conservative-rule.md). With `--no-account` the same without the account.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from unittest import mock

from drld.allocators.base import Allocation, InForce
from drld.allocators.fair import Fair, FairParameters
from drld.allocators.loan import LoanAccount
from drld.limiter import Tick
from drld.model import NS_PER_S, Demand, Enforcement, GlobalView
from drld.units import BYTES
from testbed.chaos.promises import byte_bound
from testbed.sim.host import Host
from testbed.sim.network import MS

from ..factories import MBIT, TICK_NS, limit_spec
from ..fleets.limiters import PACKET, PacketFleet

LIMIT = 10 * MBIT
BURST = LIMIT // 10
SECONDS = 12
"""The duration of a run."""
BEGIN_S = 3.0
"""The begin of traffic, later than a detection time."""


class NoAccount(LoanAccount):
    """An account that limits nothing."""

    def depth(self, wanted: float, least: float) -> float:
        """See `LoanAccount`."""
        return max(wanted, least)

    def fill_rate(self, wanted: float, depth: float, interval_s: float) -> float:
        """See `LoanAccount`."""
        return wanted


class Reckless(Fair):
    """Takes at once all that it believes to have, as far as the account lets it."""

    def allocate(
        self, demand: Demand, view: GlobalView, limit: InForce, interval_ns: int
    ) -> Allocation:
        """See `Allocator`."""
        found = super().allocate(demand, view, limit, interval_ns)
        total = found.value + view.remote
        local_limit = limit.rate * found.value / total if total else limit.static_rate
        bucket, account = self._bucket, self._bucket.account
        depth = account.depth(limit.burst, BYTES.item)
        interval_s = max(interval_ns, limit.interval_ns) / NS_PER_S
        bucket.fill_rate = account.fill_rate(local_limit, depth, interval_s)
        enforcement = Enforcement(fill_rate=round(bucket.fill_rate), depth=round(depth))
        return replace(found, enforcement=enforcement)


def bound(fleet: PacketFleet, margin: float) -> float:
    """B, bytes."""
    return byte_bound(
        LIMIT,
        BURST,
        len(fleet.names),
        fleet.fabric("l0").news_ns,
        margin=margin,
        interval_ns=fleet.limit.policy.interval_ns,
    )


def beyond(fleet: PacketFleet, margin: float) -> float:
    """The most bytes beyond (1 + margin) L t in any window."""
    times = sorted(
        time_ns
        for node in fleet.nodes.values()
        for time_ns in node.times
        if time_ns >= BEGIN_S * NS_PER_S
    )
    level = most = 0.0
    for last_ns, now_ns in itertools.pairwise([times[0] if times else 0, *times]):
        level = max(level - (1 + margin) * LIMIT * (now_ns - last_ns) / NS_PER_S, 0.0) + PACKET
        most = max(most, level)
    return most


# Traffic: each begins a source at a limiter, or at all of them.


def on_off(fleet: PacketFleet, rng: Random) -> None:
    """Each limiter sends at random for random times, up to three times the limit in all."""
    for name in fleet.names:
        _on_off(fleet, name, rng, rng.choice((0.2, 1.0, 4.0)))


def _on_off(fleet: PacketFleet, name: str, rng: Random, mean_s: float) -> None:
    gap_s = PACKET * len(fleet.names) / LIMIT / 3

    def begin() -> None:
        end_ns = fleet.now_ns + round(rng.expovariate(1 / mean_s) * NS_PER_S)
        send(end_ns, rng.randrange(3))

    def send(end_ns: int, number: int) -> None:
        fleet.packet(name, number)
        if fleet.now_ns < end_ns:
            fleet.at(fleet.now_ns + round(gap_s * NS_PER_S), lambda: send(end_ns, number))
        else:
            fleet.at(fleet.now_ns + round(rng.expovariate(1 / mean_s) * NS_PER_S), begin)

    fleet.at(_first_ns(rng), begin)


def together(fleet: PacketFleet, rng: Random) -> None:
    """All wake up at one moment, send twice the limit each for a while, and fall silent."""
    period_s = rng.choice((1.2, 2.5, 5.0))
    packets = round(min(period_s / 2, 0.6) * LIMIT / PACKET)
    for number in range(int((SECONDS - BEGIN_S) / period_s)):
        for name in fleet.names:
            when_ns = round((BEGIN_S + number * period_s) * NS_PER_S) + rng.randrange(20 * MS)
            fleet.at(when_ns, partial(_train, fleet, name, packets, PACKET / LIMIT / 2))


def pulses(fleet: PacketFleet, rng: Random) -> None:
    """All send the limit each for as long as news takes, and little for a while, again and again.

    So each believes that the others want little whenever it sends.
    """
    period_s, on_s = rng.choice((0.6, 0.8, 1.0)), rng.choice((0.15, 0.25))
    for number in range(int((SECONDS - BEGIN_S) / period_s)):
        for name in fleet.names:
            when_ns = round((BEGIN_S + number * period_s) * NS_PER_S) + rng.randrange(20 * MS)
            fleet.at(
                when_ns, partial(_train, fleet, name, round(on_s * LIMIT / PACKET), PACKET / LIMIT)
            )
            fleet.at(when_ns + round(period_s / 2 * NS_PER_S), partial(fleet.packet, name, 0))


def in_turn(fleet: PacketFleet, rng: Random) -> None:
    """One limiter after the other sends twice the limit for a moment; its last value is wrong."""
    turn_s = rng.choice((0.1, 0.3, 1.0))
    names = fleet.names
    packets = round(2 * turn_s * LIMIT / PACKET)
    for number in range(int((SECONDS - BEGIN_S) / turn_s)):
        when_ns = round((BEGIN_S + number * turn_s) * NS_PER_S)
        fleet.at(
            when_ns,
            partial(_train, fleet, names[number % len(names)], packets, PACKET / LIMIT / 2),
        )


def bursts(fleet: PacketFleet, rng: Random) -> None:
    """Twelve packets every 1.15 s at each limiter."""
    for name in fleet.names:
        first_ns = _first_ns(rng)
        for number in range(int((SECONDS - BEGIN_S) / 1.15)):
            when_ns = first_ns + round(1.15 * number * NS_PER_S)
            fleet.at(when_ns, partial(_train, fleet, name, 12, 0.0005))


def keepalives(fleet: PacketFleet, rng: Random) -> None:
    """A packet each half second at each limiter, and flows that want all at one, in turn."""
    for name in fleet.names:
        for number in range(2 * SECONDS):
            fleet.at(_first_ns(rng) + number * NS_PER_S // 2, partial(fleet.packet, name, 9))
    in_turn(fleet, rng)


def _first_ns(rng: Random) -> int:
    return round((BEGIN_S + rng.random()) * NS_PER_S)


def _train(fleet: PacketFleet, name: str, packets: int, gap_s: float) -> None:
    def send(left: int) -> None:
        fleet.packet(name, left % 3)
        if left > 1:
            fleet.at(fleet.now_ns + round(gap_s * NS_PER_S), lambda: send(left - 1))

    send(packets)


TRAFFIC: Mapping[str, Callable[[PacketFleet, Random], None]] = {
    "on and off": on_off,
    "together": together,
    "pulses": pulses,
    "in turn": in_turn,
    "bursts": bursts,
    "keepalives": keepalives,
}


@dataclass(frozen=True, slots=True)
class Found:
    """The duration of a run."""

    bytes: float
    """The most beyond (1 + margin) L t in any window, over B."""
    shares: float
    """The largest sum of the strict shares in force."""


class Shares:
    """The strict shares of a fleet, and their largest sum."""

    def __init__(self, fleet: PacketFleet, margin: float) -> None:
        self.most = 0.0
        self._rate = (1 + margin) * LIMIT
        self._of: dict[str, float] = {}
        for node in fleet.nodes.values():
            node.watch = self._take

    def _take(self, host: Host, _tick: Tick) -> None:
        allocator = host.managed.limiter._allocator
        assert isinstance(allocator, Fair)
        self._of[host.name] = allocator._bucket.account._income / self._rate
        self.most = max(self.most, sum(self._of.values()))


def found_in(
    fabric: str,
    size: int,
    traffic: str,
    seed: int,
    *,
    margin: float = 0.2,
    path: float = 0.2,
    account: bool = True,
    reckless: bool = False,
    interval_ns: int = TICK_NS,
) -> Found:
    """The findings of a run.

    `path` is in intervals of gossip, one way.
    """
    limit = limit_spec(
        "fair",
        rate=LIMIT,
        burst=BURST,
        parameters=FairParameters(margin=margin),
        interval_ns=interval_ns,
    )
    kind = LoanAccount if account else NoAccount
    with (
        mock.patch("drld.allocators.fair_bucket.LoanAccount", kind),
        mock.patch("drld.limiter.ALLOCATORS", {"fair": Reckless if reckless else Fair}),
    ):
        fleet = PacketFleet(limit, size, seed=seed, fabric=fabric, delay_ns=round(path * TICK_NS))
        shares = Shares(fleet, margin)
        TRAFFIC[traffic](fleet, Random(f"{traffic}/{seed}"))
        fleet.run_until(SECONDS)
    return Found(beyond(fleet, margin) / bound(fleet, margin), shares.most)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=2, help="runs of each kind")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--fabric", action="append", choices=("mesh", "tree"))
    parser.add_argument("--size", type=int, action="append", help="limiters")
    parser.add_argument("--path", type=float, action="append", help="one way, intervals")
    parser.add_argument("--margin", type=float, action="append")
    parser.add_argument("--traffic", action="append", choices=TRAFFIC)
    parser.add_argument("--interval", type=int, default=TICK_NS // MS, help="of the limit, ms")
    parser.add_argument("--no-account", action="store_true")
    parser.add_argument("--reckless", action="store_true")
    args = parser.parse_args()
    for fabric, size, path, margin, traffic in itertools.product(
        args.fabric or ("mesh", "tree"),
        args.size or (2, 10, 40),
        args.path or (0.2,),
        args.margin or (0.0, 0.2),
        args.traffic or TRAFFIC,
    ):
        found = [
            found_in(
                fabric,
                size,
                traffic,
                seed,
                margin=margin,
                path=path,
                account=not args.no_account,
                reckless=args.reckless,
                interval_ns=args.interval * MS,
            )
            for seed in range(args.first, args.first + args.seeds)
        ]
        print(
            f"{fabric}, {size}, paths {path:g} I, margin {margin:g}, {traffic}: "
            f"{max(each.bytes for each in found):.2f} of B, strict shares "
            f"{max(each.shares for each in found):.4f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
