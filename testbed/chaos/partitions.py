"""Links between limiters that break, one way or both, for long or repeatedly, or lose packets."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable

import trio

from testbed.chaos.deaths import DETECTED_S
from testbed.chaos.fault import Episode, Fault
from testbed.chaos.members import Member
from testbed.chaos.promises import CUT, FLAPPING, promised
from testbed.chaos.scene import Scene

_CUT_S = {False: 10.0, True: 3.4}
_FLAPPING_S = {False: 15.0, True: 4.0}
FLAP_S = (0.2, 1.6)
"""Length of each cut, and of each time between: about a detection time."""
_LOSS = 0.5
_RECOVER_S = 6.0

Cut = Iterable[tuple[Member, Member]]


def _clean(scene: Scene) -> Cut:
    """Cut one limiter off from the others."""
    alone = scene.pick(1)
    for other in scene.others(alone):
        yield alone[0], other
        yield other, alone[0]


def _one_way(scene: Scene) -> Cut:
    """One limiter receives gossip, and no peer receives its gossip."""
    mute = scene.pick(1)
    for other in scene.others(mute):
        yield mute[0], other


def _chain(scene: Scene) -> Cut:
    """Two limiters do not hear each other, and both hear the third."""
    one, other = scene.pick(2)
    yield one, other
    yield other, one


def _partition(which: Callable[[Scene], Cut]) -> Callable[[Scene, bool], Awaitable[Episode]]:
    async def act(scene: Scene, quick: bool) -> Episode:
        begin_s = time.monotonic()
        for source, destination in which(scene):
            scene.cut(source, destination)
        await trio.sleep(_CUT_S[quick])
        scene.heal()
        healed_s = time.monotonic()
        return Episode(
            begin_s, healed_s, recover_s=_RECOVER_S, least=promised(CUT, scene.load.fabric),
            known_s=(begin_s + DETECTED_S, healed_s),
        )  # fmt: skip

    return act


async def _flap(scene: Scene, quick: bool) -> Episode:
    begin_s = time.monotonic()
    while time.monotonic() - begin_s < _FLAPPING_S[quick]:
        for source, destination in _clean(scene):
            scene.cut(source, destination)
        await trio.sleep(scene.rng.uniform(*FLAP_S))
        scene.heal()
        await trio.sleep(scene.rng.uniform(*FLAP_S))
    least = promised(FLAPPING, scene.load.fabric)
    return Episode(begin_s, time.monotonic(), recover_s=_RECOVER_S, least=least)


async def _lose(scene: Scene, quick: bool) -> Episode:
    begin_s = time.monotonic()
    scene.lose(_LOSS)
    await trio.sleep(_FLAPPING_S[quick])
    scene.lose(0.0)
    return Episode(begin_s, time.monotonic(), recover_s=_RECOVER_S)


FAULTS = (
    Fault("partition", "one limiter is cut off from the others", _partition(_clean)),
    Fault(
        "partition-one-way",
        "one limiter hears the others, unheard",
        _partition(_one_way),
    ),
    Fault("partition-chain", "two limiters hear a third, and not each other", _partition(_chain)),
    Fault("partition-flapping", "one limiter is cut off and back, again and again", _flap),
    Fault("gossip-loss", "half of all gossip is lost", _lose),
)
