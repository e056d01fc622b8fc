"""One run as a process of its own: `python -m testbed.messages.worker`, for `harness/campaign.py`.

It imports little: a run often takes less time than the testbed takes to be imported.
"""

from __future__ import annotations

import os

from testbed import child
from testbed.messages.run import carry_out

if __name__ == "__main__":
    # Daemons run first: they may be part of a measurement.
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    job = child.receive()
    child.send(record=carry_out(job["definition"], job["allocator"], job["repetition"]))
