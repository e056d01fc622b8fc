"""What the control API needs of the daemon."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import trio

from drld.config.changes import Change
from drld.control.schema import (
    ChangeReport,
    ConfigTable,
    KeysReport,
    LimitReport,
    PeerReport,
    StatusReport,
    TraceRecord,
)
from drld.explanation import Explanation
from drld.gossip.wire.keyring import KeyRing


class Backend(Protocol):
    """The daemon, as the control API sees it.

    The synchronous methods are called from the event loop and must be short. `limits` and
    `peers` may be generators: they are consumed in batches, with other tasks between.
    """

    def status(self) -> StatusReport:
        """The daemon as a whole."""

    def limits(self) -> Iterable[LimitReport]:
        """Every limit, in the order of the configuration."""

    def peers(self) -> Iterable[PeerReport]:
        """Every peer, in the order of the configuration."""

    def explain(self, item: str) -> Iterable[Explanation]:
        """What each limit would do with an item now, in the order in which they check it.

        Raises:
            InputError: the text is no item of any plane.
        """

    def trace(
        self, limit: str
    ) -> AbstractAsyncContextManager[trio.MemoryReceiveChannel[TraceRecord]]:
        """A record a tick of one limit, until the context is left (drld.control.trace).

        Raises:
            KeyError: there is no such limit.
        """

    def keys(self) -> KeysReport:
        """The keys in force."""

    def change_keys(self, change: Callable[[KeyRing], KeyRing]) -> None:
        """Put the keys in force that `change` makes of those that are.

        Raises:
            ConfigError: raised by `change`; nothing is changed.
        """

    def config(self) -> Iterable[ConfigTable]:
        """The tables of the configuration in force."""

    async def change_limits(self, change: Change) -> ChangeReport:
        """Put a change of limits into force; several may ask at a time.

        Raises:
            KeyError: there is no such limit.
            ConfigError: the change is bad, or cannot be saved; nothing is changed.
            DatapathError: the host refuses it; nothing is changed.
        """

    async def reload(self) -> None:
        """Read the configuration files again and take it over; several may ask at a time.

        Raises:
            ConfigError: the file is bad; the running configuration stays.
        """
