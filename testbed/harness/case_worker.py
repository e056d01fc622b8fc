"""One run of a case as a process of its own: `python -m testbed.harness.case_worker`.

The plane that the definition names carries it out: `testbed.PLANE.run.carry_out`. The module
imports little: a run in virtual time often takes less time than the testbed takes to be imported.
"""

from __future__ import annotations

import os
from importlib import import_module

from testbed import child
from testbed.errors import HostError, MeasurementError

if __name__ == "__main__":
    job = child.receive()
    if job["simulated"]:
        # Daemons run first: they may be part of a measurement.
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    run = import_module(f"testbed.{job['definition']['plane']}.run")
    try:
        record = run.carry_out(job["definition"], job["allocator"], job["repetition"])
        child.send(record=record)
    except MeasurementError as error:
        child.send(discarded=f"{error}")
    except HostError as error:
        child.send(impossible=f"{error}")
