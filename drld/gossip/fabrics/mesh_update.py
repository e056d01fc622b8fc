"""The update of a mesh, and its codec."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from drld.errors import WireError
from drld.gossip.wire.layout import Word
from drld.gossip.wire.message import register
from drld.gossip.wire.update_codec import MAX_VALUE, UpdateCodec
from drld.model import Quantity, Update
from drld.record import record


@record(frozen=True, slots=True)
class MeshUpdate(Update):
    """An update in a mesh. Its value is the sender's own, at least 0."""

    whole: bool
    """Whether the sender is connected to all its peers."""
    rest: float | None
    """The rest: the demand that the sender believes all limiters but the receiver to have, in the
    unit of the value. None: the receiver uses its own sum."""


class _MeshCodec(UpdateCodec[MeshUpdate]):
    def write(self, update: MeshUpdate) -> tuple[tuple[int, ...], float]:
        rest = update.rest
        return (update.whole, rest is not None), 0.0 if rest is None else rest

    def read_untrusted(
        self, common: tuple[int, int, Quantity, bool, float], flags: Mapping[str, int], last: Any
    ) -> MeshUpdate:
        rest: float = last
        told = flags["rest_told"] == 1
        if not (told or (rest == 0 and math.copysign(1, rest) > 0)):
            raise WireError("reserved", "must be 0 if the update has no rest")
        return MeshUpdate(*common, flags["whole"] == 1, rest if told else None)

    def problem(self, update: MeshUpdate) -> tuple[str, str] | None:
        if update.value < 0:
            return "value", f"must not be negative (got {update.value})"
        if update.rest is not None and not 0 <= update.rest <= MAX_VALUE:
            return "rest", f"must be from 0 to {MAX_VALUE:g} (got {update.rest})"
        return None


MESH = _MeshCodec(
    5, (("whole", 1), ("rest_told", 1), ("second", 1), ("reserved", 1)), Word("f", (("rest", 32),))
)
register(MESH)
