"""The sources of arrival times, as far as they need no kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from drld.capture.nfqueue.arrival import KERNEL, READ, Arrival
from drld.capture.queue_hooks import Hook
from drld.capture.spec import Match
from drld.ebpf.hook import Found
from drld.errors import DatapathError
from drld.police.arrival_time import ArrivalTimes
from drld.police.direction import Direction

from ..factories import limit_spec

OUT = limit_spec(match=Match("eth1", Direction.OUT))


class Clock:
    now_ns = 1_000_000_000

    def __call__(self) -> int:
        return self.now_ns


class FakeAttachment:
    """Has programs that a dead daemon left, and is its own factory."""

    def __init__(self, left: Sequence[Found] = ()) -> None:
        self.left = list(left)

    def __call__(self, limiter_name: str) -> Any:
        return self

    def found(self) -> list[Found]:
        return list(self.left)

    def remove(self, index: int, direction: Direction) -> None:
        self.left = [
            each for each in self.left if (each.index, each.direction) != (index, direction)
        ]

    def close(self) -> None:
        """See `Attachment.close`."""


def arrival(
    wanted: str = "auto", source: str = KERNEL, attachment: FakeAttachment | None = None
) -> Arrival:
    """A source of arrival times that is always found."""
    clock = Clock()
    made = Arrival("lim1", wanted, clock, clock, attachment or FakeAttachment())
    made.source = source
    if source != READ:
        made.times = ArrivalTimes(clock, clock)
    return made


def refuse_what_is_early(hooks: Sequence[Hook]) -> None:
    if any(hook.stamped for hook in hooks):
        raise DatapathError("no such match: addrtype")


def refuse(_: Sequence[Hook]) -> None:
    raise DatapathError("out of cheese")


def test_a_firewall_that_cannot_take_packets_early_takes_them_late() -> None:
    made = arrival()
    (hook,) = made.install([OUT], refuse_what_is_early)
    assert not hook.stamped
    assert "out on eth1 when read (the firewall refuses" in made.reason
    asked: list[bool] = []
    made.install([OUT], lambda hooks: asked.extend(hook.stamped for hook in hooks))
    assert asked == [False]  # it is not asked again at each reload


def test_required_timestamps_are_there_or_an_error_is_raised() -> None:
    with pytest.raises(DatapathError, match="addrtype"):
        arrival("kernel").install([OUT], refuse_what_is_early)


def test_a_firewall_that_refuses_everything_is_an_error() -> None:
    with pytest.raises(DatapathError, match="cheese"):
        arrival().install([OUT], refuse)


def test_leftovers_of_a_dead_daemon_are_removed_when_rules_are_there() -> None:
    there = FakeAttachment(
        [Found("eth1", 1, Direction.OUT, ""), Found("eth2", 2, Direction.IN, "")]
    )
    left = there.found()

    made = arrival("read", READ, there)
    made.start()
    with pytest.raises(DatapathError, match="cheese"):
        made.install([OUT], refuse)
    made.stop()
    assert there.left == left
    made.start()
    made.install([OUT], lambda _: None)
    assert there.left == []


def test_without_stamps_packets_are_queued_at_the_usual_hooks() -> None:
    made = arrival("read", READ)
    (hook,) = made.install([OUT], lambda hooks: None)
    assert not hook.stamped
    assert made.reason == "packets charged when read"
    assert made.settled_ns(5, lambda: True) == 5
    made.turned(5, 17, True)
    assert made.counters() == {"stamped_ebpf": 0, "stamped_kernel": 0, "unstamped": 17}


def test_buckets_are_settled_at_the_tick_only_if_nothing_waits() -> None:
    made = arrival()
    began_ns = Clock.now_ns
    asked: list[bool] = []

    def waiting() -> bool:
        asked.append(True)
        return len(asked) > 1

    assert made.settled_ns(began_ns + 50, waiting) == began_ns + 50
    assert made.settled_ns(began_ns + 50, waiting) == began_ns + 50
    assert len(asked) == 1  # once a tick
    assert made.settled_ns(began_ns + 100, waiting) == began_ns + 50
    made.turned(began_ns + 80, 3, False)
    assert made.settled_ns(began_ns + 150, waiting) == began_ns + 50
    made.turned(began_ns + 90, 3, True)
    assert made.settled_ns(began_ns + 200, waiting) == began_ns + 90


def test_a_reason_names_a_few_interfaces_and_counts_the_others() -> None:
    made = arrival()
    made.source = "ebpf"
    made._stamping = {index: f"veth{index:02}" for index in range(20)}
    assert made.reason.endswith(
        "by eBPF on " + ", ".join(f"veth{n:02}" for n in range(8)) + " and 12 more"
    )
