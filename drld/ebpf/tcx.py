"""BPF programs on tcx, the hooks of an interface without a queueing discipline (Linux 6.6).

An empty program costs a packet 34 ns there, and 116 ns with clsact and cls_bpf
(docs/kernel-datapath.md). Context and return values are the same: after TC_ACT_UNSPEC the next
program of tcx decides, and then the filters of clsact.

A program is attached by bpf(2) without a link, which would end with the process. It stays, like a
filter, until it is detached or the interface is removed. The next daemon finds it by its name, a
digest of the limiter's name, and its maps by their ids. drld's program is attached before all
others, because one of those might end the run for a packet that a limit must see.
"""

from __future__ import annotations

import errno
import hashlib
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from drld.ebpf import bpf
from drld.ebpf.bpf import Program
from drld.ebpf.hook import Found
from drld.ebpf.other_limiters import NO_DAEMON, running
from drld.errors import DatapathError
from drld.police.direction import Direction

HOOK = {Direction.IN: bpf.TCX_INGRESS, Direction.OUT: bpf.TCX_EGRESS}

_LOOPBACK = 1
"""The index of the loopback interface, in every network namespace."""
_NO_PROGRAM = 0
_PREFIX = "drld_"
"""The beginning of the names of all limiters' programs."""
_GONE = (errno.ENODEV, errno.ENOENT)
"""The errors by which the kernel says that the interface, or the program on it, is gone."""


def available() -> bool:
    """Whether the kernel has tcx, and lets this process look programs up (CAP_SYS_ADMIN)."""
    try:
        bpf.attached(_LOOPBACK, bpf.TCX_INGRESS)
        Program.from_id(_NO_PROGRAM)
    except FileNotFoundError:
        return True
    except (OSError, DatapathError):
        pass
    return False


class Tcx:
    """The programs of one limiter in the current network namespace (`attachment.Attachment`)."""

    way = "tcx"

    def __init__(self, limiter_name: str) -> None:
        """Choose the name of the programs; the kernel is not asked yet."""
        self._name = _program_name(limiter_name)

    def close(self) -> None:
        """See `Attachment.close`."""

    def program_name(self, kind: str) -> str:  # noqa: ARG002 -- the digest takes all 15 bytes
        """See `Attachment.program_name`."""
        return self._name

    def put(
        self,
        index: int,
        direction: Direction,
        program: Program,
        handover_ids: str,  # noqa: ARG002 -- the kernel lists a program's maps
    ) -> None:
        """See `Attachment.put`."""
        with _explained(index, direction), self._ours(index, direction) as ours:
            identity = program.identity()
            if any(each.identity() == identity for each in ours):
                return
            bpf.attach(index, HOOK[direction], program, ours[0] if ours else None)

    def remove(self, index: int, direction: Direction) -> None:
        """See `Attachment.remove`."""
        with _explained(index, direction), self._ours(index, direction) as ours:
            for program in ours:
                try:
                    bpf.detach(index, HOOK[direction], program)
                except OSError as error:
                    if error.errno not in _GONE:
                        raise

    def has(self, index: int, direction: Direction) -> bool:
        """See `Attachment.has`."""
        with _explained(index, direction), self._ours(index, direction) as ours:
            return bool(ours)

    def found(self) -> list[Found]:
        """See `Attachment.found`."""
        found = []
        try:
            interfaces = socket.if_nameindex()
        except OSError as error:
            raise DatapathError(f"interfaces: {error}") from error
        for index, interface in interfaces:
            for direction in Direction:
                with _explained(index, direction), self._ours(index, direction) as ours:
                    for program in ours:
                        handover_ids = ".".join(map(str, program.map_ids()))
                        found.append(Found(interface, index, direction, handover_ids))
        return found

    def others(self, index: int, direction: Direction) -> list[str]:
        """See `Attachment.others`."""
        with _explained(index, direction):
            names = set(names_of(index, direction)) - {self._name}
        theirs = {name for name in names if name.startswith(_PREFIX)}
        alive = {_program_name(limiter): limiter for limiter in (running() if theirs else ())}
        return [
            f"limiter {alive[name]}"
            if name in alive
            else f"a limiter{NO_DAEMON} (BPF program {name})"
            for name in sorted(theirs)
        ]

    @contextmanager
    def _ours(self, index: int, direction: Direction) -> Iterator[list[Program]]:
        """Yield this limiter's programs on a hook; an empty list if the interface is gone."""
        with _programs(index, direction) as programs:
            yield [program for program in programs if program.name() == self._name]


def names_of(index: int, direction: Direction) -> list[str]:
    """Return the names of all programs on a hook, in the order in which packets meet them.

    Raises:
        OSError, DatapathError: the kernel refuses to answer.
    """
    with _programs(index, direction) as programs:
        return [program.name() for program in programs]


@contextmanager
def _programs(index: int, direction: Direction) -> Iterator[list[Program]]:
    """Yield all programs on a hook; an empty list if the interface is gone."""
    with ExitStack() as opened:
        programs = []
        for identity in _attached(index, direction):
            with suppress(FileNotFoundError):  # it was removed meanwhile
                programs.append(program := Program.from_id(identity))
                opened.callback(program.close)
        yield programs


def _program_name(limiter: str) -> str:
    digest = hashlib.blake2s(limiter.encode("utf-8", "surrogatepass"), digest_size=5)
    return f"{_PREFIX}{digest.hexdigest()}"


def _attached(index: int, direction: Direction) -> list[int]:
    try:
        return bpf.attached(index, HOOK[direction])
    except OSError as error:
        if error.errno in _GONE:
            return []
        raise


@contextmanager
def _explained(index: int, direction: Direction) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        name = f"number {index}"
        with suppress(OSError):  # fails as well if no descriptor is free
            name = dict(socket.if_nameindex()).get(index, name)
        raise DatapathError(f"tcx on interface {name} {direction.value}: {error}") from error
