"""`scripts/chaos messages`: faults done to three limiters in front of real brokers.

Each fault has a fleet of its own: three mosquitto or three nats-server, each behind a daemon. All
daemons share one `adaptive` limit, whose publishers want 1.2 times its rate, so messages always
wait. Publishers send again what the broker has not confirmed. Counters subscribe at the brokers
themselves, and share no code with drld (`testbed.messages.real.frames`).

Promises (docs/messages-operations.md, "When something fails"):

- *beyond*: of the limit's messages at most `b + r dt + 1` and `r l` come in any time dt, at all
  brokers together. The lateness l is the longest delay of a message that waits for no token, and
  the time between two of these. After a kill `b / N` more, as the new bucket is full. Where a
  daemon stands still, l is at most the 250 ms by which messages are charged before they are read,
  and what it is without the fault.
- *lost*, *doubled*, *overtaken*: no confirmed message is lost; none comes more often than it was
  sent; the messages of a publisher come in their order.
- *rates*, *bursts*: at each change of a limiter's part, the parts of all sum to at most the limit.
- *errors*: no daemon logs an error.
- What a fault is about (`message_faults`).
"""

from __future__ import annotations

import time
from random import Random
from typing import Any

import click
import trio

from testbed import child, netns
from testbed.attempts import ATTEMPTS
from testbed.beats import Beats
from testbed.chaos.message_faults import FAULTS, FLOODER, Seen
from testbed.chaos.message_fleet import (
    BURST,
    NODES,
    OTHER,
    OTHER_RATE,
    PUBLISHERS,
    RATE,
    Scene,
    scene,
)
from testbed.chaos.message_log import quantile
from testbed.chaos.suite import SECTION, Suite, record
from testbed.harness.finding import Check
from testbed.harness.page import Page
from testbed.messages.real.oracle_command import BROKERS

_WARM_S = 2.0
"""The time until the bucket is empty, and messages wait, s."""
_PATIENCE_S = 300.0
_ROUNDING = 1e-6
_STILL_S = 0.05
"""A processor that stood still for longer disturbs a fault."""
_LIMITED = (*range(NODES * PUBLISHERS), *range(FLOODER, FLOODER + 100))
_OTHERS = range(OTHER, OTHER + NODES)
_SUITE = Suite(
    FAULTS,
    Page(
        "messages-chaos", "Faults done to limiters in front of brokers",
        "scripts/chaos messages --docs", "../docs/messages-operations.md", [SECTION],
    ),
    {
        "messages beyond b + r dt + 1": "beyond", "lost": "lost", "doubled": "doubled",
        "overtaken": "overtaken", "sum of rates / r": "rates", "sum of bursts / b": "bursts",
        "errors": "errors",
    },
    {
        "confirmed": "confirmed", "came": "came", "waited up to, s": "longest_s",
        "p99 of other topics before, ms": "before_ms", "during, ms": "during_ms",
        "attempts": "attempts",
    },
    f"The limit has {RATE} messages/s and a burst of {BURST}.",
    own=True,
)  # fmt: skip


async def carry_out(
    name: str, brokers: tuple[str, ...], seconds: float, window_s: float, seed: int
) -> list[dict[str, Any]]:
    """Do one fault to fleets with these brokers; return what was seen, and the promises.

    If a promise is broken and a processor stood still, the fault is done again; the last time
    counts.
    """
    found = []
    for broker in brokers:
        for attempt in range(1, ATTEMPTS + 1):
            rng = Random(f"{seed} {name} {broker} {attempt}")
            with Beats() as beats:
                outcome = await _once(name, broker, seconds, window_s, rng)
                still_s = beats.take()
            if outcome["holds"] or still_s < _STILL_S:
                break
        found.append({**outcome, "attempts": attempt})
    return found


