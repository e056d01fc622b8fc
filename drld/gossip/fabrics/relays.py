"""The sums of limits that this limiter does not have, which it passes on in a tree and in push-sum.

Theory of operation. In a mesh, a limiter without a limit is one without demand. A tree's sums cross
the limiters between their ends. If one of them passed nothing on, each part of the tree would
divide the whole limit by its own demand alone. In push-sum, it would take mass and give none. So
such a limiter takes part with a value of zero. It has no state of a limit that no limiter has
demand for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from drld.gossip.fabrics.base import Fabric
from drld.gossip.fabrics.membership import Membership
from drld.gossip.wire.sequence import Refusal
from drld.model import Quantity, Update

MOST_RELAYED = 10_000
"""The most limits and quantities that are passed on: a bound on memory, of about 1 kB each."""


class Relays:
    """The limits that a limiter passes on and does not have."""

    def __init__(self, kind: type[Fabric[Any]], membership: Membership) -> None:
        self.membership = membership
        self._kind = kind
        self._fabrics: dict[tuple[int, Quantity], Fabric[Any]] = {}

    def __len__(self) -> int:
        """The number of limits, or of their quantities, that are passed on."""
        return len(self._fabrics)

    def receive(self, peer: str, update: Update, now_ns: int) -> None:
        """Receive an update of a limit that this limiter does not have."""
        key = update.limit_id, update.quantity
        fabric = self._fabrics.get(key)
        room = len(self._fabrics) < MOST_RELAYED
        if fabric is None and self._kind.passes_on and update.value and room:
            fabric = self._fabrics[key] = self._kind(
                membership=self.membership, limit_id=update.limit_id, quantity=update.quantity
            )
        if fabric is not None:
            fabric.receive(peer, update, now_ns)
            return
        numbers = self.membership.numbering.of(peer, update.limit_id)
        judged = numbers.accept(update.sequence, self.membership.round(now_ns))
        if not isinstance(judged, Refusal):
            self.membership.take(peer, update, now_ns)

    def speaking(
        self, now_ns: int, *, due: bool
    ) -> list[Callable[[Sequence[str], int], Sequence[tuple[str, Update]]]]:
        """What to publish: in a round that is `due` all limits, else those with pressing news."""
        if due:
            for key, fabric in list(self._fabrics.items()):
                fabric.view(now_ns)
                if fabric.quiet:
                    del self._fabrics[key]
        return [
            partial(fabric.publish, 0.0)
            for fabric in self._fabrics.values()
            if due or fabric.pressing(0.0, now_ns)
        ]

    def leave_out(self, limits: Collection[int]) -> None:
        """Forget the limits with these ids: this limiter has them now."""
        self._fabrics = {key: it for key, it in self._fabrics.items() if key[0] not in limits}

    def set_peers(self) -> None:
        """Take over the membership's peers after a reload."""
        for fabric in self._fabrics.values():
            fabric.set_peers()
