"""What an acknowledgement says, when it is held against the scoreboard: Linux's
`tcp_sacktag_write_queue` and `tcp_clean_rtx_queue`.
"""

from __future__ import annotations

from typing import NamedTuple

from testbed.tcp.receiver import Ack
from testbed.tcp.scoreboard import Scoreboard


class Digest(NamedTuple):
    """What is new."""

    advanced: bool
    """Something was acknowledged by number."""
    sacked: bool
    """Something was acknowledged selectively."""
    original: bool
    """Something of the present episode, that was sent only once, has come."""
    sample_sent_ns: int | None
    """When what the round trip is measured by was sent."""
    earlier_than_head: bool
    """What was acknowledged selectively was sent before the first segment was (again)."""


def digest(board: Scoreboard, ack: Ack, high: int, now_ns: int) -> Digest:
    """Take an acknowledgement into the scoreboard; the present episode ends before `high`."""
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
        # Karn: which copy it was only the timestamps tell.
        sent_ns = sack_sent_ns if sack_sent_ns is not None else resent_ns
    elif sent_ns is None:
        sent_ns = sack_sent_ns
    head = board.segments.get(board.una)
    earlier = head is not None and sack_sent_ns is not None and sack_sent_ns < head.sent_ns
    return Digest(advanced, sacked, original, sent_ns, earlier)


def _take_blocks(
    board: Scoreboard, ack: Ack, high: int, now_ns: int
) -> tuple[bool, int | None, bool]:
    """Mark what is selectively acknowledged.

    Returns:
        Whether anything was; when the first such that was sent only once was sent; and whether one
        of those belongs to the present episode.
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
