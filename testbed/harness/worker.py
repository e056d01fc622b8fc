"""One run as a process of its own: `python -m testbed.harness.worker`, for `campaign.py`.

A job comes on the standard input and the outcome goes to the standard output, as JSON lines
(`Job`, and the constants below). Namespaces, sockets and logs are called after the process that
makes them (`testbed.netns`), and queue numbers and ports belong to a namespace, so that several
runs at a time have nothing in common but the host. SIGTERM ends a run, and removes everything.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from typing import Any

import trio

from drld.errors import DrldError
from testbed import child, experiment
from testbed.errors import MeasurementError
from testbed.experiment import Experiment
from testbed.harness.progress import Progress
from testbed.interrupt import run_to_end
from testbed.link import choose_links
from testbed.run import RunOptions, refuse, run_once
from testbed.sim.run import simulate

STEP = "step"
"""What is being done now."""
RECORD = "record"
"""The record of a run that counts."""
DISCARDED = "discarded"
"""Why it does not."""
IMPOSSIBLE = "impossible"
"""Why the host, or the code, cannot do such runs at all."""


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be run."""

    definition: dict[str, Any]
    """Of the experiment."""
    allocator: str
    repetition: int
    simulated: bool
    datapath: str
    links: str
    once: bool
    """Whether a run that the host disturbed counts, with a remark."""


class _Told(Progress):
    """Progress for whoever started this process."""

    def step(self, text: str) -> None:
        """Say what is being done now."""
        child.send(**{STEP: text})

    def countdown(self, seconds_left: int) -> None:
        """Say how long it still takes."""
        self.step(f"{seconds_left} s left")


def work(job: Job) -> dict[str, Any]:
    """Carry it out, and return what to answer."""
    wanted = experiment.build(job.definition, job.definition.get("name", ""))

    async def run() -> dict[str, Any]:
        # Told apart in here: outside, errors are for a terminal.
        return await _answer(wanted, job)

    return trio.run(run) if job.simulated else run_to_end(run)


async def _answer(wanted: Experiment, job: Job) -> dict[str, Any]:
    try:
        if job.simulated:
            # A daemon that has something to do goes first: it may be part of a measurement.
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
            return {RECORD: simulate(wanted, job.allocator, job.repetition)}
        refuse(wanted)
        options = RunOptions(
            job.datapath, functools.partial(choose_links, job.links), once=job.once
        )
        record = await run_once(wanted, job.allocator, job.repetition, options, _Told())
    except MeasurementError as error:
        return {DISCARDED: f"{error}"}
    except DrldError as error:
        return {IMPOSSIBLE: f"{error}"}
    return {RECORD: record}


if __name__ == "__main__":
    child.send(**work(Job(**child.receive())))
