"""Faults on one fleet, one after another, as a process of its own: `python -m testbed.chaos.stage`.

Several stages at a time share nothing but the host (`testbed.netns`). The job comes on the standard
input. JSON lines go to the standard output: the present step, the record of each fault, and in the
end what the fleet left behind. SIGTERM ends the process, which removes everything.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import trio

from drld.daemon.peer_log import QUIET_NS
from drld.errors import DrldError
from drld.model import NS_PER_S
from testbed import child
from testbed.attempts import ATTEMPTS
from testbed.chaos import soak
from testbed.chaos.fault import Episode, Fault
from testbed.chaos.logs import TRACE, most_news, news
from testbed.chaos.members import Health, Member
from testbed.chaos.promises import LATE_S, MARGIN, byte_bound, fabric
from testbed.chaos.registry import FAULTS
from testbed.chaos.report import broken_of
from testbed.chaos.scene import CANARIES_PER_S, LIMITERS, RATE, Load, Scene, scene
from testbed.chaos.series import WINDOW_S, depths, lowest
from testbed.chaos.soak import SOAK
from testbed.errors import MeasurementError, first_of
from testbed.harness.finding import Check
from testbed.interrupt import run_to_end

RECORD, LEFT = "record", "left"
"""The keys of an answer that is no step; the last answer has `LEFT`."""
_FAULT_S = {False: 30.0, True: 15.0}
"""Expected duration of a fault with the time around it, by `--quick`."""
_LASTS_S = 1.0
"""A recovery must last for so long: all seconds that begin within it are full."""
_SLACK_S = 8.0
"""Wait for a recovery beyond the promise, so that a broken promise has a figure, too."""
_MEMORY_KB = (3 << 20) / 1000
"""Growth of a daemon's memory in a fault: caches that fill for the first time."""
_QUIET_S = QUIET_NS / NS_PER_S
_RELEASE_S = 5.0
_BOUNDED_S = 3.0
"""Least time for which the bound on bytes is watched, from a detection time after the fault on."""
_BEFORE_S, _COURSE_S = 2.0, 0.2
"""Time before the fault at which a record's course begins, and its step, s."""


@dataclass(frozen=True, slots=True)
class Job:
    """The work of one stage."""

    faults: list[str]
    datapath: str
    links: str
    seed: int
    quick: bool
    seconds: float
    """Length of a soak."""
    fabric: str
    earlier: str | None = None
    """See `Scene`."""

    @property
    def expected_s(self) -> float:
        """The expected duration."""
        return self.seconds if self.faults == [SOAK] else _FAULT_S[self.quick] * len(self.faults)


async def carry_out(job: Job) -> list[str]:
    """Do the faults, and send the record of each; return what the fleet left behind.

    Raises:
        DrldError: the host cannot do it, or the fleet does not come up.
    """
    if job.faults == [SOAK]:
        record, left = await soak.carry_out(job.seconds, job.links, job.seed, job.fabric)
        child.send(record=record)
        return left
    faults = [FAULTS[name] for name in job.faults]
    rng = Random(f"{job.seed}/{job.datapath}/{' '.join(job.faults)}")
    load = Load(fabric=job.fabric)

    def prepare(member: Member, state: Path) -> None:
        for fault in faults:
            if fault.prepare is not None:
                fault.prepare(member, state)

    child.send(step="starting the fleet")
    async with scene(job.links, job.datapath, rng, prepare, load) as fleet:
        fleet.earlier = job.earlier
        for fault in faults:
            try:
                record = await _measured(fault, fleet, job)
            except MeasurementError as error:
                for member in fleet.members.values():
                    if not member.alive:
                        raise await member.process.failure(f"died in {fault.name}") from error
                raise
            child.send(record=record)
        child.send(step="stopping the fleet")
        return await fleet.stop()


async def _measured(fault: Fault, fleet: Scene, job: Job) -> dict[str, Any]:
    """Do a fault, and again if the host may have broken the promise; return the last record."""
    discarded: list[dict[str, Any]] = []
    while True:
        fleet.rng = Random(f"{job.seed}/{job.datapath}/{fault.name}")
        child.send(step=f"{fault.name}: before")
        await fleet.settled()
        record = await _one(fault, fleet, job)
        record["discarded"] = discarded
        found = broken_of(record)
        if not found or record["late_s"] <= LATE_S or len(discarded) + 1 == ATTEMPTS:
            return record
        discarded.append({"late_s": record["late_s"], "broken": found})


