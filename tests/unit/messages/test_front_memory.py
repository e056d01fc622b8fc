"""The memory of a connection: when drld reads its client."""

from __future__ import annotations

from drld.messages.front.memory import MOST_QUEUED, Memory, Share


def of(memory: Memory, woken: list[str] | None = None, name: str = "") -> Share:
    """A connection that appends its name to `woken` when it may decide otherwise."""
    return Share(memory, lambda: None if woken is None else woken.append(name))


def paused(share: Share, up: int, begun: int = 0, queued: int = 0) -> bool:
    share.decide(up, begun, queued)
    return share.paused


def test_a_client_is_paused_above_its_part_and_read_again_at_half_of_it() -> None:
    memory = Memory(1000)
    share, other = of(memory), of(memory)
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
    share = of(Memory(1 << 30))
    for queued, expected in (
        *((MOST_QUEUED, False), (MOST_QUEUED + 1, True)),
        *((MOST_QUEUED // 2 + 1, True), (MOST_QUEUED // 2, False)),
    ):
        assert paused(share, queued, queued=queued) is expected, queued


def test_a_frame_that_has_begun_is_read_on_while_hold_is_not_used_up() -> None:
    memory = Memory(1000)
    share, other = of(memory), of(memory)
    share.count(999)
    assert not paused(share, 0, begun=999)
    other.count(1)
    assert not paused(share, 0, begun=999)
    assert paused(other, 0, begun=1)


def test_frames_are_completed_beyond_hold_one_after_the_other() -> None:
    memory, woken = Memory(1000), list[str]()
    waits, one, two = (of(memory, woken, name) for name in ("waits", "one", "two"))
    waits.count(800)
    for share in (one, two):
        share.count(100)
    assert paused(waits, 800)
    assert not paused(one, 0, begun=100)
    assert paused(two, 0, begun=100)
    one.count(400)
    assert not paused(one, 0, begun=400)
    # Its frame has left, and the next one has begun.
    one.count(200)
    assert woken == []
    assert paused(one, 0, begun=200)
    assert woken == ["one", "two"], "the pump settles the last one first"
    assert not paused(two, 0, begun=100)
    assert paused(one, 0, begun=200)
    two.end()
    assert woken[2:] == ["one"]
    assert not paused(one, 0, begun=200)
    assert not memory.stalled


def test_a_frame_beyond_hold_that_waits_lets_no_other_go_beyond_it() -> None:
    """Otherwise all frames of limited topics would be there at last."""
    memory = Memory(1000)
    waits, one, two = (of(memory) for _ in range(3))
    for share, held in ((waits, 800), (one, 100), (two, 100)):
        share.count(held)
    assert [paused(share, 0, begun=100) for share in (one, two)] == [False, True]
    one.count(500)
    assert paused(one, up=450, begun=50)
    assert paused(two, 0, begun=100)
    one.count(50)
    assert memory.part == 50
    assert not paused(one, 0, begun=50)
    assert not paused(two, 0, begun=100)


def test_memory_that_comes_free_ends_a_stall() -> None:
    memory, woken = Memory(1000), list[str]()
    waits, one, two = (of(memory, woken, name) for name in ("waits", "one", "two"))
    for share, held in ((waits, 800), (one, 100), (two, 100)):
        share.count(held)
    assert [paused(share, 0, begun=100) for share in (one, two)] == [False, True]
    waits.count(799)
    assert woken == ["two"]
    assert not paused(two, 0, begun=100)
    waits.count(0)
    assert woken == ["two"]
