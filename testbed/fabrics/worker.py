"""One case as a process of its own: `python -m testbed.fabrics.worker`, for `campaign.py`."""

from __future__ import annotations

import gc
import os

from testbed import child
from testbed.fabrics.case import Case
from testbed.fabrics.measure import measure

RECORD = "record"
"""An answer: the case's record."""
_LOW_PRIORITY = 10


def work() -> None:
    """Measure a case, without garbage collection: its millions of objects have no cycles."""
    os.nice(_LOW_PRIORITY)
    gc.disable()
    child.send(**{RECORD: measure(Case(**child.receive()))})


if __name__ == "__main__":
    child.main(work)
