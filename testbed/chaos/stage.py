"""Faults on one fleet, one after another, as a process of its own: `python -m testbed.chaos.stage`.

Several stages at a time have nothing in common but the host (`testbed.netns`). A job comes on the
standard input; what is being done, and the record of each fault, go to the standard output, as JSON
lines. SIGTERM ends it, and removes everything.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import trio

from drld.daemon.peer_log import QUIET_NS
from drld.errors import DrldError
from drld.model import NS_PER_S
from testbed import child
from testbed.chaos import soak
from testbed.chaos.fault import Episode, Fault
from testbed.chaos.logs import TRACE, most_news, news, repeated
from testbed.chaos.promises import FAIR, LATE_S, MARGIN, byte_bound, fabric
from testbed.chaos.registry import FAULTS, preparation
from testbed.chaos.report import broken_of
from testbed.chaos.scene import CANARIES_PER_S, FULL_LOAD, LIMITERS, RATE, Scene, scene
from testbed.chaos.series import WINDOW_S, lowest, overshoot
from testbed.chaos.soak import SOAK
from testbed.errors import MeasurementError, first_of
from testbed.harness.finding import Check
from testbed.interrupt import run_to_end
from testbed.link import choose_links

STEP, RECORD, LEFT, FAILED, END = "step", "record", "left", "error", "end"
_LASTS_S = 1.0
"""A recovery must last so long: as many seconds that begin within it are full."""
_SLACK_S = 8.0
"""And its recovery waited for so much longer than promised: a broken promise has a figure, too."""
_MEMORY_BYTES = 3 << 20
"""Growth of a daemon's memory in a fault: caches that fill for the first time."""
_QUIET_S = QUIET_NS / NS_PER_S
_RELEASE_S = 5.0
_BOUNDED_S = 3.0
"""For so long at least the bound on bytes is watched, a detection time after the fault."""
ATTEMPTS = 5
_BEFORE_S, _COURSE_S = 2.0, 0.2
"""What a record tells of before the fault, and its steps."""


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be done."""

    faults: list[str]
    datapath: str
    links: str
    seed: int
    quick: bool
    seconds: float
    """Of a soak."""
    fabric: str
    allocator: str


async def carry_out(job: Job) -> None:
    """Do the faults, and tell of each.

    Raises:
        DrldError: the host cannot do it, or the fleet does not come up.
    """
    if job.faults == [SOAK]:
        record, left = await soak.carry_out(job.seconds, job.links, job.seed, job.fabric)
        child.send(**{RECORD: record})
        child.send(**{LEFT: left})
        return
    faults = [FAULTS[name] for name in job.faults]
    rng = Random(f"{job.seed}/{job.datapath}/{' '.join(job.faults)}")
    links = functools.partial(choose_links, job.links)
    child.send(**{STEP: "starting the fleet"})
    limits = replace(FULL_LOAD.limits, allocator=job.allocator)
    load = replace(FULL_LOAD, limits=limits, fabric=job.fabric)
    async with scene(links, job.datapath, rng, preparation(faults), load) as fleet:
        for fault in faults:
            try:
                record = await _measured(fault, fleet, job)
            except MeasurementError as error:
                for member in fleet.members.values():
                    if member.daemon is not None and not member.alive:
                        raise await member.daemon.failure(f"died in {fault.name}") from error
                raise
            child.send(**{RECORD: record})
        child.send(**{STEP: "stopping the fleet"})
        left = await fleet.stop()
    child.send(**{LEFT: left})


async def _measured(fault: Fault, fleet: Scene, job: Job) -> dict[str, Any]:
    """Do it, and again where the host may have broken the promise; the record of the last time."""
    discarded: list[dict[str, Any]] = []
    while True:
        fleet.rng = Random(f"{job.seed}/{job.datapath}/{fault.name}")
        child.send(**{STEP: f"{fault.name}: before"})
        await fleet.settled()
        record = await _one(fault, fleet, job)
        record["discarded"] = discarded
        found = broken_of(record)
        if not found or record["late_s"] <= LATE_S or len(discarded) + 1 == ATTEMPTS:
            return record
        discarded.append({"late_s": record["late_s"], "broken": found})


async def _one(fault: Fault, fleet: Scene, job: Job) -> dict[str, Any]:
    members = fleet.members.values()
    await fleet.look_at_canaries()
    for member in members:
        member.look()
    health = {member.name: member.health() for member in members}
    lives = {member.name: member.pid for member in members}
    lines = {member.name: len(member.lines()) for member in members}
    looked_s = time.monotonic()
    child.send(**{STEP: f"{fault.name}"})
    episode = await fault.act(fleet, job.quick)
    child.send(**{STEP: f"{fault.name}: recovery"})
    patience_s = episode.bounds.recover_s + _SLACK_S
    back_s = await fleet.recovered(episode.healed_s, _LASTS_S, patience_s)
    if fleet.limits.allocator == FAIR:
        settled_s = episode.healed_s + _detected_s(fleet)
        await trio.sleep(max(settled_s + _BOUNDED_S - time.monotonic(), 0.0))
    end_s = time.monotonic()
    await fleet.look_at_canaries()
    said = {member.name: member.lines()[lines[member.name] :] for member in members}
    checks = [
        *_traffic(fleet, episode, end_s, back_s),
        *episode.checks,
        Check("log lines of a daemon", max(map(_events, said.values())), most=episode.bounds.lines),
        Check(
            "log lines of one thing about peers",
            max(map(most_news, said.values())),
            most=1 + int((time.monotonic() - looked_s) / _QUIET_S),
        ),
        Check(
            "traces in logs", sum(TRACE in line for each in said.values() for line in each), most=0
        ),
    ]
    stayed = [member for member in members if member.alive and member.pid == lives[member.name]]
    if stayed:
        await _released(fleet, {member.name: health[member.name].descriptors for member in stayed})
        after = {member.name: member.health() for member in stayed}
        grown = max(after[name].resident_bytes - health[name].resident_bytes for name in after)
        more = max(after[name].descriptors - health[name].descriptors for name in after)
        checks += [
            Check("memory of a daemon grew by", max(grown, 0), "B", most=_MEMORY_BYTES),
            Check("descriptors of a daemon grew by", max(more, 0), most=0),
        ]
    return {
        "fault": fault.name,
        "title": fault.title,
        "datapath": fleet.datapath,
        "seconds": round(episode.healed_s - episode.begin_s, 2),
        "checks": [check.record for check in checks],
        "said": {name: each for name, each in said.items() if each},
        "late_s": round(fleet.seen.late_s(episode.begin_s, end_s), 3),
        "said_most": max(map(repeated, said.values())),
        "course": {
            "begin_s": _BEFORE_S,
            "healed_s": round(_BEFORE_S + episode.healed_s - episode.begin_s, 2),
            "step_s": _COURSE_S,
            "forwarded": fleet.seen.all.steps(episode.begin_s - _BEFORE_S, end_s, _COURSE_S),
        },
    }


def _events(lines: list[str]) -> int:
    """How many do not tell of peers: one that does may be of what was before."""
    return sum(news(line) is None for line in lines)


async def _released(fleet: Scene, wanted: dict[str, int]) -> None:
    """Wait until daemons hold no more descriptors than they did, or it takes too long."""
    with trio.move_on_after(_RELEASE_S):
        while any(
            fleet.members[name].health().descriptors > count for name, count in wanted.items()
        ):
            await trio.sleep(0.1)


def _traffic(fleet: Scene, episode: Episode, end_s: float, back_s: float | None) -> Sequence[Check]:
    bounds, series = episode.bounds, fleet.seen.all
    depths = fleet.limits.depths(LIMITERS)
    beyond = overshoot(series.times, series.total(), (episode.begin_s, end_s), RATE, WINDOW_S)
    lost = sum(canary.lost(episode.begin_s, end_s) for canary in fleet.canaries.values())
    checks = [
        Check("beyond limit x time", round(beyond), "B", most=round(depths + bounds.overshoot)),
        Check("recovery", None if back_s is None else round(back_s, 2), "s", most=bounds.recover_s),
        _used("in use at least", fleet, (episode.begin_s, end_s), bounds.least),
        Check("lost to the fault", lost, "packets", most=math.ceil(bounds.lost_s * CANARIES_PER_S)),
    ]
    if fleet.limits.allocator == FAIR:
        checks.append(_bounded(fleet, episode, end_s))
    if bounds.known is not None:
        assert episode.known_s is not None
        checks.append(_used("in use once it is known", fleet, episode.known_s, bounds.known))
    return checks


def _bounded(fleet: Scene, episode: Episode, end_s: float) -> Check:
    """The most bytes beyond limit x time in any window from a detection time after an event on."""
    detected_s = _detected_s(fleet)
    spans = [(episode.healed_s + detected_s, end_s)]
    if episode.known_s is not None:
        spans.append((episode.begin_s + detected_s, episode.known_s[1]))
    series = fleet.seen.all
    rate = (1 + MARGIN) * RATE + LIMITERS * fleet.seen.canary
    beyond = max(overshoot(series.times, series.total(), span, rate, math.inf) for span in spans)
    news_ns = fabric(fleet.fabric, LIMITERS).news_ns
    bound = byte_bound(fleet.limits.rate, fleet.limits.burst, LIMITERS, news_ns)
    return Check("beyond what the account lends", round(beyond), "B", most=round(bound))


def _detected_s(fleet: Scene) -> float:
    """The detection time."""
    return fabric(fleet.fabric, LIMITERS).detection_ns / NS_PER_S


def _used(what: str, fleet: Scene, span: tuple[float, float], bound: float) -> Check:
    """The least that passed in any second."""
    used = lowest(fleet.seen, *span) / RATE
    return Check(what, round(used, 3), "of the limit", least=round(bound, 3))


async def _told(job: Job) -> None:
    try:
        await carry_out(job)
    except BaseException as error:
        inner = first_of(error)
        if not isinstance(inner, DrldError):
            raise
        child.send(**{FAILED: f"{inner}"})
    child.send(**{END: True})


if __name__ == "__main__":
    job = Job(**child.receive())
    run_to_end(functools.partial(_told, job))
