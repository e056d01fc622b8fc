"""The hooks of the host that limits name: an interface or a pattern, and a direction.

A pattern stands for every interface of a matching name (`drld.capture.patterns`), so its hooks
change as interfaces come and go.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from drld.capture.patterns import followed, is_pattern
from drld.capture.spec import match_of
from drld.ebpf import links
from drld.ebpf.hook import Hook
from drld.log_event import event
from drld.spec import LimitSpec

log = logging.getLogger(__name__)

Keys: TypeAlias = tuple[Hook, ...]
"""Hooks with the names and patterns of limits, which stand for a hook of the host."""

MAX_FOLLOWED = 512
"""Hooks of a limiter with patterns: a look takes 50 us each, once a second, in all half a tick."""


class WantedHooks:
    """Finds the hooks that names and patterns stand for, and remembers its remarks in the log."""

    def __init__(self) -> None:
        self._remarked: set[str] = set()
        """Interfaces and patterns with a remark in the log."""

    def of(self, keys: Keys) -> dict[Hook, Keys]:
        """The hooks of these names and patterns now, each with those that stand for it.

        Raises:
            DatapathError: the kernel does not list the interfaces.
        """
        wanted: dict[Hook, Keys] = {}
        patterns = [key for key in keys if is_pattern(key.interface)]
        for key in keys:
            if key not in patterns:
                wanted[key] = (key,)
        below = links.below() if patterns else {}
        for key in patterns:
            found = followed(key.interface, below)
            room = max(MAX_FOLLOWED - len(wanted), 0)
            self._remark(key, found.twice, len(found.names) - room)
            for name in found.names[:room]:
                hook = Hook(name, key.direction)
                wanted[hook] = (*wanted.get(hook, ()), key)
        return wanted

    def _remark(self, key: Hook, twice: Sequence[str], beyond: int) -> None:
        """Log once what a pattern cannot do well."""
        if beyond > 0 and key.interface not in self._remarked:
            self._remarked.add(key.interface)
            log.error(
                "%s: not limited: %d interfaces beyond the first %d",
                *(key.interface, beyond, MAX_FOLLOWED),
                extra=event(
                    "interface.unlimited", key.interface, interface=key.interface, count=beyond
                ),
            )
        for name in twice:
            if name not in self._remarked:
                self._remarked.add(name)
                log.warning(
                    "%s: counts packets again that cross an interface below it: "
                    "match.%s = %s stands for both",
                    *(name, key.direction.value, key.interface),
                    extra=event("interface.counted_twice", name, interface=name),
                )
        if len(self._remarked) > MAX_FOLLOWED:  # names of containers come and go
            self._remarked = set(twice)


def keys_of(limits: Iterable[LimitSpec]) -> Keys:
    """The names and patterns of limits, each once."""
    return tuple(dict.fromkeys(map(hook_of, limits)))


def hook_of(limit: LimitSpec) -> Hook:
    """The hook that a limit names; with a pattern, it stands for any number of hooks."""
    match = match_of(limit)
    return Hook(match.interface, match.direction)
