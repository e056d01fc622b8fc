"""Network namespaces of the testbed: their names, their owner, and getting into one.

A namespace is called `drldtb-<owner>-<role>`. The owner is the testbed's process id and its start
time, so that a reused id is not taken for the owner. The next run removes the leftovers of dead
owners. The name of a run's state directory (configurations, control sockets) contains the owner,
too.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import select
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from testbed.errors import HostError

T = TypeVar("T")

PREFIX = "drldtb"
NETNS_DIRECTORY = Path("/run/netns")
STATE_DIRECTORY = Path("/run")

_NAME = re.compile(rf"{PREFIX}-(\d+)\.(\d+)(?:-.+)?")
_CLONE_NEWNET = 0x40000000
_COMMAND_TIMEOUT_S = 30
_KILL_TIMEOUT_S = 5.0

_libc = ctypes.CDLL(None, use_errno=True)


def owner(pid: int | None = None) -> str:
    """`<pid>.<start time in clock ticks>` of a live process, this one unless told."""
    process = pid if pid is not None else os.getpid()
    return f"{process}.{_start_time(process)}"


def namespace(role: str) -> str:
    """Name of this process's namespace for a role."""
    return f"{PREFIX}-{owner()}-{role}"


def state_directory() -> Path:
    """Directory of this process's run, for configurations and sockets."""
    return STATE_DIRECTORY / f"{PREFIX}-{owner()}"


def _start_time(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    # The command name may hold anything, blanks and parentheses included.
    return int(stat.rpartition(")")[2].split()[19])


def _owner_is_dead(name: str) -> bool:
    found = _NAME.fullmatch(name)
    if found is None:
        return False
    pid, started = int(found[1]), int(found[2])
    return _start_time(pid) != started


def stale() -> tuple[list[str], list[Path]]:
    """Namespaces and state directories whose owner is dead."""
    names = [path.name for path in NETNS_DIRECTORY.glob(f"{PREFIX}-*")]
    directories = STATE_DIRECTORY.glob(f"{PREFIX}-*")
    return (
        sorted(name for name in names if _owner_is_dead(name)),
        sorted(path for path in directories if _owner_is_dead(path.name)),
    )


def remove_stale() -> list[str]:
    """Remove the leftovers of killed runs, processes in namespaces first; return the names."""
    namespaces, directories = stale()
    remove(namespaces)
    for directory in directories:
        for mounted in _mounts(directory):
            run(["umount", "--lazy", mounted], check=False)
        shutil.rmtree(directory, ignore_errors=True)
    return namespaces + [str(directory) for directory in directories]


def _mounts(directory: Path) -> list[str]:
    """The mount points below a directory."""
    lines = Path("/proc/self/mounts").read_text(encoding="ascii", errors="replace").splitlines()
    return [line.split()[1] for line in lines if line.split()[1].startswith(f"{directory}/")]


def own() -> list[str]:
    """Namespaces of this process that exist now."""
    return sorted(path.name for path in NETNS_DIRECTORY.glob(f"{PREFIX}-{owner()}-*"))


@contextmanager
def workspace() -> Iterator[Path]:
    """A directory for this process; on exit it and all namespaces of this process are removed."""
    remove_stale()
    directory = state_directory()
    directory.mkdir(mode=0o700)
    try:
        yield directory
    finally:
        remove(own())
        shutil.rmtree(directory, ignore_errors=True)


def remove(namespaces: Iterable[str]) -> None:
    """Kill the processes inside, and delete the namespaces; missing ones are ignored."""
    present = [name for name in namespaces if (NETNS_DIRECTORY / name).exists()]
    for name in present:
        _kill_inside(name)
    for name in present:
        run(["ip", "netns", "delete", name], check=False)


def _kill_inside(name: str) -> None:
    listed = run(["ip", "netns", "pids", name], check=False)
    for pid in (int(word) for word in listed.split()):
        if pid == os.getpid():
            continue
        with contextlib.suppress(ProcessLookupError):
            # A pidfd cannot be reused between the kill and the wait.
            descriptor = os.pidfd_open(pid)
            try:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                select.select([descriptor], [], [], _KILL_TIMEOUT_S)
            finally:
                os.close(descriptor)


def run(command: list[str], *, stdin: str | None = None, check: bool = True) -> str:
    """Run a short command to its end and return its output.

    Raises:
        HostError: the command failed, does not exist, or took longer than 30 s.
    """
    try:
        done = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_COMMAND_TIMEOUT_S,
            check=False,
            # A second Ctrl-C must not end the commands that clean up after the first.
            start_new_session=True,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HostError(f"{' '.join(command)}: {error}") from error
    if check and done.returncode != 0:
        raise HostError(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def enter(name: str) -> None:
    """Move the calling thread into a namespace, for good."""
    descriptor = os.open(NETNS_DIRECTORY / name, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _libc.setns(descriptor, _CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"setns {name}: {os.strerror(number)}")
    finally:
        os.close(descriptor)


@contextmanager
def entered(name: str) -> Iterator[None]:
    """The calling thread in a namespace, while the context lasts."""
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        enter(name)
        yield
    finally:
        _libc.setns(before, _CLONE_NEWNET)
        os.close(before)


def within(name: str, function: Callable[[], T]) -> T:
    """Call `function` in a namespace and return its result.

    A network namespace belongs to a thread. This one ends right after, so the rest of the process
    stays outside. Descriptors opened inside stay usable outside.
    """
    outcome: list[T] = []
    failure: list[BaseException] = []

    def body() -> None:
        try:
            enter(name)
            outcome.append(function())
        except BaseException as error:  # handed to the caller
            failure.append(error)

    thread = threading.Thread(target=body, name=f"within {name}")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]
