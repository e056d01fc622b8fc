"""Sessions in the engine: numbers outlive reloads, and begin at zero with a peer's new life."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from drld.gossip.wire.messenger import Deliver
from drld.gossip.wire.session import Met
from drld.model import Quantity, Update

from ..engine_fakes import Bench
from ..factories import TICK_NS, limit_spec, with_policy
from ..factories import limiter_spec as spec
from ..wire import kind_of, mesh

FIRST = limit_spec(id=1, name="first")


def sequences(bench: Bench, limit_id: int) -> list[int]:
    return [update.sequence for _, update in bench.transport.outbox if update.limit_id == limit_id]


def telling(bench: Bench, first: int, last: int) -> list[int]:
    """The sequence numbers of the limit's updates in these intervals, in which it has traffic."""
    bench.transport.messages.clear()
    for number in range(first, last + 1):
        bench.packet(1)
        bench.run(number, number)
    return sequences(bench, 1)


def told(sequence: int, limit_id: int = 1) -> Update:
    return mesh(limit_id, sequence, 2.0, Quantity.WEIGHT)


def test_numbers_go_on_when_a_reload_replaces_the_limiter() -> None:
    bench = Bench(spec(FIRST))
    before = telling(bench, 1, 5)
    bench.transport.inbox = [("b", told(sequence)) for sequence in range(5)]
    bench.run(6, 6)
    changed = spec(with_policy(FIRST, ewma=0.5))
    bench.engine.reconfigure(changed, 6 * TICK_NS)
    after = telling(bench, 7, 10)
    assert after[0] > before[-1]
    # What the former limiter accepted is a replay to this one.
    bench.transport.inbox = [("b", told(4)), ("b", told(5))]
    bench.run(11, 11)
    link = bench.engine.limits[1].limiter.fabric.links["b"]
    assert (link.received, link.late) == (1, 0)
    assert bench.transport.rejected == {"replayed": 1}


def test_replays_are_counted_and_late_updates_are_not() -> None:
    """Updates of limits, heartbeats, and of limits that are unknown here or of another quantity."""
    bench = Bench(spec(FIRST))
    for limit_id in (1, 0, 9):
        bench.transport.rejected.clear()
        value = 2.0 if limit_id else 0.0
        bench.transport.inbox = [
            ("b", replace(told(sequence, limit_id), value=value))
            for sequence in (0, 3, 1, 0, 3, 1, 4)
        ]
        bench.run(1, 1)
        assert bench.transport.rejected == {"replayed": 3}, limit_id
    bench.transport.rejected.clear()
    bench.transport.inbox = [("b", replace(told(4), quantity=Quantity.RATE))]
    bench.run(2, 2)
    assert bench.transport.rejected == {"replayed": 1}


def test_numbers_go_on_when_a_limit_or_all_of_gossip_is_taken_out_and_back() -> None:
    bench = Bench(spec(FIRST))
    before = telling(bench, 1, 5)
    bench.engine.reconfigure(spec(), 5 * TICK_NS)
    bench.engine.reconfigure(spec(FIRST), 5 * TICK_NS)
    between = telling(bench, 6, 9)
    assert between[0] == before[-1] + 1
    gossip = replace(spec().gossip, branching=2)
    bench.engine.reconfigure(spec(FIRST, gossip=gossip), 9 * TICK_NS)
    assert telling(bench, 10, 12)[0] == between[-1] + 1


def test_sequence_numbers_with_a_new_life_begin_at_zero() -> None:
    bench = Bench(spec(FIRST))
    telling(bench, 1, 5)
    bench.transport.inbox = [("b", told(9)), ("b", Met(7)), ("b", told(0))]
    assert telling(bench, 6, 7)[0] == 0
    link = bench.engine.limits[1].limiter.fabric.links["b"]
    assert (link.received, link.late, link.lost) == (2, 0, 0)


def test_a_limiter_that_has_not_joined_meets_peers_and_believes_no_update() -> None:
    bench = Bench(spec(FIRST, joined=False))
    bench.engine.membership.numbering.of("b", 1).accept(50)
    bench.transport.inbox = [("b", Met(7)), ("b", told(0))]
    bench.run(1, 1)
    assert bench.engine.membership.age_ns(TICK_NS) is None
    assert bench.engine.membership.numbering.of("b", 1).accept(0) == 0


