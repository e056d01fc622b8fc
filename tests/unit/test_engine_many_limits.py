"""An engine with so many limits that their ticks together take longer than its peers wait."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from drld import engine
from drld.engine import MOST_TICKED
from drld.model import NS_PER_S, Update

from ..engine_fakes import Bench, heartbeat
from ..factories import MS, TICK_NS, limit_spec, limiter_spec

MANY = 4 * MOST_TICKED
COST_NS = 700_000
"""The time of one limit's tick: all together take 1.4 s. A peer that is silent for 0.85 s is not
connected any more."""


def many_limits(allocator: str, name: str = "a", peer: str = "b") -> Bench:
    limits = [limit_spec(allocator, id=number, name=f"l{number}") for number in range(1, MANY + 1)]
    return Bench(replace(limiter_spec(*limits, peers=[peer]), name=name))


def at_rest(allocator: str) -> Bench:
    """All limits are quiescent, and no peer is connected."""
    bench = many_limits(allocator)
    for number in range(1, 100):
        bench.engine.tick(number * TICK_NS)
    bench.clear()
    return bench


@dataclass
class Host:
    """A limiter on a processor of its own: a tick takes time for each limit in it."""

    bench: Bench
    free_ns: int = 0
    """The time at which the last tick is over."""

    @property
    def due_ns(self) -> int:
        return max(self.bench.engine.next_due_ns(), self.free_ns)

    def tick(self) -> list[Update]:
        """Tick once; return the messages that have left when the tick is over."""
        now_ns, transport = self.due_ns, self.bench.transport
        ticks = self.bench.engine.tick(now_ns)
        self.free_ns = now_ns + COST_NS * len(ticks) + MS
        sent, transport.messages = transport.messages, []
        return [update for _, updates in sent for update in updates]

    def connected(self) -> bool:
        return bool(self.bench.engine.membership.connected(self.free_ns))


@pytest.mark.parametrize("allocator", ["fair", "static"])
def test_peers_with_many_limits_connect_and_stay_connected(allocator: str) -> None:
    a, b = (Host(many_limits(allocator, *names)) for names in ("ab", "ba"))
    under_way: list[tuple[int, Host, Update]] = []
    lost = 0
    while (host := min(a, b, key=lambda it: it.due_ns)).due_ns < 20 * NS_PER_S:
        now_ns, other = host.due_ns, b if host is a else a
        before = host.connected()
        for message in [it for it in under_way if it[1] is host and it[0] <= now_ns]:
            under_way.remove(message)
            host.bench.transport.inbox.append((other.bench.engine.spec.name, message[2]))
        under_way += [(host.free_ns, other, update) for update in host.tick()]
        lost += before and not host.connected()
    assert a.connected()
    assert b.connected()
    assert lost == 0


def test_limits_beyond_the_most_are_ticked_in_further_ticks_and_messages_come_between() -> None:
    bench = at_rest("fair")
    bench.transport.inbox = [("b", heartbeat())]
    now_ns = 100 * TICK_NS
    bench.engine.tick(now_ns)  # It reads the heartbeat; the next look wakes all limits.
    now_ns += TICK_NS
    ticked = []
    for sequence in range(1, MANY // MOST_TICKED + 1):
        bench.transport.inbox = [("b", heartbeat(sequence))]
        assert bench.engine.next_due_ns() <= now_ns
        ticked += [name for name, _ in bench.engine.tick(now_ns)]
        assert not bench.transport.inbox
        assert len(ticked) == sequence * MOST_TICKED
    assert len(set(ticked)) == MANY
    assert bench.engine.next_due_ns() > now_ns


@pytest.mark.parametrize("rounds", range(20, 32))
def test_no_limit_sleeps_before_it_has_been_ticked_after_a_change_of_the_peers(
    rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limits have had a packet, and want to sleep at about the time of the change."""
    monkeypatch.setattr(engine, "MOST_TICKED", 4)
    limits = [limit_spec("fair", id=number, name=f"l{number}") for number in range(1, 17)]
    bench = Bench(limiter_spec(*limits))
    for limit in limits:
        bench.packet(limit.id)
    bench.run(1, rounds)
    bench.transport.inbox = [("b", heartbeat())]
    bench.run(rounds + 1, rounds + 2)
    for managed in bench.engine.limits.values():
        if not managed.pending and managed.limiter.quiescent:
            assert managed.last is not None
            assert managed.last.view.connected == {"b"}


def test_a_change_of_the_peers_does_not_hurry_limits_that_only_measure() -> None:
    bench = at_rest("static")
    bench.transport.inbox = [("b", heartbeat())]
    names = bench.run(100, 103)
    assert 0 < len(names) < MANY // 10