async def _once(
    name: str, broker: str, seconds: float, window_s: float, rng: Random
) -> dict[str, Any]:
    """Do a fault to one fleet."""
    fault = FAULTS[name]
    with netns.workspace() as directory:
        fleet = Scene(directory, BROKERS[broker], window_s, fault.pings_s)
        async with scene(fleet, fault.demand, rng) as on:
            await trio.sleep(_WARM_S)
            warm_ns = time.monotonic_ns()
            await trio.sleep(seconds)
            seen = Seen(warm_ns=warm_ns, begin_ns=time.monotonic_ns())
            await fault.do(on, fault.times * seconds, seen)
            seen.end_ns = seen.end_ns or time.monotonic_ns()
            with trio.fail_after(_PATIENCE_S):
                await on.drained()
            lines = [line for own in range(NODES) for line in on.log(own).splitlines()]
    errors = sum(" ERROR " in line or line.startswith("Traceback") for line in lines)
    promises = [*judged(on, seen), Check("errors", errors, most=0), *seen.promises]
    return record(f"{name}, {broker}", fault, promises, facts(on, seen))


def judged(on: Scene, seen: Seen) -> list[Check]:
    """The promises that every fault leaves as they are."""
    limited, others = on.published.of(_LIMITED), on.published.of(_OTHERS)
    spared = others.of(OTHER + own for own in seen.spared)
    late_s = spared.delays_s(seen.warm_ns)[-1] + 1 / OTHER_RATE + seen.late_s
    most = on.shares.largest()
    beyond = limited.beyond(RATE, BURST, seen.warm_ns)
    return [
        Check("beyond", beyond, most=RATE * late_s + seen.more),
        Check("lost", limited.lost + others.lost, most=0),
        Check("doubled", limited.doubled + others.doubled, most=0),
        Check("overtaken", limited.overtaken + others.overtaken, most=0),
        Check("rates", most.rate / RATE, most=1 + _ROUNDING),
        Check("bursts", most.depth / BURST, most=1 + _ROUNDING),
    ]


def facts(on: Scene, seen: Seen) -> dict[str, Any]:
    """Further findings, for the report."""
    limited = on.published.of(_LIMITED)
    others = on.published.of(OTHER + own for own in seen.spared)
    before = others.delays_s(seen.warm_ns, seen.begin_ns)
    during = others.delays_s(seen.begin_ns, seen.end_ns)
    return {
        "confirmed": len(limited.confirmed),
        "came": len(limited.came),
        "longest_s": round(limited.delays_s()[-1], 2),
        "before_ms": round(1000 * quantile(before, 0.99), 1),
        "during_ms": round(1000 * quantile(during, 0.99), 1),
    }


@click.command()
@click.argument("names", nargs=-1, type=click.Choice([*FAULTS]), metavar="[FAULT]...")
@click.option("--broker", type=click.Choice([*BROKERS]), multiple=True, help="Default: both.")
@click.option("--seconds", type=click.FloatRange(2), default=8.0, help="Length of a fault.")
@click.option("--window", type=click.FloatRange(1), default=10.0,
              help="History of the shares, s.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=1, help="Of the messages' times.")
@click.option("--json", "as_json", is_flag=True, help="An object a line.")
@click.option("--docs", is_flag=True, help="Write all faults into results/messages-chaos.md.")
def main(
    *,
    names: tuple[str, ...],
    broker: tuple[str, ...],
    seconds: float,
    window: float,
    seed: int,
    as_json: bool,
    docs: bool,
) -> None:
    """Do faults to three limiters in front of real brokers, and check the promises.

    Exit status: 1 if one does not hold.

    \b
    scripts/chaos messages kill partition --broker nats
    """
    # Daemons, brokers and clients need less than a processor: what others do is no fault.
    child.raise_priority()

    async def both(name: str, seconds: float, seed: int) -> list[dict[str, Any]]:
        return await carry_out(name, broker or tuple(BROKERS), seconds, window, seed)

    _SUITE.main(both, names, seconds=seconds, seed=seed, as_json=as_json, docs=docs)


if __name__ == "__main__":
    main()