async def _one(fault: Fault, fleet: Scene, job: Job) -> dict[str, Any]:
    members = fleet.members
    await fleet.look_at_canaries()
    for member in members.values():
        member.look()
    health = {name: (member.pid, member.health()) for name, member in members.items()}
    lines = {name: len(member.lines()) for name, member in members.items()}
    looked_s = time.monotonic()
    child.send(step=fault.name)
    episode = await fault.act(fleet, job.quick)
    child.send(step=f"{fault.name}: recovery")
    patience_s = episode.recover_s + _SLACK_S
    back_s = await fleet.recovered(episode.healed_s, _LASTS_S, patience_s)
    settled_s = episode.healed_s + _detected_s(fleet)
    await trio.sleep(max(settled_s + _BOUNDED_S - time.monotonic(), 0.0))
    end_s = time.monotonic()
    await fleet.look_at_canaries()
    said = {name: member.lines()[lines[name] :] for name, member in members.items()}
    stayed = [
        (member, health[name][1])
        for name, member in members.items()
        if member.alive and member.pid == health[name][0]
    ]
    checks = [
        *_traffic(fleet, episode, end_s, back_s),
        *episode.checks,
        *_logs(said, episode.lines, time.monotonic() - looked_s),
        *(await _growth(stayed) if stayed else []),
    ]
    begin_s = episode.begin_s - _BEFORE_S
    return {
        "fault": fault.name,
        "title": fault.title,
        "datapath": fleet.datapath,
        "seconds": round(episode.healed_s - episode.begin_s, 2),
        "checks": [check.record for check in checks],
        "said": {name: each for name, each in said.items() if each},
        "late_s": round(fleet.seen.late_s(episode.begin_s, end_s), 3),
        "course": {
            "begin_s": _BEFORE_S,
            "healed_s": round(episode.healed_s - begin_s, 2),
            "step_s": _COURSE_S,
            "forwarded": fleet.seen.all.steps(begin_s, end_s, _COURSE_S),
        },
    }


def _logs(said: Mapping[str, Sequence[str]], most: int, seconds: float) -> list[Check]:
    """The checks of the daemons' log lines in a time.

    A line about a peer may be about an earlier event, so it does not count as the fault's.
    """
    logs = said.values()
    others = [sum(news(line) is None for line in each) for each in logs]
    traces = sum(TRACE in line for each in logs for line in each)
    return [
        Check("log lines of a daemon", max(others), most=most),
        Check("log lines of one thing about peers", max(map(most_news, logs)),
              most=1 + int(seconds / _QUIET_S)),
        Check("traces in logs", traces, most=0),
    ]  # fmt: skip


async def _growth(stayed: Sequence[tuple[Member, Health]]) -> list[Check]:
    """The checks of daemons that lived through the fault, each with its use of the host before.

    Descriptors may take a moment to be released.
    """
    with trio.move_on_after(_RELEASE_S):
        while any(member.health().descriptors > before.descriptors for member, before in stayed):
            await trio.sleep(0.1)
    pairs = [(member.health(), before) for member, before in stayed]
    grown = max(after.resident_bytes - before.resident_bytes for after, before in pairs)
    more = max(after.descriptors - before.descriptors for after, before in pairs)
    return [
        Check("memory of a daemon grew by", max(grown, 0) / 1000, "kB", most=_MEMORY_KB),
        Check("descriptors of a daemon grew by", max(more, 0), most=0),
    ]


def _traffic(fleet: Scene, episode: Episode, end_s: float, back_s: float | None) -> list[Check]:
    """The checks of the traffic from the beginning of the fault on."""
    span = episode.begin_s, end_s
    allowed = depths(LIMITERS, fleet.load.burst) + episode.overshoot
    beyond = fleet.seen.all.overshoot(span, RATE, WINDOW_S)
    lost = sum(canary.lost(*span) for canary in fleet.canaries.values())
    most_lost = math.ceil(episode.lost_s * CANARIES_PER_S)
    checks = [
        Check("beyond limit x time", beyond / 1000, "kB", most=allowed / 1000),
        Check("recovery", back_s, "s", most=episode.recover_s),
        Check("in use at least", lowest(fleet.seen, *span) / RATE, least=episode.least),
        Check("lost to the fault", lost, "packets", most=most_lost),
        _bounded(fleet, episode, end_s),
    ]
    if episode.known_s is not None:
        used = lowest(fleet.seen, *episode.known_s) / RATE
        checks.append(Check("in use once it is known", used, least=episode.known))
    return checks


def _bounded(fleet: Scene, episode: Episode, end_s: float) -> Check:
    """The most bytes beyond limit x time in any window from a detection time after an event on."""
    detected_s = _detected_s(fleet)
    spans = [(episode.healed_s + detected_s, end_s)]
    if episode.known_s is not None:
        spans.append((episode.begin_s + detected_s, episode.known_s[1]))
    rate = (1 + MARGIN) * RATE + LIMITERS * fleet.seen.canary
    beyond = max(fleet.seen.all.overshoot(span, rate, math.inf) for span in spans)
    news_ns = fabric(fleet.load.fabric, LIMITERS).news_ns
    bound = byte_bound(fleet.load.rate, fleet.load.burst, LIMITERS, news_ns)
    return Check("beyond what the account lends", beyond / 1000, "kB", most=bound / 1000)


def _detected_s(fleet: Scene) -> float:
    """The detection time."""
    return fabric(fleet.load.fabric, LIMITERS).detection_ns / NS_PER_S


async def _told(job: Job) -> None:
    """Carry the job out, and send the leftovers, or the error."""
    try:
        left = await carry_out(job)
    except BaseException as error:
        inner = first_of(error)
        if not isinstance(inner, DrldError):
            raise
        child.send(error=f"{inner}")
    else:
        child.send(left=left)


if __name__ == "__main__":
    job = Job(**child.receive())
    run_to_end(functools.partial(_told, job))
