"""The update of push-sum, and its codec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drld.gossip.wire.layout import Word
from drld.gossip.wire.message import register
from drld.gossip.wire.update_codec import UpdateCodec
from drld.model import HEARTBEAT, Quantity, Update
from drld.record import record

EPOCH_MODULUS = 16
"""Epochs on the wire are numbers below this one, in serial arithmetic."""
MAX_WEIGHT = 2.0**20
"""Beyond the weight of any fleet. A limiter begins with a weight of 1."""


@record(frozen=True, slots=True)
class PushsumUpdate(Update):
    """An update in push-sum: the running sums of its link (`fabrics.pushsum`).

    Its value is the sum of all that the sender has given the receiver of its value in the epoch,
    and may be negative.
    """

    epoch: int
    """The epoch of value and weight, below `EPOCH_MODULUS`."""
    weight: float
    """The same sum of the sender's weight; 0 in a heartbeat, and to a peer that the sender does
    not hear."""


class _PushsumCodec(UpdateCodec[PushsumUpdate]):
    def write(self, update: PushsumUpdate) -> tuple[tuple[int, ...], float]:
        return (update.epoch,), update.weight

    def read_untrusted(
        self, common: tuple[int, int, Quantity, bool, float], flags: Mapping[str, int], last: Any
    ) -> PushsumUpdate:
        return PushsumUpdate(*common, epoch=flags["epoch"], weight=last)

    def problem(self, update: PushsumUpdate) -> tuple[str, str] | None:
        if not 0 <= update.weight <= MAX_WEIGHT:
            return "weight", f"must be from 0 to {MAX_WEIGHT:g} (got {update.weight})"
        carries = update.hears and update.limit_id != HEARTBEAT
        if update.weight and not carries:
            return "weight", f"must be 0 in a heartbeat, or without `hears` (got {update.weight})"
        return None


PUSHSUM = _PushsumCodec(9, (("epoch", 4),), Word("f", (("weight", 32),)))
"""Kind 0 was that of updates with single shares; a daemon of that time refuses this one."""
register(PUSHSUM)
