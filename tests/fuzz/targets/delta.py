"""Deltas of replicated buckets off the wire: valid ones, or a `WireError` with a known reason."""

from __future__ import annotations

from drld.gossip.wire.message import HEADER, MAX_CONTENT
from drld.requests.buckets.counter import CounterDelta
from drld.requests.buckets.delta_codec import KIND, DeltaCodec, Form, Part, of_sender
from drld.requests.buckets.ledger import Ledger
from drld.requests.buckets.ledger_cell import Cell
from drld.requests.buckets.policy import Policy
from drld.requests.buckets.queue import Element
from tests.fuzz.targets.base import Target, unless_refused

CODEC = DeltaCodec(KIND)
NOW_NS = 10**15


def check(content: bytes) -> bool:
    """An accepted delta encodes to the same bytes, and a bucket takes it."""
    part = unless_refused(lambda: CODEC.decode_untrusted(content), {"length", "reserved", "value"})
    if part is None:
        return False
    encoded = CODEC.encode(part, content[1] >> 6, HEADER.read(content)["number"])
    assert encoded[1:] == content[1:]
    if part.form is Form.LEDGER:
        bucket = Ledger(Policy(100, 1), 1, 10**8, 10**9)
        for _, delta in of_sender(part, 2):
            bucket.merge(delta, NOW_NS)
            bucket.merge(delta, NOW_NS)
        assert bucket.level(NOW_NS) >= 0
        assert bucket.entries <= MAX_CONTENT
    return True


_DELTAS = {
    Form.COUNTER: CounterDelta(((1, 5), (2, 7)), -3, 9),
    Form.QUEUE: (Element((1, 0), 5), Element((2**48 - 1, 65535), 2**64 - 1)),
    Form.LEDGER: (Cell(-1, 65535, 1, 0), Cell(2**32 - 1, 1, 2**32 - 1, 2**32 - 1)),
}
PARTS = [
    Part(1, form, received, keys)
    for form, delta in _DELTAS.items()
    for received in ((), (1, 2**32 - 1))
    for keys in ((), ((7, delta),), ((2**64 - 1, delta), (7, delta)))
]


def seeds() -> list[bytes]:
    """Parts of each form, empty ones and full ones."""
    return [CODEC.encode(part, 1, 2) for part in PARTS]


TARGET = Target(check, seeds, max_bytes=MAX_CONTENT + 1)
