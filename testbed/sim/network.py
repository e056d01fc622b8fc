"""A simulated network under virtual time: delays, reorders, loses, repeats datagrams; seeded.

Its contents may be bytes or any values. The user passes the time (ns). A datagram waits at its
destination until `receive`, as in a socket's buffer:

    network: Network[bytes] = Network(seed=1, conditions=Conditions(delay_ns=20 * MS, loss=0.05))
    network.send("a", "b", b"...", now_ns)
    for source, datagram in network.receive("b", later_ns): ...
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Generic, TypeVar

MS = 1_000_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Conditions:
    """The treatment of datagrams; the same on every path."""

    delay_ns: int = 20 * MS
    """One-way delay, ns."""
    jitter_ns: int = 0
    """Largest uniform extra delay, ns; more than the spacing of datagrams reorders them."""
    loss: float = 0.0
    """Probability that a datagram is lost, independent for each."""
    duplicate: float = 0.0
    """Probability that a second copy follows, with a fate of its own."""


class Network(Generic[T]):
    """Carries datagrams between named hosts."""

    def __init__(self, seed: int, conditions: Conditions) -> None:
        self.conditions = conditions
        """May be replaced at any time; datagrams under way keep their fate."""
        self.cut: set[tuple[str, str]] = set()
        """(source, destination) paths on which all datagrams are lost."""
        self.sent = 0
        self._rng = Random(seed)
        self._order = itertools.count()
        self._under_way: defaultdict[str, list[tuple[int, int, str, T]]] = defaultdict(list)

    def send(self, source: str, destination: str, datagram: T, now_ns: int) -> None:
        """Send one datagram."""
        self.sent += 1
        if (source, destination) in self.cut:
            return
        conditions, rng = self.conditions, self._rng
        for _ in range(2 if rng.random() < conditions.duplicate else 1):
            if rng.random() < conditions.loss:
                continue
            at_ns = now_ns + conditions.delay_ns + round(rng.random() * conditions.jitter_ns)
            heapq.heappush(
                self._under_way[destination], (at_ns, next(self._order), source, datagram)
            )

    def receive(self, destination: str, now_ns: int) -> Iterator[tuple[str, T]]:
        """The datagrams that have arrived by now, in the order of arrival."""
        arriving = self._under_way[destination]
        while arriving and arriving[0][0] <= now_ns:
            _, _, source, datagram = heapq.heappop(arriving)
            yield source, datagram

    def next_ns(self, destination: str) -> int | None:
        """When the next datagram under way arrives; None: there is none."""
        arriving = self._under_way[destination]
        return arriving[0][0] if arriving else None

    def partition(self, one: Iterable[str], other: Iterable[str]) -> None:
        """Cut all paths between two groups, both ways."""
        for a, b in itertools.product(one, other):
            self.cut |= {(a, b), (b, a)}

    def heal(self) -> None:
        """Open all paths."""
        self.cut.clear()
