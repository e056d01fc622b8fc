"""The codec of COUNTS: the tokens that a limiter forwarded and dropped, or the question for them.

A question is as long as its answer, so that no answer amplifies a forged question
(docs/wire-format.md). `drld.fleet_rates` decides when a limiter asks.
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
    """Whether this is a question; its other fields are then 0."""
    counted_ns: int = 0
    """Time at which the totals were counted, ns of the sender's own clock."""
    forwarded: int = 0
    """Tokens forwarded since the sender's daemon started."""
    dropped: int = 0
    """Tokens dropped since then."""


class _CountsCodec(NumberedCodec[Counts]):
    def check_length_untrusted(self, length: int) -> None:
        if length != HEADER.size + COUNTS.size:
            raise WireError("length", f"no counts have {length} bytes")

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
            raise WireError("limit", "counts must have the id of a limit (got 0)")
        return counts


register(_CountsCodec(KIND))
