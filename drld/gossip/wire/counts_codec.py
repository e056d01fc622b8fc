"""The codec of COUNTS: what a limiter has forwarded of a limit, or the question for it.

A question is as long as its answer, so that nobody is answered with more than was sent
(docs/wire-format.md). `drld.fleet_rates` says who asks, and when.
"""

from __future__ import annotations

from dataclasses import dataclass

from drld.errors import WireError
from drld.gossip.wire.layout import Table, Word
from drld.gossip.wire.message import HEADER, NumberedCodec, register
from drld.model import HEARTBEAT

KIND = 7
COUNTS = Table(
    Word("H", (("limit_id", 16),)),
    Word("B", (("asks", 1), ("reserved", 7))),
    Word("B", (("unused", 8),)),
    Word("Q", (("counted_ns", 64),)),
    Word("Q", (("forwarded", 64),)),
    Word("Q", (("dropped", 64),)),
)


@dataclass(frozen=True, slots=True)
class Counts:
    """Totals of one limit at one limiter, or the question for them."""

    limit_id: int
    asks: bool = False
    """It is a question: all that follows is 0."""
    counted_ns: int = 0
    """When the totals were counted, ns of the sender's own clock."""
    forwarded: int = 0
    """Tokens since the sender's daemon started, as the next."""
    dropped: int = 0


class _CountsCodec(NumberedCodec[Counts]):
    def check_length_untrusted(self, length: int) -> None:
        if length != HEADER.size + COUNTS.size:
            raise WireError("length", f"{length} bytes are no counts")

    def pack(self, body: Counts) -> bytes:
        return COUNTS.pack(
            {
                "limit_id": body.limit_id,
                "asks": int(body.asks),
                "reserved": 0,
                "unused": 0,
                "counted_ns": body.counted_ns,
                "forwarded": body.forwarded,
                "dropped": body.dropped,
            }
        )

    def unpack_untrusted(self, data: bytes) -> Counts:
        fields = COUNTS.read(data)
        counts = Counts(
            fields["limit_id"],
            fields["asks"] == 1,
            fields["counted_ns"],
            fields["forwarded"],
            fields["dropped"],
        )
        told = counts.counted_ns or counts.forwarded or counts.dropped
        if fields["reserved"] or fields["unused"] or (counts.asks and told):
            raise WireError("reserved", "bits that must be zero are not")
        if counts.limit_id == HEARTBEAT:
            raise WireError("limit", "counts are of a limit")
        return counts


register(_CountsCodec(KIND))
