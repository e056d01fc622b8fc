"""The awake limits of an engine: those that it has work for.

Once a gossip interval the engine *looks*: it asks the datapaths which sleeping limits had traffic.

Most awake limits are ticked whenever they are due. Where no record depends on a limit's ticks
(`Limiter.only_measures`), the limits take turns: each look ticks at most `IN_TURN` of them. So ten
thousand limits in use leave time for their traffic. Operators then see each as it was up to 50 s
ago, and peers hear of it as rarely. One that operators watch is ticked whenever it is due.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from itertools import islice

from drld.managed_limit import ManagedLimit

IN_TURN = 10
"""Limits that only measure, and that one look ticks. With many limits, one takes some 60 us, mostly
for memory that is in no cache. So all take a hundredth of the 50 ms between two looks."""


class AwakeLimits:
    """The awake limits; the engine ticks them."""

    def __init__(self) -> None:
        self.prompt: dict[int, ManagedLimit] = {}
        """The limits that are ticked when they are due, by id."""
        self.asleep: dict[int, None] = {}
        """The ids of all other limits. Looks ask for the traffic of these alone."""
        self._in_turn: dict[int, ManagedLimit] = {}
        """The limits that only measure; the first one has waited longest for its tick."""

    def have(self, limits: Mapping[int, ManagedLimit], asleep: Container[int]) -> None:
        """Have these limits and no others: those `asleep` stay as they are, the rest is awake."""
        self.asleep = {key: None for key in self.asleep if key in limits and key in asleep}
        self._in_turn = {key: limits[key] for key in self._in_turn if key in limits}
        others = limits.keys() - self.asleep.keys() - self._in_turn.keys()
        self.prompt = {key: limits[key] for key in limits if key in others}

    def add(self, managed: ManagedLimit) -> bool:
        """Wake a limit; return whether it slept."""
        limit_id = managed.limiter.policy.id
        if limit_id not in self.asleep:
            return False
        del self.asleep[limit_id]
        queue = self._in_turn if managed.limiter.only_measures else self.prompt
        queue[limit_id] = managed
        return True

    def hurry(self, limit_id: int) -> None:
        """Have an awake limit that only measures wait for no turn: it is ticked when it is due."""
        if (managed := self._in_turn.pop(limit_id, None)) is not None:
            self.prompt[limit_id] = managed

    def take_turn(self) -> Sequence[ManagedLimit]:
        """Take out the limits whose turn it is; `sort` puts them back."""
        turn = [*islice(self._in_turn.values(), IN_TURN)]
        for managed in turn:
            del self._in_turn[managed.limiter.policy.id]
        return turn

    def sort(self, turn: Sequence[ManagedLimit]) -> None:
        """After the ticks, take out the quiescent limits; those that only measure take turns."""
        rest = [
            limit_id
            for limit_id, managed in self.prompt.items()
            if not managed.pending and (managed.limiter.only_measures or managed.limiter.quiescent)
        ]
        for managed in (*turn, *map(self.prompt.pop, rest)):
            limit_id = managed.limiter.policy.id
            if managed.pending or not managed.limiter.quiescent:
                self._in_turn[limit_id] = managed
            else:
                self.asleep[limit_id] = None
