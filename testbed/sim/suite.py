"""A series of simulated runs: every allocator, as often as asked for, one result file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from testbed.experiment import Experiment
from testbed.harness.progress import Progress
from testbed.harness.suite import carry_out, header
from testbed.sim.run import simulate


async def run_suite(
    experiment: Experiment, out: Path, progress: Progress, *, resumed: bool = False
) -> dict[str, Any]:
    """Carry out all runs in the simulator; see `testbed.harness.suite.carry_out`.

    Raises:
        DrldError: the simulator cannot do it.
    """

    async def run(experiment: Experiment, allocator: str, repetition: int) -> dict[str, Any]:
        progress.step("simulating")
        return simulate(experiment, allocator, repetition)

    setting = {"datapath": "simulated", "links": "simulated"}
    head = header(experiment, setting, simulated=True)
    return await carry_out(experiment, run, head, out, progress, resumed=resumed)
