"""A process with a kernel datapath. While attached it ticks, as a daemon does, unless paused."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from unittest.mock import patch

from drld.capture.kernel.datapath import KernelDatapath
from drld.ebpf.attachment import Attachment
from drld.ebpf.clsact import Clsact
from drld.ebpf.tcx import Tcx
from drld.errors import DatapathError
from drld.model import Enforcement, FlowId
from drld.spec import LimitSpec
from testbed.netns import run
from tests.kernel import datapath_host
from tests.kernel.datapath_host import WAYS


class Host(datapath_host.Host):
    """See `datapath_host.Host`."""

    turn_s = 0.005

    def __init__(self, limiter: str, way: str | None) -> None:
        self.kernel = KernelDatapath(limiter, attachment=WAYS[way])
        super().__init__(self.kernel)

    def prepare(self, limits: Sequence[LimitSpec]) -> None:
        thread = threading.Thread(target=self.kernel.preparation(limits))
        thread.start()
        thread.join()

    def refuse(self, interface: str) -> None:
        """Have the kernel refuse programs for this interface from now on."""
        for way in (Tcx, Clsact):
            patch.object(way, "put", _refusing(way.put, interface)).start()

    def lose(self, interface: str) -> None:
        """Remove this interface as soon as a program is to be attached to it."""
        for way in (Tcx, Clsact):
            patch.object(way, "put", _losing(way.put, interface)).start()

    def turn(self) -> None:
        self.flush()

    def program(self, limit_id: int, enforcement: Enforcement, evict: Iterable[FlowId]) -> None:
        super().program(limit_id, enforcement, evict)
        self.flush()


def _refusing(put: Callable[..., None], interface: str) -> Callable[..., None]:
    def refusing(attachment: Attachment, index: int, *arguments: object) -> None:
        if socket.if_indextoname(index) == interface:
            raise DatapathError(f"no program on {interface}")
        put(attachment, index, *arguments)

    return refusing


def _losing(put: Callable[..., None], interface: str) -> Callable[..., None]:
    def losing(attachment: Attachment, index: int, *arguments: object) -> None:
        if (index, interface) in socket.if_nameindex():
            run(["ip", "link", "del", interface])
        put(attachment, index, *arguments)

    return losing
