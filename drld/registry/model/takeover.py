"""Taking a configuration over as far as the host goes along.

A limit of the fleet may ask for what this host cannot do: an interface that it does not have, say.
It must keep neither the other limits nor, what matters more, the members from coming into force: a
limiter that does not see the fleet grow enforces too large a share.

Limits that a refusal names go at once. Where it names none, the limits that come or change are
tried in halves, then those of which one is refused in halves again: a bad one of n takes about
2 log2 n tries, half of which put something into force.

A refusal may be about a limit that is in force: its interface is gone. Then no limit changes here
until it is back, but members do: whoever joins waits for those that have not counted him.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from drld.errors import ConfigError, DatapathError
from drld.spec import LimiterSpec, LimitSpec

MAX_TRIES = 64
"""How often limits that come or change are tried; each try may attach all limits."""


async def take_over(
    old: LimiterSpec, new: LimiterSpec, reconfigure: Callable[[LimiterSpec], Awaitable[None]]
) -> tuple[LimiterSpec, Mapping[int, str]]:
    """Put `new` into force; return what is in force then, and why some limits are as in `old`.

    Raises:
        ConfigError, DatapathError: not even the fleet could be taken over; `old` stays.
    """
    if new == old:
        return old, {}
    try:
        await reconfigure(new)
    except (ConfigError, DatapathError):
        pass
    else:
        return new, {}
    return await _Steps(new, old, reconfigure).taken()


class _Steps:
    """From one configuration to as much of another as the host takes."""

    def __init__(
        self,
        new: LimiterSpec,
        current: LimiterSpec,
        reconfigure: Callable[[LimiterSpec], Awaitable[None]],
    ) -> None:
        self._new = new
        self._current = current
        self._reconfigure = reconfigure
        self._refused: dict[int, str] = {}
        self._tries = 0

    async def taken(self) -> tuple[LimiterSpec, Mapping[int, str]]:
        """The fleet first, then what goes, then what comes or changes."""
        old = self._current.limits
        wanted = {limit.id: limit for limit in self._new.limits}
        await self._step(old)
        try:
            await self._step(tuple(limit for limit in old if limit.id in wanted))
        except DatapathError as error:
            gone = {limit.id for limit in old} - wanted.keys()
            self._refused.update((limit_id, f"not removed: {_line(error)}") for limit_id in gone)
        there = {limit.id: limit for limit in old}
        await self._add([limit for limit in wanted.values() if there.get(limit.id) != limit])
        return self._current, self._refused

    async def _step(self, limits: Sequence[LimitSpec]) -> None:
        step = replace(self._new, limits=tuple(limits))
        if step != self._current:
            await self._reconfigure(step)
            self._current = step

    async def _add(self, some: Sequence[LimitSpec]) -> None:
        """Have these come into force beside those that are, or as many of them as can."""
        if not some:
            return
        if self._tries == MAX_TRIES:
            reason = f"not tried: others are refused, after {MAX_TRIES} tries"
            self._refused.update((limit.id, reason) for limit in some)
            return
        self._tries += 1
        limits = {limit.id: limit for limit in (*self._current.limits, *some)}
        try:
            await self._step(tuple(limits.values()))
        except (ConfigError, DatapathError) as error:
            named = error.limits if isinstance(error, DatapathError) else {}
            about = {limit.id: named[limit.id] for limit in some if limit.id in named}
            if not about and (named or len(some) == 1):
                # If it names none of these it is about one in force, and no others will do.
                about = {limit.id: str(error) for limit in some}
            if about:
                self._refused.update((key, _line(why)) for key, why in about.items())
                await self._add([limit for limit in some if limit.id not in about])
                return
            half = len(some) // 2
            await self._add(some[:half])
            await self._add(some[half:])


def _line(why: object) -> str:
    return " ".join(str(why).split())
