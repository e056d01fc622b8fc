"""Installs and removes a limiter's rules with the host's firewall tool."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from drld.capture.iptables_rules import (
    ChainState,
    iptables_complete,
    iptables_install,
    iptables_others,
    iptables_put_back,
    iptables_state,
)
from drld.capture.nft_rules import (
    nft_complete,
    nft_install,
    nft_interfaces,
    nft_others,
    nft_release,
    nft_remove,
    nft_table,
)
from drld.capture.patterns import covers
from drld.capture.queue_hooks import Hook, Point, label
from drld.capture.spec import match_of
from drld.ebpf.cleaning import cleaning_up
from drld.ebpf.other_limiters import NO_DAEMON, running
from drld.errors import DatapathError
from drld.log_event import event
from drld.police.direction import Direction
from drld.spec import LimitSpec

log = logging.getLogger(__name__)

_COMMAND_TIMEOUT_S = 30
_PIPES = 5
"""Pipes that `subprocess` opens (input, output, errors, result of the start), and a spare."""

Run = Callable[[Sequence[str], str], str]
"""Runs a command with the text as its standard input; returns its standard output."""


def run(command: Sequence[str], stdin: str = "") -> str:
    """Run a firewall tool.

    Raises:
        DatapathError: the tool is missing, took longer than 30 s, or failed (with its output).
    """
    line = " ".join(command)
    try:
        _check_descriptors()
        done = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            # Comments of foreign rules may have any bytes.
            errors="surrogateescape",
            timeout=_COMMAND_TIMEOUT_S,
            check=False,
            env={**os.environ, "LC_ALL": "C", "PATH": _path()},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DatapathError(f"{line}: {error}") from error
    if done.returncode != 0:
        raise DatapathError(f"{line}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def _check_descriptors() -> None:
    """Check that a tool's pipes can be opened: CPython 3.11 leaks descriptors if only some can.

    Raises:
        OSError: too few descriptors are free.
    """
    opened: list[int] = []
    try:
        for _ in range(_PIPES):
            opened += os.pipe()
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _path() -> str:
    """PATH with the directories of system tools, which some services and shells leave out."""
    return os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"


class Firewall(ABC):
    """A tool that installs the rules of one limiter."""

    name: ClassVar[str]
    """The value of the configuration key `firewall`."""

    def __init__(self, limiter: str, run: Run = run) -> None:
        self._limiter = limiter
        self._run = run

    @abstractmethod
    def install(self, hooks: Sequence[Hook], queue: int) -> None:
        """Replace the limiter's rules by these, atomically for each address family.

        Raises:
            DatapathError: the tool refuses; the old rules stay.
        """

    @abstractmethod
    def complete(self, hooks: Sequence[Hook]) -> bool:
        """Whether all rules of these hooks are there: another program may have removed them.

        Raises:
            DatapathError: the tool refuses.
        """

    def release(self) -> None:
        """Send no more packets to the queue, without losing those that wait in it.

        Raises:
            DatapathError: the tool refuses.
        """
        self.remove()

    def others(self) -> list[tuple[str, Direction, str]]:
        """The rules of other limiters: interface or pattern, direction, and the limiter's label.

        Raises:
            DatapathError: the tool refuses.
        """
        return []

    @abstractmethod
    def remove(self) -> None:
        """Remove the limiter's rules, if there are any.

        Raises:
            DatapathError: the tool refuses.
        """


class NftFirewall(Firewall):
    """The rules of a limiter are in a table of its own."""

    name = "nft"

    def install(self, hooks: Sequence[Hook], queue: int) -> None:
        """Replace the table's rules in one transaction (`Firewall.install`)."""
        self._run(["nft", "-f", "-"], nft_install(self._limiter, hooks, queue))

    def complete(self, hooks: Sequence[Hook]) -> bool:
        """Whether the table has all rules (`Firewall.complete`)."""
        return self._has_table() and nft_complete(
            self._limiter,
            hooks,
            self._run(["nft", "list", "table", "inet", nft_table(self._limiter)], ""),
        )

    def release(self) -> None:
        """Remove the rules, and leave the chains.

        When a hook is unregistered, the kernel drops all packets that wait in any queue of the
        namespace. So the chains stay until no packet waits.
        """
        self._run(["nft", "-f", "-"], nft_release(self._limiter))

    def others(self) -> list[tuple[str, Direction, str]]:
        """The rules in the tables of other limiters (`Firewall.others`)."""
        return [
            (interface, direction, other)
            for table, other in nft_others(self._limiter, self._run(["nft", "list", "tables"], ""))
            for interface, direction in nft_interfaces(
                self._run(["nft", "list", "table", "inet", table], "")
            )
        ]

    def remove(self) -> None:
        """Remove the table if the kernel has it (`Firewall.remove`)."""
        if self._has_table():
            self._run(["nft", "-f", "-"], nft_remove(self._limiter))

    def _has_table(self) -> bool:
        tables = self._run(["nft", "list", "tables"], "").splitlines()
        return f"table inet {nft_table(self._limiter)}" in tables


