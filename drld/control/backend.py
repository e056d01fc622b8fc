"""The daemon as the control API needs it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

import trio

from drld.config.changes import Change
from drld.control.credentials import Credentials
from drld.control.ranking import Rank
from drld.control.schema.changes import ChangeReport, ConfigTable, HistoryEntry
from drld.control.schema.keys import KeysReport
from drld.control.schema.limits import LimitReport, SortKey, SuggestionReport, TraceRecord
from drld.control.schema.live import Event, LiveLimit, PeerHealth
from drld.control.schema.peers import PeerReport
from drld.control.schema.status import StatusReport
from drld.gossip.wire.keyring import KeyRing
from drld.planes.explanation import Explanation
from drld.spec import PlaneSpec

T = TypeVar("T")
P = TypeVar("P", bound=PlaneSpec)


class Backend(Protocol):
    """The daemon, as the control API sees it.

    The synchronous methods are called from the event loop and must be short. `limits` and
    `peers` may be generators: they are consumed in batches, with other tasks between.
    """

    def status(self) -> StatusReport:
        """The daemon as a whole."""

    def limits(self, ids: Sequence[int] | None = None) -> Iterable[LimitReport]:
        """The limits of these ids that exist, in this order; by default all, as configured."""

    def limit(self, name: str) -> LimitReport:
        """One limit.

        Raises:
            KeyError: there is no such limit.
        """

    def ranks(self, by: SortKey) -> Iterable[Rank]:
        """The sort key of each limit, in the order of the configuration."""

    def peers(self) -> Iterable[PeerReport]:
        """Every peer, in the order of the configuration."""

    def explainer(self, *, misses: bool) -> Callable[[str], Iterable[Explanation]]:
        """A function that explains how each limit would treat an item now, in the order of the
        checks.

        Without `misses` it leaves out limits that the item does not match. It raises InputError for
        a text that is no item of any plane.
        """

    def datapath_of(self, kind: type[T]) -> T | None:
        """The running datapath of this type; None: there is none."""

    def plane_spec(self, kind: type[P]) -> P:
        """The settings of a plane, from the files in force."""

    def suggest(self, limit: str, part: float) -> SuggestionReport | int | None:
        """A rate that this part of a limit's seconds with traffic did not exceed, and a burst.

        If it has had too few of these (`drld.estimate.traffic_profile.seconds_needed`), returns
        their number; None if it has a bucket for each key.

        Raises:
            KeyError: there is no such limit.
        """

    def trace(
        self, limit: str
    ) -> AbstractAsyncContextManager[trio.MemoryReceiveChannel[TraceRecord]]:
        """A record a tick of one limit, until the context is left (drld.control.trace).

        Raises:
            KeyError: there is no such limit.
        """

    def look(self, limit_id: int) -> None:
        """A page shows this limit: have the other limiters asked for what they forward."""

    def live_limits(self, ids: Collection[int]) -> list[LiveLimit]:
        """The limits of these ids that exist, as the page shows them, as configured."""

    def health(self) -> list[PeerHealth]:
        """The first hundred peers: those that are not well come first."""

    def events(self, after: int) -> Iterable[Event]:
        """The last hundred events; of these, those after a number."""

    def keys(self) -> KeysReport:
        """The keys in force."""

    def change_keys(self, change: Callable[[KeyRing], KeyRing]) -> None:
        """Put the keys in force that `change` makes of those that are.

        Raises:
            ConfigError: raised by `change`; nothing is changed.
        """

    def config(self) -> Iterable[ConfigTable]:
        """The tables of the configuration in force."""

    def history(self) -> Iterable[HistoryEntry]:
        """The last changes of limits, the newest first."""

    async def change_limits(self, change: Change, by: Credentials) -> ChangeReport:
        """Put a change of limits into force, which this client asks for; several may at a time.

        Raises:
            KeyError: there is no such limit.
            ConfigError: the change is bad, and is not in force; or it cannot be saved.
            DatapathError: the host refuses it; nothing is changed.
        """

    async def reload(self, by: Credentials) -> None:
        """Read the configuration files again and put them into force; several callers may ask at a
        time.

        Raises:
            ConfigError: the file is bad; the running configuration stays.
        """
