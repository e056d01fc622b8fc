"""A series of simulated runs: every allocator several times, one result file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from testbed.experiment import Experiment
from testbed.progress import Progress
from testbed.sim.run import simulate
from testbed.suite import carry_out, header


async def run_suite(
    experiment: Experiment, out: Path, progress: Progress, *, resumed: bool = False
) -> dict[str, Any]:
    """Carry out all runs in the simulator; see `testbed.suite.carry_out`.

    Raises:
        DrldError: the simulator lacks a feature of the experiment.
    """

    async def run(experiment: Experiment, allocator: str, repetition: int) -> dict[str, Any]:
        progress.step("simulating")
        return simulate(experiment, allocator, repetition)

    setting = {"datapath": "simulated", "links": "simulated"}
    head = header(experiment, setting, simulated=True)
    return await carry_out(experiment, run, head, out, progress, resumed=resumed)