class IptablesFirewall(Firewall):
    """The rules are in own chains in mangle, for IPv4 and, unless the kernel has none, IPv6."""

    name = "iptables"

    def install(self, hooks: Sequence[Hook], queue: int) -> None:
        """Replace the chains of each family; if one fails, restore those that were replaced."""
        with contextlib.ExitStack() as undo:
            for tool, family in self._tools():
                before = self._state(tool)
                undo.callback(self._put_back, tool, before)
                self._restore(tool, iptables_install(self._limiter, hooks, queue, family, before))
            undo.pop_all()

    def complete(self, hooks: Sequence[Hook]) -> bool:
        """Whether the chains of each family have all rules (`Firewall.complete`)."""
        return all(
            iptables_complete(self._limiter, hooks, family, self._state(tool))
            for tool, family in self._tools()
        )

    def remove(self) -> None:
        """Remove the chains of each family (`Firewall.remove`)."""
        for tool, family in self._tools():
            there = self._state(tool)
            self._restore(tool, iptables_install(self._limiter, (), 0, family, there))

    def others(self) -> list[tuple[str, Direction, str]]:
        """The rules in the chains of other limiters (`Firewall.others`)."""
        saved = (self._run([f"{tool}-save"], "") for tool, _ in self._tools())
        return [other for text in saved for other in iptables_others(self._limiter, text)]

    def _put_back(self, tool: str, before: Mapping[Point, ChainState]) -> None:
        with cleaning_up():
            self._restore(tool, iptables_put_back(self._limiter, before, self._state(tool)))

    def _state(self, tool: str) -> dict[Point, ChainState]:
        # No `-t mangle`: with the legacy tool that would load the table where it is not used.
        return iptables_state(self._limiter, self._run([f"{tool}-save"], ""))

    def _restore(self, tool: str, script: str) -> None:
        if script:
            self._run([f"{tool}-restore", "--noflush", "--wait", "5"], script)

    @staticmethod
    def _tools() -> list[tuple[str, int]]:
        tools = [("iptables", 4)]
        if Path("/proc/thread-self/net/if_inet6").exists():
            tools.append(("ip6tables", 6))
        return tools


class ManualFirewall(Firewall):
    """drld installs no rules: the log shows them, and the operator installs them."""

    name = "none"

    def install(self, hooks: Sequence[Hook], queue: int) -> None:
        """Log the rules as a warning."""
        log.warning(
            "firewall = none: no packet reaches queue %d until these rules, or similar ones, are"
            " installed:\n%s",
            queue,
            operator_rules(self._limiter, hooks, queue),
            extra=event("firewall.wanted", queue=queue),
        )

    def complete(self, hooks: Sequence[Hook]) -> bool:  # noqa: ARG002 -- the operator's rules
        """Leave the operator's rules to the operator."""
        return True

    def remove(self) -> None:
        """Leave the operator's rules to the operator."""


def operator_rules(limiter: str, hooks: Sequence[Hook], queue: int) -> str:
    """The rules in the languages of both tools, for an operator to install by hand."""
    nothing = dict.fromkeys(Point, ChainState())
    parts = [f"# nft -f -\n{nft_install(limiter, hooks, queue)}"]
    for tool, family in (("iptables", 4), ("ip6tables", 6)):
        script = iptables_install(limiter, hooks, queue, family, nothing)
        if script:
            parts.append(f"# or: {tool}-restore --noflush\n{script}")
    return "\n".join(parts)


def choose(firewall: str, limiter: str, run: Run = run) -> tuple[Firewall, str]:
    """The firewall that the configuration asks for, and the reason for the choice.

    `auto` chooses nft if the kernel accepts its queue statement, else iptables.

    Raises:
        DatapathError: `auto` finds neither.
    """
    for kind in (NftFirewall, IptablesFirewall, ManualFirewall):
        if kind.name == firewall:
            return kind(limiter, run), "as configured"
    probe = Hook("lo", Direction.IN, bypass=True, families=(4, 6))
    try:
        # -c: the kernel checks the rules, without committing them.
        run(["nft", "-c", "-f", "-"], nft_install("probe", [probe], 0))
    except DatapathError as error:
        refusal = " ".join(str(error).split())
        if shutil.which("iptables", path=_path()) is None:
            raise DatapathError(
                f"no firewall to queue packets with: {refusal}; no iptables"
            ) from None
        return IptablesFirewall(limiter, run), f"nft cannot queue here: {refusal}"
    return NftFirewall(limiter, run), "the kernel has nft's queue statement"


def others_on(
    limits: Iterable[LimitSpec], rules: Iterable[tuple[str, Direction, str]]
) -> Iterator[tuple[str, Direction, str]]:
    """The rules of other limiters on the interfaces of these limits, with words for the limiter.

    Args:
        limits: the limits of this limiter.
        rules: those of other limiters, as `Firewall.others` returns them.
    """
    ours = {(match_of(limit).interface, match_of(limit).direction) for limit in limits}
    alive = {label(name) for name in running()}
    for interface, direction, other in rules:
        if any(
            direction is way and (covers(name, interface) or covers(interface, name))
            for name, way in ours
        ):
            yield interface, direction, f"limiter {other}{'' if other in alive else NO_DAEMON}"


def remove_leftovers(chosen: Firewall, limiter: str, run: Run = run) -> None:
    """Remove the rules that a killed run of this limiter installed with another tool.

    Installing replaces the chosen tool's rules. A tool that does not work has left no rules.
    """
    if isinstance(chosen, ManualFirewall):
        return
    _remove_all_but(type(chosen), limiter, run)


def remove_rules(limiter: str, run: Run = run) -> None:
    """Remove the rules that a killed run of this limiter left, for a datapath without rules."""
    _remove_all_but(None, limiter, run)


def _remove_all_but(kept: type[Firewall] | None, limiter: str, run: Run) -> None:
    for other in (NftFirewall(limiter, run), IptablesFirewall(limiter, run)):
        if type(other) is not kept:
            with contextlib.suppress(DatapathError):
                other.remove()
