"""Control messages off the wire: valid ones, or a `WireError` with a known reason."""

from __future__ import annotations

from drld.gossip.wire import counts_codec
from drld.gossip.wire.control_codec import (
    MAX_CONTROL_SIZE,
    MAX_RUMOURS,
    NO_END,
    Control,
    End,
    Hello,
    Kind,
    Rumour,
    State,
)
from drld.gossip.wire.counts_codec import Counts
from drld.gossip.wire.message import LONG_TAG_SIZE, codec_of, head_untrusted, number_of
from tests.fuzz.targets.base import Target, unless_refused
from tests.wire import encode_control

REASONS = {"length", "version", "kind", "reserved", "rumour", "limit"}
BODIES: dict[int, type] = {
    **dict.fromkeys(Kind, Control),
    Kind.HELLO: Hello,
    counts_codec.KIND: Counts,
}
"""The kinds that every limiter reads; planes have others."""


def check(datagram: bytes) -> bool:
    """Decode; what is accepted is exactly what its encoding says."""
    head = unless_refused(lambda: head_untrusted(datagram), REASONS)
    if head is None:
        return False
    codec, key_id = head
    if codec.kind not in BODIES:
        return False
    content = datagram[:-LONG_TAG_SIZE]
    message = unless_refused(lambda: codec.decode_untrusted(content), REASONS)
    if message is None:
        return False
    assert isinstance(message, BODIES[codec.kind])
    assert len(datagram) <= MAX_CONTROL_SIZE
    assert codec.encode(message, key_id, number_of(content)) == content
    return True


def seeds() -> list[bytes]:
    rumours = tuple(Rumour(n, 2**64 - 1, n, State(n % len(State))) for n in range(MAX_RUMOURS))
    controls = [
        Control(kind, 1, 2, 3, some)
        for kind in (Kind.PROBE, Kind.ACK, Kind.PROBE_REQUEST)
        for some in ((), rumours[:1], rumours)
    ]
    messages: list[tuple[Hello | Control, int]] = [
        (Hello(End(1, 1), NO_END, 5, 0), 0),
        (Hello(End(2**64 - 1, 2**32 - 1), End(7, 8), 9, 10), 0),
        *((control, 2**31) for control in controls),
    ]
    counts = [Counts(1, asks=True), Counts(65_535, False, *[2**64 - 1] * 3)]
    codec = codec_of(counts_codec.KIND)
    return [
        *(
            encode_control(message, key_id % 4, number) + bytes(LONG_TAG_SIZE)
            for key_id, (message, number) in enumerate(messages)
        ),
        *(codec.encode(it, 3, 9) + bytes(LONG_TAG_SIZE) for it in counts),
    ]


TARGET = Target(check, seeds, max_bytes=MAX_CONTROL_SIZE + 1)
