"""One run as a process of its own: `python -m testbed.harness.worker`, for `campaign.py`.

A job comes on the standard input and the outcome goes to the standard output, as JSON lines (`Job`,
`STEP`, and the constants below). Names of namespaces, sockets and logs contain the process's id
(`testbed.netns`), and queue numbers and ports belong to a namespace. So simultaneous runs share
only the host. SIGTERM ends a run, and removes everything.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from typing import Any

import trio

from drld.errors import DrldError
from testbed import child, experiment_file
from testbed.errors import MeasurementError
from testbed.experiment import Experiment
from testbed.harness.pool import STEP
from testbed.harness.progress import Progress
from testbed.interrupt import run_to_end
from testbed.link import choose_links
from testbed.run import RunOptions, run_once
from testbed.run_bounds import refuse
from testbed.sim.run import simulate

RECORD = "record"
"""The record of a run that counts."""
DISCARDED = "discarded"
"""The reason why a run does not count."""
IMPOSSIBLE = "impossible"
"""The reason why the host, or the code, cannot do such runs at all."""


@dataclass(frozen=True, slots=True)
class Job:
    """A run, and the user's choices (`Setting`)."""

    definition: dict[str, Any]
    """The experiment's definition."""
    allocator: str
    repetition: int
    simulated: bool
    datapath: str
    links: str
    once: bool


class _Reported(Progress):
    """Progress for the campaign."""

    def step(self, text: str) -> None:
        """Report a step."""
        child.send(**{STEP: text})

    def countdown(self, seconds_left: int) -> None:
        """Report the remaining seconds."""
        self.step(f"{seconds_left} s left")


def work(job: Job) -> dict[str, Any]:
    """Carry out the run, and return the last answer."""
    wanted = experiment_file.build(job.definition, job.definition.get("name", ""))

    async def run() -> dict[str, Any]:
        # Errors become answers in here: outside they are for a terminal.
        return await _answer(wanted, job)

    return trio.run(run) if job.simulated else run_to_end(run)


async def _answer(wanted: Experiment, job: Job) -> dict[str, Any]:
    try:
        if job.simulated:
            # Daemons run first: they may be part of a measurement.
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
            return {RECORD: simulate(wanted, job.allocator, job.repetition)}
        refuse(wanted)
        options = RunOptions(
            job.datapath,
            functools.partial(choose_links, job.links),
            job.once,
        )
        record = await run_once(wanted, job.allocator, job.repetition, options, _Reported())
    except MeasurementError as error:
        return {DISCARDED: f"{error}"}
    except DrldError as error:
        return {IMPOSSIBLE: f"{error}"}
    return {RECORD: record}


if __name__ == "__main__":
    child.send(**work(Job(**child.receive())))
