"""What a limiter tells a peer of a limit in push-sum, and how it is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drld.gossip.wire.layout import Word
from drld.gossip.wire.message import register
from drld.gossip.wire.update_codec import UpdateCodec
from drld.model import HEARTBEAT, Quantity, Update
from drld.record import record

EPOCH_MODULUS = 16
MAX_WEIGHT = 2.0**20
"""In units of the weight one limiter begins with: beyond the weight of any fleet."""


@record(frozen=True, slots=True)
class PushsumUpdate(Update):
    """An update in push-sum; its value is a part of the sender's, and may be negative."""

    epoch: int
    """Of the pair: 0 to 15, in serial arithmetic."""
    weight: float
    """Part of the sender's weight. A heartbeat has none, nor does an update to a peer that the
    sender does not hear."""


class _PushsumCodec(UpdateCodec[PushsumUpdate]):
    def write(self, update: PushsumUpdate) -> Mapping[str, int | float]:
        return {"epoch": update.epoch, "weight": update.weight}

    def read_untrusted(
        self, common: tuple[int, int, Quantity, bool, float], fields: Mapping[str, Any]
    ) -> PushsumUpdate:
        return PushsumUpdate(*common, epoch=fields["epoch"], weight=fields["weight"])

    def problem(self, update: PushsumUpdate) -> tuple[str, str] | None:
        if not 0 <= update.weight <= MAX_WEIGHT:
            return "weight", f"{update.weight} is not from 0 to {MAX_WEIGHT:g}"
        carries = update.hears and update.limit_id != HEARTBEAT
        if carries != (update.weight > 0):
            return "weight", f"{update.weight} is 0, or of a heartbeat, or to a peer not heard"
        return None


PUSHSUM = _PushsumCodec(0, (("epoch", 4),), Word("f", (("weight", 32),)))
register(PUSHSUM)
