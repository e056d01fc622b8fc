"""Daemons that are killed, or stand still."""

from __future__ import annotations

import signal
import time
from collections.abc import Awaitable, Callable

import trio

from testbed.chaos.fault import KERNEL, NFQUEUE, Episode, Fault, took_s
from testbed.chaos.members import Member
from testbed.chaos.promises import (
    CLOSED,
    FROZEN,
    FROZEN_CLOSED,
    KILLED,
    RESTARTED_CLOSED,
    left_by,
    promised,
)
from testbed.chaos.scene import LIMITERS, Scene
from testbed.chaos.series import FULL
from testbed.harness.finding import Check

_DEAD_S = {False: 5.0, True: 3.4}
_AWAY_S = 0.5
_FROZEN_S = {False: 10.0, True: 4.0}
DETECTED_S = 2.0
DEAD, ALIVE = "dead", "alive"
_DEATH_S = 16.0
"""Time until all peers report a limiter dead: 5 s until both have probed it in vain, R + Q + F, and
1 s (drld/gossip/health/probe_times.py)."""
_RETURN_S = 3.0
"""Time until all peers report that it is back."""
RECOVER_S = 4.0
READY_S = 10.0
"""Longest start, without the time for which the daemon waited for a processor. It takes less than
a second on an idle host."""
RESTARTED_LINES = 2
"""Log lines of a start: the daemon is ready; with new maps, buckets are full."""
_PATIENCE = 2
"""Longest wait over the promise, so that a broken promise has a figure, too."""


def _kill(count: int) -> Callable[[Scene, bool], Awaitable[Episode]]:
    async def act(scene: Scene, quick: bool) -> Episode:
        victims = scene.pick(count)
        begin_s = time.monotonic()
        for member in victims:
            member.kill()
        # Verdicts take too long for a quick run.
        told = scene.others(victims) if count == 1 and not quick else []
        await trio.sleep(_DEAD_S[quick])
        checks = [await _reported(DEAD, victims[0], told, begin_s, _DEATH_S)] if told else []
        started_s = time.monotonic()
        await scene.revive(victims)
        healed_s = time.monotonic()
        checks.append(ready(took_to_start(healed_s - started_s, victims)))
        if told:
            checks.append(await _reported(ALIVE, victims[0], told, healed_s, _RETURN_S))
        going_on = {KERNEL: KILLED, NFQUEUE: CLOSED}[scene.datapath][count]
        episode = _episode(scene, count, going_on, begin_s=begin_s, healed_s=healed_s,
                           until_s=started_s)  # fmt: skip
        episode.lines, episode.checks = RESTARTED_LINES, checks
        return episode

    return act


def ready(start_s: float) -> Check:
    """A check of the time that a start takes (`took_to_start`)."""
    return Check("ready after", start_s, "s", most=READY_S)


def took_to_start(after_s: float, started: list[Member]) -> float:
    """The time after which daemons policed, without what the slowest waited for a processor."""
    return after_s - max(member.waited_s() for member in started)


async def _reported(
    verdict: str, victim: Member, others: list[Member], since_s: float, within_s: float
) -> Check:
    """A check of the time until all peers have this verdict in `drlctl peers`."""

    async def said() -> bool:
        peers = [peer for other in others for peer in await other.ask("/v1/peers")]
        return {peer["verdict"] for peer in peers if peer["name"] == victim.name} == {verdict}

    took = await took_s(said, since_s, _PATIENCE * within_s)
    return Check(f"reported {verdict} after", took, "s", most=within_s)


async def _change(scene: Scene, quick: bool) -> Episode:
    """A daemon that is killed comes back on the other datapath, and later on its own again."""
    (victim,) = victims = scene.pick(1)
    begin_s = time.monotonic()
    away_s = start_s = 0.0
    for datapath in (KERNEL if scene.datapath == NFQUEUE else NFQUEUE, scene.datapath):
        # A kernel datapath goes on without its daemon.
        closed = victim.document["packets"]["datapath"] == NFQUEUE
        killed_s = time.monotonic()
        victim.kill()
        await trio.sleep(_AWAY_S)
        victim.document["packets"]["datapath"] = datapath
        victim.write()
        started_s = time.monotonic()
        await scene.revive(victims)
        healed_s = time.monotonic()
        start_s = max(start_s, took_to_start(healed_s - started_s, victims))
        away_s += healed_s - killed_s + 0.2 if closed else 0.0
        await trio.sleep(_DEAD_S[quick] - _AWAY_S)
    return Episode(
        begin_s, healed_s, recover_s=RECOVER_S, lost_s=away_s,
        least=promised(RESTARTED_CLOSED, scene.load.fabric),
        # Two starts, each with a remark on the burst; and that the kernel's buckets begin full.
        lines=2 * RESTARTED_LINES + 1, checks=[ready(start_s)],
    )  # fmt: skip


async def _freeze(scene: Scene, quick: bool) -> Episode:
    """A daemon stands still, and goes on.

    When it goes on, it enforces no more than its share, so the local limits sum to at most the
    limit. On nfqueue, packets that waited pass besides. Buckets fill for the last 250 ms of the
    waiting (`arrival_time.LATEST_NS`), and TCP has given up: 31 kB of constant UDP pass so. In
    10 s, 62 kB of canaries wait. With 19 kB/s of canaries that is less than 0.1 s of the limit.
    """
    (victim,) = scene.pick(1)
    begin_s = time.monotonic()
    victim.signal(signal.SIGSTOP)
    try:
        await trio.sleep(_FROZEN_S[quick])
    finally:
        victim.signal(signal.SIGCONT)
    healed_s = time.monotonic()
    going_on = {KERNEL: FROZEN, NFQUEUE: FROZEN_CLOSED}[scene.datapath]
    return _episode(scene, 1, going_on, begin_s=begin_s, healed_s=healed_s, until_s=healed_s)


def _episode(
    scene: Scene, struck: int, going_on: str, *, begin_s: float, healed_s: float, until_s: float
) -> Episode:
    """Daemons that are struck until a time; `going_on` is what is promised of the use.

    On nfqueue no packet passes a host without its daemon, and the others keep to their shares.
    """
    fabric = scene.load.fabric
    episode = Episode(begin_s, healed_s, recover_s=RECOVER_S, least=promised(going_on, fabric),
                      known_s=(begin_s + DETECTED_S, until_s))  # fmt: skip
    if scene.datapath == NFQUEUE:
        episode.lost_s = struck * (healed_s - begin_s + 0.2)
        episode.known = FULL * left_by(struck)
    return episode


FAULTS = (
    Fault("kill-one", "kill -9 of one daemon, and a restart", _kill(1)),
    Fault("kill-most", "kill -9 of all but one, and a restart", _kill(LIMITERS - 1)),
    Fault("kill-all", "kill -9 of all, and a restart", _kill(LIMITERS)),
    Fault("kill-change", "kill -9, a restart on the other datapath, and back", _change),
    Fault("freeze", "SIGSTOP of one daemon for 10 s", _freeze),
)
