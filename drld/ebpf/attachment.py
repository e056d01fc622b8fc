"""Where programs of a limiter hang: what both ways of attaching them have in common.

A program on a hook keeps itself, and so its maps, alive without any process or file, and the next
daemon of that limiter finds it there. Two ways, of which `attachment` takes the first that the
kernel has: tcx (`drld.ebpf.tcx`), and clsact with cls_bpf (`drld.ebpf.clsact`).
"""

from __future__ import annotations

from typing import Protocol

from drld.ebpf.bpf import Program
from drld.ebpf.hook import Found
from drld.spec import Direction


class Attachment(Protocol):
    """The programs of one limiter on the interfaces of the current network namespace."""

    way: str
    """`tcx` or `clsact`."""

    def program_name(self, kind: str) -> str:
        """What a program has to be called that is to be attached."""

    def put(self, index: int, direction: Direction, program: Program, handover_ids: str) -> None:
        """Attach a program, in place of an earlier one of this limiter: a packet meets one of them.

        Args:
            index: of the interface.
            direction: of the packets.
            program: was loaded as `program_name` says.
            handover_ids: ids of the maps that the next daemon takes over, separated by dots; or
                any text, if there are none.

        Raises:
            DatapathError: the kernel refuses.
        """

    def remove(self, index: int, direction: Direction) -> None:
        """Remove our program; an interface that is gone has taken it along.

        Raises:
            DatapathError: the kernel refuses.
        """

    def has(self, index: int, direction: Direction) -> bool:
        """Whether our program is there.

        Raises:
            DatapathError: the kernel does not say.
        """

    def found(self) -> list[Found]:
        """All programs of this limiter, on whatever interface.

        Raises:
            DatapathError: the kernel does not say.
        """

    def close(self) -> None:
        """Give up what is needed to talk to the kernel; the programs stay."""


def attachment(limiter_name: str) -> Attachment:
    """The better of the two ways that this kernel, and this process's capabilities, allow.

    Raises:
        DatapathError: neither.
    """
    from drld.ebpf import tcx

    if tcx.available():
        return tcx.Tcx(limiter_name)
    # pyroute2 takes longer to import than the rest of the datapath.
    from drld.ebpf.clsact import Clsact

    return Clsact(limiter_name)
