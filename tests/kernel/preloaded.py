"""`python -m MODULE` for drld's programs, in processes forked from one that has imported them.

Imports take most of the processor time of a start. Arguments, environment, directory, namespace,
output, signals and the exit status are those of a process of its own; its memory is not.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from testbed.netns import enter

from . import kernel_host, nfqueue_host
from .topology import DEADLINE_S

ROOT = Path(__file__).parents[2]

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    [
        *(kernel_host.__name__, nfqueue_host.__name__),
        *("drld.daemon.command_line", "drld.registry.agent", "drld.cli"),
    ]
)


class Forked:
    """A program that runs; what it prints is appended to two files, or to one."""

    def __init__(
        self,
        module: str,
        *arguments: str,
        output: Path,
        errors: Path,
        namespace: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        for path in (output, errors):
            path.touch()
        become = partial(
            _become,
            arguments=arguments,
            files=(output, errors),
            namespace=namespace,
            environment={**os.environ, **(environment or {})},
        )
        self._process = PROCESSES.Process(target=become, args=(module,), daemon=True)
        self._process.start()

    def send_signal(self, number: signal.Signals) -> None:
        """See `subprocess.Popen`."""
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def wait(self, timeout: float) -> int:
        """See `subprocess.Popen`."""
        self._process.join(timeout)
        status = self._process.exitcode
        if status is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout)
        return status


def run(
    module: str, *arguments: str, namespace: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    with tempfile.TemporaryDirectory() as made:
        output, errors = Path(made) / "output", Path(made) / "errors"
        process = Forked(module, *arguments, output=output, errors=errors, namespace=namespace)
        try:
            status = process.wait(3 * DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            raise
        return subprocess.CompletedProcess(
            [module, *arguments], status, output.read_text(), errors.read_text()
        )


def _become(
    module: str,
    *,
    arguments: Sequence[str],
    files: tuple[Path, Path],
    namespace: str | None,
    environment: Mapping[str, str],
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(ROOT)
    for number, path in enumerate(files, start=1):
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.dup2(file, number)
        os.close(file)
    if namespace is not None:
        enter(namespace)
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)
