"""Control messages off the wire: valid ones, or a `WireError` with a known reason."""

from __future__ import annotations

from drld.gossip.wire.control_codec import (
    CONTROL_TAG_SIZE,
    MAX_CONTROL_SIZE,
    MAX_RUMOURS,
    NOBODY,
    Control,
    End,
    Hello,
    Kind,
    Rumour,
    State,
    decode_control_untrusted,
    encode_control,
)
from tests.fuzz.targets.base import Target, unless_refused

REASONS = {"length", "version", "kind", "reserved", "rumour"}


def check(datagram: bytes) -> bool:
    """Decode; what is accepted is exactly what its encoding says."""
    decoded = unless_refused(lambda: decode_control_untrusted(datagram), REASONS)
    if decoded is None:
        return False
    message, number = decoded
    assert len(datagram) <= MAX_CONTROL_SIZE
    key_id = datagram[1] >> 6
    assert encode_control(message, key_id, number) == datagram[:-CONTROL_TAG_SIZE]
    return True


def seeds() -> list[bytes]:
    rumours = tuple(Rumour(n, 2**64 - 1, n, State(n % len(State))) for n in range(MAX_RUMOURS))
    controls = [
        Control(kind, 1, 2, 3, some)
        for kind in (Kind.PROBE, Kind.ACK, Kind.PROBE_REQUEST)
        for some in ((), rumours[:1], rumours)
    ]
    messages: list[tuple[Hello | Control, int]] = [
        (Hello(End(1, 1), NOBODY, 5, 0), 0),
        (Hello(End(2**64 - 1, 2**32 - 1), End(7, 8), 9, 10), 0),
        *((control, 2**31) for control in controls),
    ]
    return [
        encode_control(message, key_id % 4, number) + bytes(CONTROL_TAG_SIZE)
        for key_id, (message, number) in enumerate(messages)
    ]


TARGET = Target(check, seeds, max_bytes=MAX_CONTROL_SIZE + 1)
