"""The attachment of a limiter's programs to hooks, in either of two ways.

A program on a hook stays alive without any process or file, and keeps its maps alive. The next
daemon of that limiter finds it there. `attachment` chooses tcx (`drld.ebpf.tcx`) if the kernel has
it, and clsact with cls_bpf (`drld.ebpf.clsact`) otherwise.
"""

from __future__ import annotations

from typing import Protocol

from drld.ebpf.bpf import Program
from drld.ebpf.hook import Found
from drld.police.direction import Direction


class Attachment(Protocol):
    """The programs of one limiter on the interfaces of the current network namespace."""

    way: str
    """`tcx` or `clsact`."""

    def program_name(self, kind: str) -> str:
        """The name under which a program must be loaded to be attached."""

    def put(self, index: int, direction: Direction, program: Program, handover_ids: str) -> None:
        """Attach a program, or replace this limiter's earlier one: each packet meets one of them.

        Args:
            index: the interface's index.
            direction: the packets' direction.
            program: a program loaded under `program_name`.
            handover_ids: ids of the maps that the next daemon takes over, separated by dots; any
                text if there are none.

        Raises:
            DatapathError: the kernel refuses.
        """

    def remove(self, index: int, direction: Direction) -> None:
        """Remove the program of drld; does nothing if the interface is gone.

        Raises:
            DatapathError: the kernel refuses.
        """

    def has(self, index: int, direction: Direction) -> bool:
        """Whether the program of drld is attached.

        Raises:
            DatapathError: the kernel refuses to answer.
        """

    def found(self) -> list[Found]:
        """All attached programs of this limiter, on all interfaces.

        Raises:
            DatapathError: the kernel refuses to answer.
        """

    def others(self, index: int, direction: Direction) -> list[str]:
        """The other limiters with a program there, in words; see `drld.ebpf.other_limiters`.

        Raises:
            DatapathError: the kernel refuses to answer.
        """

    def close(self) -> None:
        """Close the connection to the kernel; the programs stay."""


def attachment(limiter_name: str) -> Attachment:
    """The better way that this kernel and this process's capabilities allow.

    Raises:
        DatapathError: neither way works.
    """
    from drld.ebpf import tcx

    if tcx.available():
        return tcx.Tcx(limiter_name)
    # pyroute2 takes longer to import than the rest of the datapath.
    from drld.ebpf.clsact import Clsact

    return Clsact(limiter_name)
