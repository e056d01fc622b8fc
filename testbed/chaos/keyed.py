"""`scripts/chaos requests`: faults done to three real daemons with a limit for each user.

A fault changes the paths between the limiters, stops or kills a daemon, moves clocks, or sends what
no limiter has sent (`keyed_faults`). Alice asks all three limiters, at several times her rate. Bob
asks at half of his. What was admitted is in the clients' own log, and one exact bucket
(`drld.requests.buckets.gcra`) judges it.

Promises (docs/requests-per-user.md, "Guarantees"), with N limiters, c and r of a key, and alice's
rate of requests lambda, even over the limiters:

- *excess*: at most the tokens that the others admit in the time G in which news get through,
  `(N - 1) / N lambda G + 1`; in a partition of T seconds `c + r T` more; after a daemon stood still
  for T seconds `min(c, r T)` more, as it may answer what has waited before it hears its peers;
  after a kill `lambda / N` times the time until the new daemon was told. G is a delay, the longest
  time that an answer took (a late host delays news as well), and a repeat for each datagram lost in
  a row, as often as happens once in a thousand times. Clocks and hostile datagrams cost nothing.
- *later*: some seconds after the fault nothing more is admitted than one bucket would.
- *bob* is never refused.
- *bytes*: what the daemons say that they have sent is what the interface has counted.
- *hostile* datagrams are refused, and counted.
"""

from __future__ import annotations

import time
from random import Random
from typing import Any

import click
import trio

from testbed import netns
from testbed.chaos.keyed_faults import FAULTS, Fault, done, environment, news_s
from testbed.chaos.keyed_fleet import CAPACITY, DEMAND_S, NODES, RATE_S, Log, Scene, scene
from testbed.chaos.suite import SECTION, Suite, record
from testbed.harness.finding import Check
from testbed.harness.page import Page

BACK_S = 3.0
"""After a fault, until all know everything again: contact takes a ping of a second."""
TOLD_S = 2.0
"""The time until a restarted daemon knows all that its peers know, s."""
BYTES = 0.03
"""Greatest difference between what daemons and the interface say, of the whole."""
COUNTED = 0.95
"""Least part of hostile datagrams that is counted; a busy host may lose the rest at a socket."""
_SUITE = Suite(
    FAULTS,
    Page(
        "requests-chaos", "Faults done to fleets with a limit for each user",
        "scripts/chaos requests --docs", "../docs/requests-per-user.md", [SECTION],
    ),
    {
        "excess": "excess", "later": "later", "bob refused": "bob refused",
        "bytes said of the interface's": "bytes", "hostile datagrams refused": "hostile",
    },
    {"asked": "asked", "admitted": "admitted", "slowest answer, s": "slowest_answer_s"},
    f"A key has {RATE_S}/s and a burst of {CAPACITY}; alice asks {DEMAND_S} times a second in all.",
)  # fmt: skip


async def carry_out(name: str, seconds: float, seed: int) -> list[dict[str, Any]]:
    """Do one fault; return what was seen, and the promises."""
    fault = FAULTS[name]
    with netns.workspace() as directory:
        async with (
            scene(directory, name, environment(fault, directory)) as on,
            trio.open_nursery() as nursery,
        ):
            for own in range(NODES):
                rng = Random(f"{seed} {own}")
                ask = on.ask_again_and_again
                nursery.start_soon(ask, own, "alice", NODES / DEMAND_S, rng)
                nursery.start_soon(ask, own, "bob", NODES * 2 / RATE_S, rng)
            before = await on.bytes_sent()
            # Alice's bucket is empty when the fault begins: all that is admitted is contended.
            await trio.sleep(4 * CAPACITY / DEMAND_S)
            refused = await _refused(on)
            begin_s = time.monotonic()
            async with done(fault, on, seconds, seed):
                await trio.sleep(seconds)
                ended_s = time.monotonic()
            after_s = time.monotonic() + BACK_S
            await trio.sleep(BACK_S + seconds)
            on.asking = False
            seen, said = (
                now - then for now, then in zip(await on.bytes_sent(), before, strict=True)
            )
            refused = await _refused(on) - refused
        log = on.answered
    promises = [
        *excess(fault, log, begin_s, ended_s, after_s),
        Check("bob refused", log.bob_refused, most=0),
    ]
    if not fault.foreign:
        promises.append(Check("bytes", said / seen, least=1 - BYTES, most=1 + BYTES))
    if fault.hostile:
        promises.append(Check("hostile", min(refused / on.hostile, 1.0), least=COUNTED))
    if fault.twice:
        promises.append(Check("came twice", refused, least=1))
    facts = {
        "asked": log.asked, "failed": log.failed, "admitted": len(log.admitted),
        "slowest_answer_s": round(log.slowest_s, 3),
    }  # fmt: skip
    return [record(name, fault, promises, facts)]


async def _refused(on: Scene) -> int:
    """Datagrams that all daemons have refused."""
    return sum([sum((await on.rejected(own)).values()) for own in range(NODES)])


def excess(
    fault: Fault, log: Log, begin_s: float, ended_s: float, after_s: float
) -> tuple[Check, Check]:
    """The promises about what alice was admitted too much: at all, and after the fault.

    The fault began and ended then, and its consequences are over at `after_s`.
    """
    others_s = (NODES - 1) / NODES * DEMAND_S
    usual = others_s * news_s(FAULTS["none"], log.slowest_s) + 1
    bound = others_s * news_s(fault, log.slowest_s) + 1
    if fault.cut:
        bound += CAPACITY + RATE_S * (ended_s - begin_s)
    if fault.freeze:
        bound += min(CAPACITY, RATE_S * (ended_s - begin_s))
    if fault.kill:
        bound += DEMAND_S / NODES * TOLD_S
    paid = log.excess() - RATE_S * (after_s - ended_s)
    settled = max(usual, min(bound, paid))
    return Check("excess", log.excess(), most=bound), Check(
        "later", log.excess(after_s), most=settled
    )


@click.command()
@click.argument("names", nargs=-1, type=click.Choice([*FAULTS]), metavar="[FAULT]...")
@click.option("--seconds", type=click.FloatRange(2), default=8.0, help="Length of a fault.")
@click.option("--seed", type=click.IntRange(0), default=1, help="Of the requests' times.")
@click.option("--json", "as_json", is_flag=True, help="An object a line.")
@click.option("--docs", is_flag=True, help="Write all faults into results/requests-chaos.md.")
def main(*, names: tuple[str, ...], seconds: float, seed: int, as_json: bool, docs: bool) -> None:
    """Do faults to three real daemons with a limit for each user, and check the promises.

    Exit status: 1 if one does not hold.

    \b
    scripts/chaos requests loss-40 partition
    """
    _SUITE.main(
        carry_out, names, seconds=seconds, seed=seed, as_json=as_json, docs=docs
    )  # fmt: skip


if __name__ == "__main__":
    main()
