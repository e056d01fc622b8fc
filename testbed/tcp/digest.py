"""The news of an acknowledgement for the scoreboard: Linux's
`tcp_sacktag_write_queue` and `tcp_clean_rtx_queue`.
"""

from __future__ import annotations

from typing import NamedTuple

from testbed.tcp.receiver import Ack
from testbed.tcp.scoreboard import Scoreboard


class Digest(NamedTuple):
    """The news of one acknowledgement."""

    advanced: bool
    """Whether a segment was acknowledged by number."""
    sacked: bool
    """Whether a segment was acknowledged selectively."""
    original: bool
    """Whether a segment of the present episode that was sent only once has arrived."""
    sample_sent_ns: int | None
    """Sending time of the segment that measures the round trip."""
    earlier_than_head: bool
    """Whether a selectively acknowledged segment was sent before the first segment was (again)."""


def digest(board: Scoreboard, ack: Ack, high: int, now_ns: int) -> Digest:
    """Apply an acknowledgement to the scoreboard; the present episode ends before `high`."""
    sacked, sack_sent_ns, original = _take_blocks(board, ack, high, now_ns)
    advanced = ack.next_ > board.una
    sent_ns = None
    resent_ns = None
    while board.una < ack.next_:
        segment = board.acknowledge_first(now_ns)
        if segment.ever_resent:
            resent_ns = segment.sent_ns if resent_ns is None else resent_ns
        elif not segment.sacked:
            sent_ns = segment.sent_ns if sent_ns is None else sent_ns
            original |= segment.number < high
    if resent_ns is not None:
        # Karn: only timestamps tell which copy was acknowledged.
        sent_ns = sack_sent_ns if sack_sent_ns is not None else resent_ns
    elif sent_ns is None:
        sent_ns = sack_sent_ns
    head = board.segments.get(board.una)
    earlier = head is not None and sack_sent_ns is not None and sack_sent_ns < head.sent_ns
    return Digest(advanced, sacked, original, sent_ns, earlier)


def _take_blocks(
    board: Scoreboard, ack: Ack, high: int, now_ns: int
) -> tuple[bool, int | None, bool]:
    """Mark selectively acknowledged segments.

    Returns:
        Whether there were any; the sending time of the first one that was sent only once; and
        whether one of those belongs to the present episode.
    """
    any_new, original = False, False
    sent_ns = None
    for first, end in ack.blocks:
        for number in range(max(first, board.una), end):
            segment = board.segments[number]
            if segment.sacked:
                continue
            any_new = True
            if not segment.ever_resent:
                sent_ns = segment.sent_ns if sent_ns is None else sent_ns
                original |= number < high
            board.sack(segment, now_ns)
    return any_new, sent_ns, original
