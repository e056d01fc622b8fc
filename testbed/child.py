"""The child's end of the pipe to the testbed: JSON lines in, JSON lines out.

A child reads its job, reports that it is ready, and receives the start time (ns of the monotonic
clock, which all processes of a host share). It works, reports its result, and stays until it is
dismissed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from drld.errors import DrldError
from testbed.errors import MeasurementError

_REALTIME_PRIORITY = 5
_NICE = -10


def receive() -> Any:
    """Read one line from the testbed; EOFError if the testbed is gone."""
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return json.loads(line)


def send(**message: Any) -> None:
    """Write one line to the testbed."""
    sys.stdout.write(json.dumps(message, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def raise_priority() -> str:
    """Get priority over ordinary processes, if the host permits; return the priority's name."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(_REALTIME_PRIORITY))
        return f"SCHED_RR {_REALTIME_PRIORITY}"
    except OSError:
        pass
    try:
        os.nice(_NICE)
        return f"nice {_NICE}"
    except OSError:
        return "normal"


def main_of(roles: Mapping[str, Callable[[], None]]) -> None:
    """`main` with the work of the role that the first argument names."""

    def work() -> None:
        role = roles.get(sys.argv[1] if len(sys.argv) > 1 else "")
        if role is None:
            raise MeasurementError(f"the first argument is one of {', '.join(roles)}")
        role()

    main(work)


def main(work: Callable[[], None]) -> None:
    """Run a child's work; report an error to the testbed in one line."""
    try:
        work()
        sys.stdin.read()
    except EOFError:
        sys.exit(1)
    except (DrldError, OSError) as error:
        send(error=f"{error}")
        sys.exit(1)
