"""The configuration of a running daemon: files that are read again, and changes of limits over it.

One reload or change runs at a time. A refused one leaves the configuration in force, and a reload
leaves its reason in the status.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic_ns
from typing import TYPE_CHECKING

import trio

from drld import config
from drld.config.atomic_file import replace_by, sync_directory
from drld.config.changes import Change, Configuration
from drld.config_difference import NOT_THERE
from drld.control.credentials import Credentials
from drld.control.schema.changes import ChangeReport
from drld.control.schema.status import ConfigReport
from drld.daemon.change_log import changes, differs_for_peers, log_changes
from drld.daemon.enforcer import Enforcer
from drld.daemon.event_log import EventLog
from drld.daemon.history import History
from drld.daemon.limit_report import change_report
from drld.daemon.notify import Manager
from drld.daemon.origin import Origin, origin_of
from drld.daemon.single_flight import SingleFlight
from drld.errors import ConfigError, DrldError
from drld.log_event import event
from drld.spec import LimiterSpec

if TYPE_CHECKING:
    from drld.registry.agent import Agent

log = logging.getLogger("drld")

MAX_REPORTED = 20_000
"""Characters of a refusal in the status: a large file may have thousands of mistakes."""


class Reloader:
    """Reads the files again, and changes limits between two readings."""

    def __init__(
        self,
        path: Path,
        configuration: Configuration,
        enforcer: Enforcer,
        registry: Agent | None,
        *,
        history: History,
        events: EventLog,
        manager: Manager,
    ) -> None:
        """Begin with the files as they were read at the start."""
        self.path = path
        self.configuration = configuration
        self._enforcer = enforcer
        self._registry = registry
        self._history = history
        self._events = events
        self._manager = manager
        self._loaded_at = time.time()
        self._error: str | None = None
        self._dropped: list[str] = []
        """Limits whose unsaved changes the last reload has reverted."""
        self._askers: list[Origin] = []
        """Callers that wait for a reload, in the order of asking; the first is why it runs."""
        self._one_reload = SingleFlight(self._reload)

    async def reload(self, origin: Origin) -> None:
        """Read the files again and put them into force; several callers may wait for one reload.

        Unsaved changes are reverted, as by `nft -f` or a reload of firewalld or HAProxy: after a
        reload, the files are in force.

        Raises:
            ConfigError: a file is bad; the running configuration stays.
            DatapathError: the host refuses it; the running configuration stays.
        """
        self._askers.append(origin)
        try:
            await self._one_reload()
        finally:
            self._askers.remove(origin)

    async def change_limits(self, change: Change, by: Credentials) -> ChangeReport:
        """Put a change of limits into force, on top of all changes before it.

        Raises:
            KeyError: there is no such limit.
            ConfigError: the change is bad, and is not in force; or it cannot be saved.
            DatapathError: the host refuses it; nothing is changed.
        """
        origin = await trio.to_thread.run_sync(origin_of, "control", by)
        async with self._one_reload.alone():
            before = self.configuration
            of_files = {limit.name for limit in before.in_force.limits}
            if change.limit in self._enforcer.limit_names() - of_files:
                raise ConfigError([f"{change.limit}: is a limit of the fleet's registry (--fleet)"])
            after = await trio.to_thread.run_sync(before.changed, change)
            found = await trio.to_thread.run_sync(changes, before, after)
            unlike = self._enforcer.engine.disagreements()
            saving = None
            if change.save:
                beside = await trio.to_thread.run_sync(after.write, before)
                saving = _Saving(after.drop_in, beside)
            try:
                await self._put_in_force(after.in_force, origin, saving)
                # Before this scope, nothing waits: a client that leaves now changes no log.
                with trio.CancelScope(shield=True):
                    if saving is None or saving.done:
                        self.configuration = after
                    else:
                        unsaved = partial(before.changed, replace(change, save=False))
                        self.configuration = await trio.to_thread.run_sync(unsaved)
                    log_changes(found, self._events, saved=saving is not None and saving.done)
                    if saving is not None:
                        await saving.settle()
                peers = self._enforcer.engine.spec.peers if differs_for_peers(before, after) else ()
                absent = f"{change.limit}{NOT_THERE}"
                needed_at = [it.name for it in peers if absent not in unlike.get(it.name, ())]
                file = str(after.drop_in.absolute()) if change.save else None
                return change_report(found, file, needed_at)
            finally:
                if saving is not None:
                    saving.beside.unlink(missing_ok=True)
                await self._history.write()

    def report(self) -> ConfigReport:
        """The state of the configuration, for the control API."""
        http = self.configuration.in_force.http
        return ConfigReport(
            file=str(self.path.absolute()),
            loaded_at=self._loaded_at,
            reload_error=self._error,
            unsaved=self.configuration.unsaved_names(),
            dropped=self._dropped,
            certificate_expires_at=http.tls.expires if http and http.tls else None,
        )

    async def _reload(self) -> None:
        with self._manager.reloading(monotonic_ns()):
            try:
                # To read a large file takes seconds. Ticks go on meanwhile.
                first = self._askers[0]
                read = partial(read_configuration, self.path)
                configuration = await trio.to_thread.run_sync(read, abandon_on_cancel=True)
                await self._put_in_force(configuration.in_force, first)
            except DrldError as error:
                self._error = str(error)[:MAX_REPORTED]
                self._events.add("fault", f"reload refused: {self._error}")
                raise
            # Nothing waits between: the reload of a client that has left is complete, too.
            self._reloaded(configuration)
            await self._history.write()

    def _reloaded(self, configuration: Configuration) -> None:
        """Note that the files are in force, and log it."""
        self._dropped = self.configuration.unsaved_names()
        self.configuration = configuration
        self._error = None
        self._loaded_at = time.time()
        limits = len(self._enforcer.engine.limits)
        reloaded = f"reloaded {self.path}: limits: {limits}"
        fields = event("config.reloaded", file=str(self.path), limits=limits)
        log.info("%s", reloaded, extra=fields)
        self._events.add("reload", reloaded)
        if self._dropped:
            log.warning(
                "unsaved changes are dropped by the reload: %s",
                ", ".join(self._dropped),
                extra=event("limit.reverted", limits=self._dropped),
            )

    async def _put_in_force(
        self, spec: LimiterSpec, origin: Origin, saving: _Saving | None = None
    ) -> None:
        """Take over a configuration of files and unsaved changes.

        Raises:
            ConfigError, DatapathError: it is refused; the running configuration stays.
        """
        take_over = partial(self._enforcer.take_over, origin=origin)
        if saving is not None:
            take_over = partial(take_over, save=saving.rename)
        if self._registry is not None:
            await self._registry.reload(spec, take_over)
        elif spec.registry is not None:
            # Until the registry names the peers, this limiter would have the whole limit.
            raise ConfigError(
                [f"{self.path}: registry: cannot change while the daemon runs: restart it"]
            )
        else:
            await self._enforcer.prepare(spec)
            take_over(spec)


@dataclass(slots=True)
class _Saving:
    """A drop-in with a change, which takes its place as soon as the change is in force."""

    drop_in: Path
    beside: Path
    """The new contents, on disk."""
    done: bool = False
    error: OSError | None = None

    def rename(self) -> bool:
        """Put the drop-in into place; return whether the host does so."""
        try:
            replace_by(self.drop_in, self.beside)
        except OSError as error:
            self.error = error
        else:
            self.done = True
        return self.done

    async def settle(self) -> None:
        """Return when the drop-in survives a loss of power.

        Raises:
            ConfigError: it does not, or it is not in place; the change is in force.
        """
        if self.done:
            try:
                await trio.to_thread.run_sync(sync_directory, self.drop_in.parent)
            except OSError as error:
                self.error = error
        if self.error is not None:
            lasts = "and saved, but a loss of power may undo that" if self.done else "but not saved"
            reason = f"the change is in force, {lasts}: {self.error.strerror}"
            raise ConfigError([f"{self.drop_in}: {reason}"])


def read_configuration(path: Path) -> Configuration:
    """Read the files of a configuration.

    Raises:
        ConfigError: they cannot be used.
    """
    return Configuration.of(config.read(path))