def test_a_replay_of_an_unknown_limit_shows_no_peer_alive() -> None:
    bench = Bench(spec(FIRST))
    bench.transport.inbox = [("b", told(0, limit_id=9))]
    bench.run(1, 1)
    assert bench.engine.membership.heard_ns("b") == TICK_NS
    bench.transport.inbox = [("b", told(0, limit_id=9))]
    bench.run(2, 2)
    assert bench.engine.membership.heard_ns("b") == TICK_NS
    assert bench.engine.unknown_limit["b"] == 2
    # What is counted of a peer goes with it.
    bench.engine.reconfigure(spec(FIRST, peers=("c",)), 2 * TICK_NS)
    assert not bench.engine.unknown_limit


def test_a_limit_that_is_unknown_here_shows_that_no_round_was_silent() -> None:
    bench = Bench(spec(FIRST))
    for interval in range(1, 40):
        bench.transport.inbox = [("b", told(interval, limit_id=9))]
        if interval in (1, 39):
            bench.transport.inbox.append(("b", told(interval, limit_id=1)))
        bench.run(interval, interval)
    link = bench.engine.limits[1].limiter.fabric.links["b"]
    assert (link.received, link.late) == (1, 1)


def test_a_new_life_is_told_to_the_limits_that_spoke_with_the_one_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A handshake costs the same with one quiescent limit and with ten thousand."""
    second = limit_spec(id=2, name="second")
    bench = Bench(spec(FIRST, second, peers=("b", "c")))
    heard: list[tuple[int, str]] = []
    for limit_id, entry in bench.engine.limits.items():
        fabric = entry.limiter.fabric
        monkeypatch.setattr(
            fabric, "on_session", lambda peer, limit_id=limit_id: heard.append((limit_id, peer))
        )

    def meet(*messages: tuple[str, Update | Met]) -> list[tuple[int, str]]:
        heard.clear()
        bench.transport.inbox = list(messages)
        bench.engine.node.tick(11 * TICK_NS)
        return list(heard)

    bench.run(1, 10)
    assert meet(("b", Met(7)), ("c", Met(7)), ("b", Met(8))) == []
    assert meet(("b", told(0)), ("b", told(0, limit_id=9)), ("b", Met(9))) == [(1, "b")]
    assert meet(("b", Met(10)), ("c", Met(8))) == []
    bench.packet(2)
    bench.run(12, 20)
    spoken = [(limit, peer) for peer in "bc" for limit in (1, 2)]
    assert meet(("b", Met(11)), ("c", Met(9)), ("b", Met(12))) == spoken


def test_the_rest_that_a_peer_tells_waits_again_in_each_of_its_lives() -> None:
    """This holds though no update tells of the limit in between."""
    bench = Bench(spec(FIRST))
    (entry,) = bench.engine.limits.values()
    bench.transport.inbox = [("b", told(0))]
    bench.run(1, 1)
    link: Any = entry.limiter.fabric.links["b"]
    since = [link.connected_ns]
    for number, life in ((2, 7), (3, 8), (4, 9)):
        bench.transport.inbox = [("b", Met(life))]
        bench.run(number, number)
        since.append(link.connected_ns)
    assert since == [number * TICK_NS for number in range(1, 5)]


def test_updates_behind_a_flood_are_not_believed() -> None:
    """They may be older than the times of the conservative rule allow."""
    bench = Bench(spec(FIRST))
    membership = bench.engine.membership

    def hears(number: int, sequence: int, *, drained: bool) -> bool:
        """Whether an update counts, and whether all was read after it."""

        def after(deliver: Deliver, refused: Mapping[int, str]) -> None:
            update = told(sequence)
            if kind_of(update) not in refused:
                deliver("b", kind_of(update), [update])
            bench.transport.drained = drained

        bench.transport.receive = after  # type: ignore[method-assign]  # the flood is behind it
        bench.run(number, number)
        return membership.heard_ns("b") == number * TICK_NS

    assert hears(1, 0, drained=True)
    # What comes before the rest has to wait is as new as ever.
    assert hears(2, 1, drained=False)
    assert membership.arrived_ns(3 * TICK_NS) == TICK_NS
    assert not hears(3, 2, drained=False)
    assert not hears(4, 3, drained=True)
    assert hears(5, 4, drained=True)
    assert membership.arrived_ns(6 * TICK_NS) == 5 * TICK_NS
    link = bench.engine.limits[1].limiter.fabric.links["b"]
    assert (link.received, link.lost) == (3, 2)
