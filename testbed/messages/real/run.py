"""One run with real brokers.

It is *dilated*: times are those of the case times `dilate`, rates its rates over that. Buckets do
not notice, so delays are those of the case times `dilate`, and far above what this host adds. The
same messages are sent in virtual time (`testbed.messages.run`).

Latency is counted from the time for which a message was scheduled, whenever it was sent. A run does
not count if more than 1 % of the messages were sent late by more than a twentieth of the objective.
Brokers and daemons need processors as well. So a run does not count either if more than 1 % of the
beats of a processor were as late (`testbed.beats`). Beats come before brokers and daemons, because
they judge the host and not what is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import trio

from drld.model import NS_PER_S
from testbed import child, netns
from testbed.beats import Beats
from testbed.errors import MeasurementError
from testbed.harness.case import case_of
from testbed.messages.arrivals import arrivals
from testbed.messages.real import load
from testbed.messages.real.case import RealCase
from testbed.messages.real.stage import Limit, carried, staged
from testbed.messages.run import split, summary

OBJECTIVE_MS = 1.0
"""99th percentile of the latency that the papers ask for."""
_LATE = 0.05


def carry_out(definition: Mapping[str, Any], name: str, repetition: int) -> dict[str, Any]:
    """See `_carry_out`."""
    return trio.run(_carry_out, definition, name, repetition)


async def _carry_out(definition: Mapping[str, Any], name: str, repetition: int) -> dict[str, Any]:
    """One run with `name` brokers.

    Raises:
        MeasurementError: it does not count.
        HostError: the host cannot do such runs.
    """
    case = case_of(RealCase, definition)
    brokers, slow = int(name), case.dilate
    warm_ns = int(case.warm_s * NS_PER_S)
    rng = Random(f"messages {repetition}")
    sent = case.sources.bursts(rng, warm_ns + int(case.seconds * NS_PER_S))
    place_of = [0] * case.publishers
    for place, part in enumerate(split(sent, brokers, case.publishers, rng)):
        for burst in part:
            place_of[burst.publisher] = place
    schedule = [(at_ns * slow, burst.publisher) for burst in sent for at_ns in arrivals([burst])]
    # Brokers, daemons, publishers and subscribers inherit it: they need less than a processor, and
    # what others do on the host is no part of the measurement.
    priority = child.raise_priority()
    limit = Limit(int(case.rate) // slow, case.depth)
    with netns.workspace() as directory:
        async with staged(directory, case.protocol, brokers, limit) as stage:
            load.before_brokers()
            with Beats() as beats:
                came, lags = await carried(stage, place_of, schedule)
            waits = [await stage.waits(number) for number in range(brokers)]
    late_ms, still_ms = sorted(lags)[int(0.99 * len(lags))] / 1e6, 1e3 * beats.take(0.99)
    if late_ms > _LATE * OBJECTIVE_MS * slow:
        raise MeasurementError(f"messages were sent late by {late_ms:.2f} ms (99th percentile)")
    if still_ms > _LATE * OBJECTIVE_MS * slow:
        raise MeasurementError(f"a processor was late by {still_ms:.2f} ms (99th percentile)")
    begin_ns = came[0][2] - schedule[0][0] if came else 0
    delays = [at_ns - due_ns for _, _, due_ns, at_ns in came if due_ns - begin_ns >= warm_ns * slow]
    return {
        "allocator": name, "repetition": repetition, "datapath": "real", "burst": case.depth,
        "messages": len(delays), "waited": sum(it["waited"] for it in waits),
        "access_p99_ms": max(1e3 * it["p99_s"] for it in waits),
        "latency": summary(delays), "late_ms": late_ms,
        "still_ms": still_ms, "priority": priority,
    }  # fmt: skip
