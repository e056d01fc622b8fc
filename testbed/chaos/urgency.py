"""How urgent to the host a fleet's processes are: as scripts/drld.service has a daemon.

Niceness says what a process is worth within its scheduling group. Where the kernel makes a group of
every session (sched(7): autogroup), and here each process has its own, the group's says the rest.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

NICE = -10
_GROUP = "/proc/self/autogroup"
RAISED = f'echo {NICE} 2>/dev/null >{_GROUP}; exec nice -n {NICE} "$@"'
"""For a shell, whose arguments are the command."""


def be_urgent() -> None:
    """Have this process be as urgent as a daemon."""
    os.nice(NICE)
    with contextlib.suppress(OSError):
        Path(_GROUP).write_text(f"{NICE}", encoding="ascii")
