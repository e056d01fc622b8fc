"""What the kernel datapath reads of a limit: differences of counters, by flow where there are."""

from typing import cast

from drld.capture.kernel.counted import Counted
from drld.capture.kernel.state import NO_FLOWS, Counts, State
from drld.capture.kernel_layout import FLOW_SLOTS


class Maps:
    """The maps of one limit."""

    def __init__(self) -> None:
        self.values = [0] * 8
        self.table = [0] * (2 * FLOW_SLOTS)
        self.refused = [0] * FLOW_SLOTS
        self.asked_for_hits = 0

    def counts(self, _: int) -> Counts:
        return Counts._make(self.values)

    def flows(self, _: int) -> tuple[int, ...]:
        return tuple(self.table) if any(self.table) else NO_FLOWS

    def hits(self, _: int) -> tuple[int, ...]:
        self.asked_for_hits += 1
        return tuple(self.refused)

    def place(self, place: int, flow: int, size: int) -> None:
        self.table[2 * place : 2 * place + 2] = flow, size


def begun(maps: Maps) -> tuple[State, Counted]:
    state = cast("State", maps)
    return state, Counted.of(state, 0, 100)


def test_a_read_has_what_came_since_the_last_one() -> None:
    maps = Maps()
    maps.place(3, 7, 50)
    state, counted = begun(maps)
    maps.values = [1500, 40, 60, 500, 3, 1, 2, 1]
    maps.place(3, 7, 1550)
    maps.place(63, 9, 100)
    maps.refused[63] = 40
    first = counted.read(state, 150)
    assert (first.interval_ns, first.arrived_tokens, first.arrived_items) == (50, 1600, 6)
    assert (first.forwarded_tokens, first.forwarded_items) == (1500, 3)
    assert (first.dropped_tokens, first.dropped_items) == (40, 1)
    assert (first.marked_tokens, first.marked_items) == (500, 1)
    assert (first.flows, first.hits) == ({7: 1500, 9: 100}, {9: 40})
    second = counted.read(state, 170)
    assert (second.interval_ns, second.arrived_tokens) == (20, 0)
    assert (second.flows, second.hits) == ({7: 0, 9: 0}, {})


def test_hits_are_read_only_if_there_are_any_and_none_is_lost() -> None:
    maps = Maps()
    state, counted = begun(maps)
    asked = maps.asked_for_hits
    maps.place(0, 7, 100)
    # Another CPU's count of the refusal is not visible yet.
    maps.refused[0] = 40
    assert counted.read(state, 150).hits == {}
    assert maps.asked_for_hits == asked
    maps.values[1] = 40
    assert counted.read(state, 200).hits == {7: 40}


def test_counters_of_packets_wrap() -> None:
    maps = Maps()
    maps.values[4] = 2**32 - 1
    state, counted = begun(maps)
    maps.values[4] = 2
    assert counted.read(state, 150).forwarded_items == 3


def test_limits_without_flows_share_one_empty_table() -> None:
    one, other = begun(Maps())[1], begun(Maps())[1]
    assert one.flows is other.flows
    assert one.sizes is other.sizes
