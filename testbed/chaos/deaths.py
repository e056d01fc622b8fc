"""Daemons that are killed, or stand still."""

from __future__ import annotations

import signal
import time
from collections.abc import Awaitable, Callable

import trio

from testbed.chaos.fault import KERNEL, NFQUEUE, Bounds, Episode, Fault
from testbed.chaos.members import Member
from testbed.chaos.scene import LIMITERS, RATE, Scene

_DEAD_S = {False: 5.0, True: 3.4}
_AWAY_S = 0.5
_FROZEN_S = {False: 10.0, True: 4.0}
DETECTED_S = 2.0


def _kill(count: int) -> Callable[[Scene, bool], Awaitable[Episode]]:
    async def act(scene: Scene, quick: bool) -> Episode:
        victims = scene.pick(count)
        begin_s = time.monotonic()
        for member in victims:
            member.kill()
        await trio.sleep(_DEAD_S[quick])
        healed_s = time.monotonic()
        await scene.revive(victims)
        absent_s = time.monotonic() - begin_s
        return Episode(_bounds(scene, victims, absent_s), begin_s, healed_s, begin_s + DETECTED_S)

    return act


async def _change(scene: Scene, quick: bool) -> Episode:
    """A daemon that is killed comes back on the other datapath, and later on its own again."""
    (victim,) = victims = scene.pick(1)
    begin_s = healed_s = time.monotonic()
    away_s = 0.0
    for datapath in (KERNEL if scene.datapath == NFQUEUE else NFQUEUE, scene.datapath):
        nobody = victim.document["limiter"]["datapath"] == NFQUEUE
        killed_s = time.monotonic()
        victim.kill()
        await trio.sleep(_AWAY_S)
        victim.document["limiter"]["datapath"] = datapath
        victim.write()
        healed_s = time.monotonic()
        await scene.revive(victims)
        away_s += time.monotonic() - killed_s + 0.2 if nobody else 0.0
        await trio.sleep(_DEAD_S[quick] - _AWAY_S)
    return Episode(Bounds(recover_s=8.0, overshoot=RATE // 10, lost_s=away_s), begin_s, healed_s)


async def _freeze(scene: Scene, quick: bool) -> Episode:
    (victim,) = victims = scene.pick(1)
    begin_s = time.monotonic()
    victim.signal(signal.SIGSTOP)
    try:
        await trio.sleep(_FROZEN_S[quick])
    finally:
        victim.signal(signal.SIGCONT)
    healed_s = time.monotonic()
    return Episode(
        _bounds(scene, victims, healed_s - begin_s), begin_s, healed_s, begin_s + DETECTED_S
    )


def _bounds(scene: Scene, victims: list[Member], absent_s: float) -> Bounds:
    """On nfqueue nothing passes a host without its daemon, and the others keep to their shares."""
    if scene.datapath == NFQUEUE:
        return Bounds(
            recover_s=6.0,
            overshoot=RATE // 10,
            lost_s=len(victims) * (absent_s + 0.2),
            least=0.85 * (LIMITERS - len(victims)) / LIMITERS,
        )
    return Bounds(recover_s=6.0, overshoot=RATE // 10, least=0.85)


FAULTS = (
    Fault("kill-one", "kill -9 of one daemon, and a restart", _kill(1)),
    Fault("kill-most", "kill -9 of all but one, and a restart", _kill(LIMITERS - 1)),
    Fault("kill-all", "kill -9 of all, and a restart", _kill(LIMITERS)),
    Fault("kill-change", "kill -9, a restart on the other datapath, and back", _change),
    Fault("freeze", "SIGSTOP of one daemon for 10 s", _freeze),
)
