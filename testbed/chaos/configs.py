"""Configurations: many reloads, and one configuration that differs from the others."""

from __future__ import annotations

import copy
import time
from collections import Counter
from typing import Any

import trio

from drld import units
from drld.config_difference import differences
from testbed.chaos.fault import Episode, Fault, took_s
from testbed.chaos.members import LOAD, Member
from testbed.chaos.scene import LIMITERS, RATE, Scene
from testbed.harness.finding import Check

_STORM_S = {False: 10.0, True: 3.0}
_WRONG_S = {False: 10.0, True: 3.5}
_FACTOR = 2
TOLD_S = 6.0
"""Time until both peers have been probed, and 16 questions have found the limit."""
_BAD = '[limiter]\nname = "l1"\nnonsense = true\n'
_LINES = 3
"""Log lines of a reload, accepted or refused."""


def _another_limit(document: dict[str, Any]) -> None:
    """A limit without packets."""
    more = copy.deepcopy(document["limit"][1])
    more |= {"id": 3, "name": "another"}
    more["match"]["destination"] = "10.6.0.0/16"
    document["limit"].append(more)


async def _storm(scene: Scene, quick: bool) -> Episode:
    begin_s = time.monotonic()
    answers: Counter[int] = Counter()

    async def reload(member: Member) -> None:
        original = copy.deepcopy(member.document)
        while time.monotonic() - begin_s < _STORM_S[quick]:
            kind = scene.rng.randrange(4)
            member.document = copy.deepcopy(original)
            if kind == 0:
                _another_limit(member.document)
            elif kind == 1:
                member.document["limit"][1]["rate"] = "1500kbit"
            member.write()
            if kind == 2:
                member.file.write_text(_BAD, encoding="utf-8")
            answers[await member.reload()] += 1
        member.document = original
        member.write()
        answers[await member.reload()] += 1

    async with trio.open_nursery() as nursery:
        for member in scene.members.values():
            nursery.start_soon(reload, member)
    healed_s = time.monotonic()
    count, answered = answers.total(), answers[200] + answers[422]
    return Episode(
        begin_s, healed_s, recover_s=2.0, lines=_LINES * count,
        checks=[
            Check("reloads a second", count / (healed_s - begin_s), least=1.0),
            Check("reloads neither accepted nor refused", count - answered, most=0),
        ],
    )  # fmt: skip


async def _wrong(scene: Scene, quick: bool) -> Episode:
    (victim,) = scene.pick(1)
    others = scene.others([victim])
    said = {other.name: len(other.lines()) for other in others}
    begin_s = time.monotonic()
    right = victim.document["limit"][0]["rate"]
    victim.document["limit"][0]["rate"] = units.format_rate(_FACTOR * RATE)
    victim.write()
    await victim.reload()
    checks = []
    try:
        checks.append(await told(scene, victim, [LOAD]))
        await trio.sleep(max(0.0, begin_s + _WRONG_S[quick] - time.monotonic()))
    finally:
        victim.document["limit"][0]["rate"] = right
        victim.write()
        await victim.reload()
    healed_s = time.monotonic()
    checks.append(await told(scene, victim, []))
    line = f"peer {victim.name} has a different configuration: {differences([LOAD])}"
    once = sum(_once(line, other.lines(), said[other.name]) for other in others)
    checks.append(Check("limiters that logged the difference once", once, least=len(others)))
    # A limiter can exceed its share by this, and by half more while it settles.
    claimed = round(1.5 * (_FACTOR - 1) * RATE / LIMITERS)
    return Episode(begin_s, healed_s, recover_s=6.0, overshoot=claimed + RATE // 10, lines=4,
                   checks=checks)  # fmt: skip


def _once(line: str, lines: list[str], before: int) -> bool:
    """Whether a line came at any time, and no more than once since the fault: a repeated fault need
    not log it again."""
    return any(line in each for each in lines) and sum(line in each for each in lines[before:]) <= 1


async def told(scene: Scene, victim: Member, limits: list[str]) -> Check:
    """A check of the time until all peers report a difference in these limits with one limiter, and
    that limiter with all peers."""
    begin_s = time.monotonic()
    others = scene.others([victim])
    pairs = [(victim, other) for other in others] + [(other, victim) for other in others]

    async def said() -> bool:
        for member, peer in pairs:
            found = (await member.ask("/v1/status"))["probes"]["disagreeing"]
            if found.get(peer.name, []) != limits:
                return False
        return True

    what = f"status reports {'the' if limits else 'no'} difference after"
    return Check(what, await took_s(said, begin_s, 2 * TOLD_S), "s", most=TOLD_S)


FAULTS = (
    Fault("reload-storm", "reloads one after another, good ones and bad ones", _storm),
    Fault("wrong-config", "one limiter with twice the rate for the same limit", _wrong),
)
