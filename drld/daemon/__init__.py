"""The daemon as a process: the engine, its tasks and clock, and what it needs of its host."""

from __future__ import annotations


def main(argv: list[str] | None = None) -> int:
    """Run `drld`: see `drld.daemon.process.main`.

    It is imported late, so that other parts can use one module of this folder without all of them.
    """
    from drld.daemon import process

    return process.main(argv)
