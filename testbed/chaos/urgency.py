"""The priority of a fleet's processes: that of a daemon in scripts/drld.service.

Niceness counts within a scheduling group. Where the kernel makes a group of every session
(sched(7): autogroup), the group has a niceness of its own, and here each process is a session.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

NICE = -10
_GROUP = "/proc/self/autogroup"
RAISED = f'echo {NICE} 2>/dev/null >{_GROUP}; exec nice -n {NICE} "$@"'
"""A shell script whose arguments are the command to run."""


def be_urgent() -> None:
    """Give this process the priority of a daemon."""
    os.nice(NICE)
    with contextlib.suppress(OSError):
        Path(_GROUP).write_text(f"{NICE}", encoding="ascii")
