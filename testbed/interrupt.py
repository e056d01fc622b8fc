"""Work that a signal may end: everything is removed first, and the exit status names the signal."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click
import trio

from drld.errors import DrldError
from testbed.errors import first_of

T = TypeVar("T")

_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _InterruptedError(Exception):
    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


async def _interruptible(work: Callable[[], Awaitable[T]]) -> T:
    """Do the work; a signal cancels it, and is reported after the cleanup.

    Raises:
        _InterruptedError: there was a signal.
    """
    received: list[int] = []
    results: list[T] = []

    async def wait_for_signal(task_status: trio.TaskStatus[None]) -> None:
        with trio.open_signal_receiver(*_INTERRUPTS) as signals:
            task_status.started()
            async for number in signals:
                received.append(number)
                scope.cancel()

    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            await nursery.start(wait_for_signal)
            results.append(await work())
        nursery.cancel_scope.cancel()
    if received:
        raise _InterruptedError(received[0])
    return results[0]


def run_to_end(work: Callable[[], Awaitable[T]], *, root: bool = True) -> T:
    """Run the work; end the process with a suitable exit status on failure.

    `root`: whether the work needs root.
    """
    if root and os.geteuid() != 0:
        raise click.ClickException("network namespaces need root")
    try:
        return trio.run(_interruptible, work)
    except _InterruptedError as interrupt:
        click.echo("interrupted; everything is removed", err=True)
        sys.exit(128 + interrupt.number)
    except BaseException as error:
        inner = first_of(error)
        if isinstance(inner, DrldError):
            raise click.ClickException(str(inner)) from None
        raise
