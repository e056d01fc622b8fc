"""One run in virtual time as a process of its own: `python -m testbed.harness.virtual_worker`.

The plane that the definition names carries it out: `testbed.PLANE.run.carry_out`. The module
imports little: a run often takes less time than the testbed takes to be imported.
"""

from __future__ import annotations

import os
from importlib import import_module

from testbed import child

if __name__ == "__main__":
    # Daemons run first: they may be part of a measurement.
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    job = child.receive()
    run = import_module(f"testbed.{job['definition']['plane']}.run")
    child.send(record=run.carry_out(job["definition"], job["allocator"], job["repetition"]))
