"""Puts a configuration into force as far as the host can.

The host may refuse a limit of the fleet, such as one with an interface that it does not have. That
must not keep the other limits out of force. Above all it must not keep members out: a limiter that
does not see the fleet grow enforces too large a share.

Limits that a refusal names are left out at once. If it names none, the new and changed limits are
tried in halves, and a refused half in halves again. One bad limit of n takes about 2 log2 n tries,
half of which succeed.

A refusal may concern a limit that is in force: its interface is gone. Then no limit changes until
the interface is back. Members do change, as a joining limiter waits until every member counts it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from drld.errors import ConfigError, DatapathError
from drld.spec import LimiterSpec, LimitSpec

MAX_TRIES = 64
"""Most tries of new and changed limits; each may attach all limits."""


async def take_over(
    old: LimiterSpec, new: LimiterSpec, reconfigure: Callable[[LimiterSpec], Awaitable[None]]
) -> tuple[LimiterSpec, Mapping[int, str]]:
    """Put `new` into force as far as possible.

    Returns:
        The configuration in force, and reasons by the ids of limits that stay as in `old`.

    Raises:
        ConfigError, DatapathError: not even the members could change; `old` stays.
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
    """The steps from one configuration to another, as far as the host accepts them."""

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
        """Change the members first, then remove limits, then add and change limits."""
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
        """Add or change these limits, or as many of them as the host accepts."""
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
                # If it names none of these, it concerns a limit in force, and all tries will fail.
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
