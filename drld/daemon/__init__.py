"""The daemon as a process: the engine, its tasks and clock, and what it needs of its host."""

from __future__ import annotations

import signal


def main(argv: list[str] | None = None) -> int:
    """Run `drld`: see `drld.daemon.process.main`.

    It is imported late, so that other parts can use one module of this folder without all of them.
    """
    # Until the daemon handles it, a request to reload would end the process.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    from drld.daemon import process

    return process.main(argv)
