"""What is said of hooks of the kernel datapath that cannot be attached."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest

from drld.capture.kernel import hooks as hooks_module
from drld.capture.kernel.hooks import Hooks
from drld.ebpf.hook import Hook
from drld.errors import DatapathError
from drld.police.direction import Direction

PATTERN = Hook("*", Direction.OUT)


class Refused(Hooks):
    """Hooks under one pattern, which a kernel refuses."""

    def __init__(self, interface: str) -> None:
        nothing: Any = None
        super().__init__(nothing, nothing, 0)
        self._named = (PATTERN,)
        wanted: Any = self
        self._wanted = wanted
        self._interface = interface

    def of(self, keys: object) -> dict[Hook, tuple[Hook, ...]]:
        return {Hook(self._interface, Direction.OUT): (PATTERN,)}

    def _attach(self, *_: object) -> NoReturn:
        raise DatapathError("No such device")


def test_a_hook_is_named_unless_its_interface_is_gone_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hooks_module, "index_of", {"there0": 7}.get)
    state: Any = None
    for interface in ("there0", "gone0"):
        Refused(interface).put_back_lost(state, news=True)
    assert [it.getMessage() for it in caplog.records] == [
        "there0: not limited: cannot attach the program: No such device; drld keeps trying"
    ]
