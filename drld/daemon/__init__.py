"""The daemon as a process: the engine, its tasks and clock, and what it needs of its host."""

from __future__ import annotations

import os
import signal
import sys


def main(argv: list[str] | None = None) -> int:
    """Run `drld`: see `drld.daemon.command_line.main`.

    It is imported late, so that other parts can use one module of this folder without all of them.
    """
    if os.getpid() == 1:
        # The kernel drops a signal that the first process of a container has no handler for.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    # Until the daemon handles it, a request to reload would end the process.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    from drld.daemon import command_line

    return command_line.main(argv)
