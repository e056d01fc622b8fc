"""A plane in a running daemon: what the daemon asks of it beside ticks.

Each plane registers a module `daemon` (drld.planes) with one function, `plane(context, spec)`. It
returns the `RunningPlane` of a daemon with this configuration, or None if that daemon does not run
the plane. Only daemons that run a plane import the modules of its servers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio

from drld.control.schema.status import DatapathReport, GossipReport
from drld.control.turns import Turns
from drld.daemon.notify import Manager
from drld.gossip.wire.keyring import KeyRing
from drld.planes import registered
from drld.planes.plane import Plane
from drld.spec import LimiterSpec


@dataclass(frozen=True, slots=True)
class PlaneContext:
    """The parts of a daemon that its planes may use."""

    path: Path
    """The configuration file, for error messages."""
    clock: Callable[[], int]
    """Monotonic time, ns."""
    files: Callable[[], LimiterSpec]
    """Returns the configuration of the files that are in force."""
    ring: Callable[[], KeyRing]
    """Returns the keys in force."""
    stopping: trio.Event
    """An event that is set when the daemon begins to stop."""
    turns: Turns
    """The turns that all servers of the daemon share."""
    manager: Manager


class RunningPlane(Plane):
    """A plane that needs nothing of the daemon but ticks; other planes override these methods."""

    has_clients: bool = False
    """Whether the daemon must call `serve` before it is ready; otherwise it calls `serve_later`."""

    async def prepare(self, spec: LimiterSpec) -> None:
        """Do the slow part of a change to this configuration, while ticks go on."""

    def put(
        self,
        spec: LimiterSpec,  # noqa: ARG002 -- planes that override this use it
        attach: Callable[[], None],
    ) -> None:
        """Put a configuration into force by `attach`, which attaches the datapaths of all planes.

        A plane may change its datapath and try again, or do its own part before and after.

        Raises:
            ConfigError, DatapathError: the configuration cannot be put into force; this plane is as
                it was before.
        """
        attach()

    async def run(self) -> None:
        """Do the work that this plane has beside ticks, until cancelled."""

    async def serve(self, *, task_status: trio.TaskStatus[Any]) -> None:
        """Serve clients until the daemon stops and each open request is answered.

        Raises:
            ConfigError: an address cannot be bound.
        """
        task_status.started()

    async def serve_later(self) -> None:
        """Serve clients that a reload may bring, as `serve` does; return if none can come."""

    def set_ring(self, spec: LimiterSpec, ring: KeyRing) -> None:
        """Use other keys, with the configuration in force."""

    def datapath_report(self) -> DatapathReport | None:
        """The state of a datapath that the operator can choose; None: this plane has one only."""
        return None

    def deltas_report(self) -> GossipReport | None:
        """The counts of a socket for messages beside gossip; None: there is no such socket."""
        return None


def host_remarks(spec: LimiterSpec) -> list[str]:
    """The remarks of all planes on a configuration at this host."""
    found = (getattr(module, "remarks", None) for module in registered("daemon"))
    return [line for remarks in found if remarks for line in remarks(spec)]


def running_planes(context: PlaneContext, spec: LimiterSpec) -> list[RunningPlane]:
    """The planes that a daemon with this configuration runs."""
    planes = (module.plane(context, spec) for module in registered("daemon"))
    return [plane for plane in planes if plane is not None]
