"""The memory of a connection: when drld reads its client."""

from __future__ import annotations

from drld.messages.front.memory import MOST_QUEUED, Memory, Share


def paused(share: Share, up: int, begun: int = 0, queued: int = 0) -> bool:
    share.decide(up, begun, queued)
    return share.paused


def test_a_client_is_paused_above_its_part_and_read_again_at_half_of_it() -> None:
    memory = Memory(1000)
    share, other = Share(memory), Share(memory)
    assert share.count(400)
    assert not share.count(400)
    for held, expected in ((400, False), (501, True), (400, True), (333, False)):
        share.count(held)
        assert (memory.part, paused(share, held)) == (1000 - held, expected), held
    other.count(700)
    assert paused(share, 333), "the others leave it nothing"
    share.count(0)
    assert not paused(share, 0)
    assert memory.held == 700


def test_output_that_the_broker_does_not_take_is_bounded() -> None:
    share = Share(Memory(1 << 30))
    for queued, expected in (
        *((MOST_QUEUED, False), (MOST_QUEUED + 1, True)),
        *((MOST_QUEUED // 2 + 1, True), (MOST_QUEUED // 2, False)),
    ):
        assert paused(share, queued, queued=queued) is expected, queued


def test_a_frame_that_has_begun_is_read_on_while_hold_is_not_used_up() -> None:
    memory = Memory(1000)
    share = Share(memory)
    share.count(999)
    assert not paused(share, 0, begun=999)
    share.count(1000)
    assert paused(share, 0, begun=1000)
