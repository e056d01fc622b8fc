"""The engine with a datapath and a socket that only note what they are told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import dropwhile
from random import Random
from typing import Any, cast

import pytest

from drld.engine import Engine
from drld.errors import ConfigError, DatapathError
from drld.gossip.agreement import ALL, Agreement, Selector
from drld.gossip.channel import Message
from drld.gossip.control_wire import Control, Kind, Rumour, State
from drld.gossip.keyring import KeyRing
from drld.gossip.rest import QUIET_ROUNDS
from drld.gossip.rumours import subject
from drld.gossip.session import Met
from drld.gossip.transport import Transport
from drld.limiter import Limiter
from drld.model import HEARTBEAT, FlowKey, Quantity, Update
from drld.notices import Notices
from drld.report import limit_report, peer_reports, trace_record
from drld.spec import LimiterSpec, ProbeSpec

from ..engine_fakes import FakeDatapath
from ..factories import MBIT, MS, TICK_NS, gossip_spec, limit_spec
from ..factories import limiter_spec as spec


class FakeTransport:
    def __init__(self) -> None:
        self.life = 1
        self.inbox: list[tuple[str, Message]] = []
        self.control: list[tuple[str, Control]] = []
        self.messages: list[tuple[str, list[Update]]] = []
        self.peers: Mapping[str, Any] = {}
        self.rejected: Counter[str] = Counter()
        self.drained = True

    def refuse(self, reason: str) -> None:
        self.rejected[reason] += 1

    def receive(self) -> Iterator[tuple[str, Message]]:
        while self.inbox:
            yield self.inbox.pop(0)

    @property
    def outbox(self) -> list[tuple[str, Update]]:
        return [(peer, update) for peer, updates in self.messages for update in updates]

    def send(self, peer: str, updates: Sequence[Update]) -> None:
        self.messages.append((peer, list(updates)))

    def set_fabric(self, fabric: str) -> None:
        self.fabric = fabric

    def set_ring(self, ring: KeyRing) -> None:
        self.ring = ring

    def send_control(self, peer: str, message: Control) -> None:
        self.control.append((peer, message))

    def update_peers(self, peers: Mapping[str, Any]) -> Callable[[], None]:
        if "bad" in peers:
            raise ConfigError(["peer.bad.address"])
        undo = partial(setattr, self, "peers", self.peers)
        self.peers = peers
        return undo

    def close(self) -> None:
        pass


class Bench:
    def __init__(self, configured: LimiterSpec) -> None:
        self.datapath = FakeDatapath()
        self.transport = FakeTransport()
        self.engine = Engine(configured, self.datapath, cast(Transport, self.transport), Random(1))
        self.engine.start(0)

    def packet(self, limit_id: int) -> None:
        self.datapath.policers[limit_id].arrive(FlowKey(6, b"", b"", 0, 0), 1500)

    def run(self, first: int, last: int) -> list[str]:
        """Intervals from first to last; the names of the limits that were ticked."""
        ticks = [self.engine.tick(number * TICK_NS) for number in range(first, last + 1)]
        return [name for tick in ticks for name, _ in tick]

    def clear(self) -> None:
        """Forget what was noted."""
        self.transport.messages.clear()
        self.datapath.read_limits.clear()
        self.datapath.programmed.clear()
        self.datapath.flushed_ns.clear()


FIRST = limit_spec(id=1, name="first")
SLOW = limit_spec(id=2, name="slow", interval_ns=4 * TICK_NS)


def weight(limit_id: int, sequence: int = 0) -> Update:
    return Update(
        limit_id=limit_id,
        sequence=sequence,
        quantity=Quantity.WEIGHT,
        epoch=0,
        value=2.0,
        weight=1.0,
    )


def heartbeat(sequence: int = 0) -> Update:
    return Update(HEARTBEAT, sequence, Quantity.RATE, 0, 0.0, 1.0)


def test_each_limit_ticks_at_its_own_interval() -> None:
    bench = Bench(spec(FIRST, SLOW))
    assert bench.engine.next_due_ns() == TICK_NS
    names = []
    for now in range(1, 9):
        bench.packet(1)
        bench.packet(2)
        names += [name for name, _ in bench.engine.tick(now * TICK_NS)]
    assert (names.count("first"), names.count("slow")) == (8, 2)
    assert [limit for limit, _ in bench.datapath.programmed].count(2) == 2


def test_a_limit_where_nothing_happens_costs_nothing() -> None:
    bench = Bench(spec(FIRST, SLOW))
    bench.run(1, 10)
    bench.clear()
    names = bench.run(11, 100)
    assert names == []
    assert bench.datapath.read_limits == []
    assert bench.datapath.programmed == []
    assert {(peer, update.limit_id) for peer, update in bench.transport.outbox} == {("b", 0)}
    assert len(bench.transport.outbox) == 90
    assert len(bench.datapath.flushed_ns) == 90


def test_a_packet_wakes_its_limit_alone() -> None:
    bench = Bench(spec(FIRST, SLOW))
    bench.run(1, 100)
    bench.clear()
    bench.packet(1)
    ((name, tick),) = bench.engine.tick(101 * TICK_NS)
    assert name == "first"
    # Measured over the interval it came in, not over the time at rest.
    assert tick.measurement.interval_ns == TICK_NS
    assert tick.demand.first
    assert ("b", 1) in {(peer, update.limit_id) for peer, update in bench.transport.outbox}
    assert set(bench.datapath.read_limits) == {1}


def test_a_limit_that_pauses_is_measured_over_its_whole_interval() -> None:
    bench = Bench(spec(FIRST, SLOW))
    bench.packet(2)
    bench.run(1, 7)
    bench.packet(2)
    (tick,) = [tick for name, tick in bench.engine.tick(8 * TICK_NS) if name == "slow"]
    assert tick.measurement.arrived_packets == 1
    assert tick.measurement.interval_ns == 4 * TICK_NS


def test_a_limit_that_falls_idle_says_so_and_comes_to_rest() -> None:
    bench = Bench(spec(FIRST, SLOW))
    bench.packet(1)
    bench.run(1, 100)
    told = [update.value for _, update in bench.transport.outbox if update.limit_id == 1]
    assert told[0] > 0
    zeros = list(dropwhile(bool, told))
    assert len(zeros) == QUIET_ROUNDS
    assert not any(zeros)
    bench.clear()
    assert bench.run(101, 150) == []


def test_an_update_wakes_its_limit() -> None:
    bench = Bench(spec(FIRST, SLOW))
    bench.run(1, 100)
    bench.transport.inbox = [("b", weight(1))]
    ((name, tick),) = bench.engine.tick(101 * TICK_NS)
    assert (name, tick.view.remote) == ("first", 2.0)
    # Until what it said is too old to count.
    names = bench.run(102, 180)
    assert 20 <= names.count("first") < 40
    assert limit_report(bench.engine.entries[1], 0)["fleet"]["remote"] == 0.0


def test_a_change_of_the_membership_wakes_every_limit() -> None:
    bench = Bench(spec(FIRST, SLOW))
    bench.run(1, 100)
    bench.transport.inbox = [("b", heartbeat())]
    names = bench.run(101, 102)
    assert set(names) == {"first", "slow"}
    report = limit_report(bench.engine.entries[1], 0)
    assert report["fleet"]["connected"] == ["b"]
    assert report["limit_in_force_bps"] == 5_000_000
    bench.transport.inbox = [("b", heartbeat(sequence)) for sequence in range(1, 9)]
    # And again, when it has been there for so long that its share counts.
    assert set(bench.run(103, 110)) == {"first", "slow"}
    assert limit_report(bench.engine.entries[1], 0)["limit_in_force_bps"] == 10_000_000
    assert limit_report(bench.engine.entries[1], 112 * TICK_NS)["fleet"]["age_s"] == 0.45
    # And again, when the peer is gone.
    bench.run(111, 200)
    assert limit_report(bench.engine.entries[1], 0)["fleet"]["connected"] == []


def test_a_watched_limit_does_not_rest() -> None:
    bench = Bench(spec(FIRST, SLOW))
    bench.run(1, 100)
    names = [
        name for now in range(101, 111) for name, _ in bench.engine.tick(now * TICK_NS, ["first"])
    ]
    assert names == ["first"] * 10


def test_updates_of_several_limits_share_a_message() -> None:
    second = replace(FIRST, id=2, name="second")
    bench = Bench(spec(FIRST, second, peers=("b", "c")))
    bench.packet(1)
    bench.packet(2)
    bench.engine.tick(TICK_NS)
    assert [
        (peer, [update.limit_id for update in updates])
        for peer, updates in bench.transport.messages
    ] == [("b", [1, 2]), ("c", [1, 2])]


def test_a_limit_that_wakes_up_ticks_with_the_others() -> None:
    """One wake-up an interval, however the limits came to be awake."""
    bench = Bench(spec(FIRST, replace(FIRST, id=2, name="second")))
    bench.run(1, 60)
    bench.packet(1)
    bench.engine.tick(61 * TICK_NS + 3 * MS)
    bench.packet(2)
    bench.engine.tick(62 * TICK_NS + 4 * MS)
    bench.packet(1)
    bench.packet(2)
    assert bench.engine.next_due_ns() == 63 * TICK_NS
    assert len(bench.engine.tick(63 * TICK_NS)) == 2


def test_a_late_tick_keeps_the_grid_and_a_stall_begins_a_new_one() -> None:
    bench = Bench(spec(FIRST))
    bench.engine.tick(TICK_NS + 10 * MS)
    assert bench.engine.next_due_ns() == 2 * TICK_NS
    bench.engine.tick(7 * TICK_NS + 3 * MS)
    assert bench.engine.next_due_ns() == 8 * TICK_NS + 3 * MS


def test_updates_reach_their_limit_and_unknown_ones_are_counted() -> None:
    bench = Bench(spec(FIRST))
    bench.transport.inbox = [("b", weight(1)), ("b", weight(9))]
    bench.engine.tick(TICK_NS)
    assert bench.engine.membership.connected(TICK_NS) == {"b"}
    (peer,) = peer_reports(bench.engine, 2 * TICK_NS)
    assert (peer["received"], peer["rejected"], peer["connected"]) == (1, 1, True)
    assert peer["age_s"] == pytest.approx(0.05)


def test_reports_are_in_bits_per_second() -> None:
    bench = Bench(spec(FIRST))
    entry = bench.engine.entries[1]
    before = limit_report(entry, 0)
    assert (before["rate_bps"], before["fill_rate_bps"]) == (10_000_000, 5_000_000)
    assert before["limit_in_force_bps"] == 5_000_000
    bench.transport.inbox = [("b", weight(1))]
    ((name, tick),) = bench.engine.tick(TICK_NS)
    after, record = limit_report(entry, 0), trace_record(name, tick, 1.0)
    assert after["limit_in_force_bps"] == record["limit_in_force_bps"] == 10_000_000
    assert after["fleet"]["quantity"] == "weight"
    assert after["fleet"]["remote"] == record["remote"] == 2.0


def test_rates_that_are_shared_are_reported_in_bits_per_second() -> None:
    bench = Bench(spec(limit_spec("grd")))
    bench.transport.inbox = [
        (
            "b",
            Update(
                limit_id=1,
                sequence=0,
                quantity=Quantity.RATE,
                epoch=0,
                value=float(MBIT),
                weight=1.0,
            ),
        )
    ]
    bench.engine.tick(TICK_NS)
    report = limit_report(bench.engine.entries[1], 0)
    assert report["fleet"]["quantity"] == "rate"
    assert report["fleet"]["remote"] == 1_000_000
    assert report["local_limit_bps"] is None


def test_a_reload_keeps_what_a_limit_knows_and_drops_what_is_gone() -> None:
    bench = Bench(spec(FIRST, SLOW))
    bench.transport.inbox = [("b", weight(1))]
    bench.engine.tick(TICK_NS)
    kept = bench.engine.entries[1]
    third = limit_spec(id=3, name="third")
    faster = limit_spec(id=1, name="first", rate=20 * MBIT)
    bench.engine.reconfigure(spec(faster, third, peers=("b", "c")), 2 * TICK_NS)
    assert list(bench.engine.entries) == [1, 3]
    assert bench.engine.entries[1] is kept
    assert kept.limiter.limit.rate == 20 * MBIT
    assert kept.limiter.membership.peers == ("b", "c")
    assert kept.limiter.fabric.view(2 * TICK_NS).connected == {"b"}
    assert set(bench.transport.peers) == {"b", "c"}
    assert bench.datapath.attached == [faster, third]


def test_a_changed_allocator_starts_the_estimates_anew_and_keeps_the_totals() -> None:
    bench = Bench(spec(FIRST))
    bench.packet(1)
    bench.engine.tick(TICK_NS)
    before = bench.engine.entries[1]
    bench.engine.reconfigure(spec(limit_spec("grd", id=1, name="first")), TICK_NS)
    after = bench.engine.entries[1]
    assert after is not before
    assert after.totals.arrived_bytes == 1500


def test_what_needs_a_restart_is_refused_by_its_key() -> None:
    bench = Bench(spec(FIRST))
    with pytest.raises(ConfigError, match=r"limiter\.listen.*restart"):
        bench.engine.reconfigure(spec(FIRST, listen=("127.0.0.9", 7946)), TICK_NS)


def test_a_refused_reload_changes_nothing() -> None:
    bench = Bench(spec(FIRST))
    bench.engine.reconfigure(spec(FIRST), 0)
    bench.datapath.refuse = True
    with pytest.raises(DatapathError):
        bench.engine.reconfigure(spec(limit_spec(id=1, rate=MBIT), peers=("b", "c")), TICK_NS)
    bench.datapath.refuse = False
    with pytest.raises(ConfigError, match=r"peer\.bad\.address"):
        bench.engine.reconfigure(spec(limit_spec(id=1, rate=MBIT), peers=("bad",)), TICK_NS)
    assert bench.engine.entries[1].limiter.limit.rate == 10 * MBIT
    assert bench.engine.spec.limits == (FIRST,)
    assert bench.datapath.attached == [FIRST]
    assert bench.transport.peers.keys() == {"b"}


def test_a_tick_ends_with_one_flush() -> None:
    bench = Bench(spec(FIRST, replace(FIRST, id=2, name="second")))
    bench.engine.tick(TICK_NS)
    assert len(bench.datapath.programmed) == 2
    assert bench.datapath.flushed_ns == [TICK_NS]


def test_the_datapath_knows_the_static_share_for_when_the_daemon_dies() -> None:
    bench = Bench(spec(FIRST))
    assert bench.datapath.shares[1].fill_rate == FIRST.rate // 2
    bench.engine.reconfigure(spec(FIRST, peers=("b", "c", "d")), TICK_NS)
    assert bench.datapath.shares[1].fill_rate == FIRST.rate // 4


def test_between_rounds_only_those_speak_that_have_something_pressing_to_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configured = spec(limits=(FIRST, replace(SLOW, interval_ns=TICK_NS)))
    seldom = replace(configured, gossip=replace(configured.gossip, interval_ns=4 * TICK_NS))
    bench = Bench(seldom)
    for limit_id in (FIRST.id, SLOW.id):
        bench.packet(limit_id)
    bench.run(1, 4)
    told = {update.limit_id for _, update in bench.transport.outbox}
    assert told == {FIRST.id, SLOW.id}
    bench.clear()
    bench.run(5, 6)
    assert bench.transport.messages == []
    monkeypatch.setattr(Limiter, "pressing", lambda limiter, _now_ns: limiter.limit is FIRST)
    bench.run(7, 7)
    assert {update.limit_id for _, update in bench.transport.outbox} == {FIRST.id}
    assert len(bench.transport.messages) == len(seldom.peers)


def test_a_change_of_the_fleet_alone_leaves_the_datapath_attached_if_asked_to() -> None:
    bench = Bench(spec(FIRST))
    bench.datapath.attached = []
    grown = spec(FIRST, peers=("b", "c"))
    bench.engine.reconfigure(grown, TICK_NS, reattach=False)
    assert bench.datapath.attached == []
    assert bench.engine.membership.peers == ("b", "c")
    assert bench.datapath.shares[1].fill_rate == pytest.approx(FIRST.rate / 3)
    bench.engine.reconfigure(replace(grown, limits=(FIRST, SLOW)), TICK_NS, reattach=False)
    assert [limit.id for limit in bench.datapath.attached] == [FIRST.id, SLOW.id]
    bench.datapath.attached = []
    bench.engine.reconfigure(replace(grown, limits=(FIRST, SLOW)), TICK_NS)
    assert [limit.id for limit in bench.datapath.attached] == [FIRST.id, SLOW.id]


def test_a_datapath_may_expect_a_living_daemon_to_show_in_each_look() -> None:
    """However long a limit's interval is: peers do not wait for longer."""
    often = replace(FIRST, interval_ns=TICK_NS // 2)
    bench = Bench(spec(often, SLOW))
    assert [limit.interval_ns for limit in bench.datapath.attached] == [TICK_NS // 2, TICK_NS]
    assert [entry.limiter.limit for entry in bench.engine.entries.values()] == [often, SLOW]


def test_who_is_connected_is_taken_in_at_once_however_long_the_interval_is() -> None:
    bench = Bench(spec(replace(SLOW, interval_ns=100 * TICK_NS)))
    bench.run(1, 100)
    bench.transport.inbox = [("b", heartbeat())]
    for now in range(101, 150):
        bench.packet(2)
        bench.transport.inbox.append(("b", heartbeat(now)))
        bench.engine.tick(now * TICK_NS)
        last = bench.engine.entries[2].last
        if now == 103:
            assert last is not None
            assert last.view.connected == {"b"}
            assert last.measurement.interval_ns < 3 * TICK_NS
    assert limit_report(bench.engine.entries[2], 0)["limit_in_force_bps"] == 10_000_000


def test_who_has_not_joined_neither_speaks_nor_listens() -> None:
    bench = Bench(spec(FIRST, joined=False))
    bench.packet(1)
    bench.transport.inbox.append(("b", heartbeat()))
    bench.run(1, 10)
    assert bench.transport.messages == []
    assert bench.transport.inbox == []
    assert bench.engine.membership.connected(10 * TICK_NS) == frozenset()
    assert bench.datapath.programmed[-1][1].fill_rate == pytest.approx(FIRST.rate / 2)


def test_who_is_no_member_any_more_counts_on_nobody_at_once() -> None:
    bench = Bench(spec(FIRST))
    for number in range(1, 20):
        bench.transport.inbox.append(("b", heartbeat(number)))
        bench.packet(1)
        bench.run(number, number)
    assert bench.engine.membership.connected(20 * TICK_NS) == {"b"}
    bench.engine.reconfigure(spec(FIRST, joined=False), 20 * TICK_NS)
    bench.packet(1)
    bench.run(21, 21)
    assert bench.engine.membership.connected(21 * TICK_NS) == frozenset()
    assert bench.datapath.programmed[-1][1].fill_rate == pytest.approx(FIRST.rate / 2)


def said(state: State, life: int = 2, counter: int = 0) -> Control:
    """A message of `b` about `c`."""
    return Control(Kind.ACK, 0, 0, 0, (Rumour(subject("c"), life, counter, state),))


def probing() -> Bench:
    """Limiter `a`, which is connected to `b` and `c` and probes them."""
    bench = Bench(spec(FIRST, peers=("b", "c"), probes=ProbeSpec()))
    for peer, life in (("b", 3), ("c", 2)):
        bench.transport.inbox += [(peer, Met(life)), (peer, heartbeat())]
    bench.run(1, 1)
    assert bench.engine.membership.connected(TICK_NS) == {"b", "c"}
    return bench


def verdicts(bench: Bench, now_ns: int) -> dict[str, tuple[str, bool]]:
    return {
        peer["name"]: (peer["verdict"], peer["connected"])
        for peer in peer_reports(bench.engine, now_ns)
    }


@pytest.mark.parametrize("state", [State.DEAD, State.LEFT])
def test_who_is_dead_or_has_left_is_named_and_counted_out_by_silence_only(state: State) -> None:
    bench = probing()
    bench.transport.inbox.append(("b", said(state)))
    bench.run(2, 2)
    assert verdicts(bench, 2 * TICK_NS) == {
        "b": ("alive", True),
        "c": (state.name.lower(), True),
    }
    bench.transport.inbox.append(("c", Met(9)))
    bench.run(3, 3)
    assert verdicts(bench, 3 * TICK_NS)["c"] == ("alive", True)


def test_a_verdict_of_life_connects_nobody() -> None:
    bench = Bench(spec(FIRST, peers=("b", "c"), probes=ProbeSpec()))
    bench.transport.inbox += [("b", Met(3)), ("c", Met(2))]
    bench.run(1, 3)
    assert verdicts(bench, 3 * TICK_NS) == {"b": ("alive", False), "c": ("alive", False)}


def test_whom_nobody_answers_takes_itself_for_cut_off_and_goes_by_the_updates() -> None:
    bench = probing()
    (entry,) = bench.engine.entries.values()
    for number in range(2, 103):
        bench.transport.inbox += [("b", heartbeat(number)), ("c", heartbeat(number))]
        bench.packet(1)
        bench.run(number, number)
    assert bench.engine.probes is not None
    assert bench.engine.probes.isolated(102 * TICK_NS)
    assert entry.last is not None
    assert entry.last.in_force.rate == pytest.approx(FIRST.rate)


def test_who_stops_detaches_first_and_says_farewell_once() -> None:
    bench = probing()
    bench.transport.control.clear()
    bench.engine.stop()
    bench.engine.stop()
    farewells = [(peer, m.rumours[0].state) for peer, m in bench.transport.control]
    assert sorted(farewells) == [("b", State.LEFT), ("c", State.LEFT)]


def test_a_reload_keeps_verdicts_and_without_probes_there_are_none() -> None:
    bench = probing()
    bench.transport.inbox.append(("b", said(State.DEAD)))
    bench.run(2, 2)
    bench.engine.reconfigure(replace(bench.engine.spec, limits=(FIRST, SLOW)), 2 * TICK_NS)
    bench.run(3, 3)
    assert verdicts(bench, 3 * TICK_NS)["c"] == ("dead", True)
    bench.engine.reconfigure(replace(bench.engine.spec, probes=None), 3 * TICK_NS)
    assert verdicts(bench, 3 * TICK_NS)["c"] == ("unknown", True)


def test_notices_of_a_peer_are_few_however_often_it_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("drld.notices.QUIET_NS", 20 * TICK_NS)
    bench, notices = probing(), Notices()
    assert bench.engine.probes is not None
    digest = bench.engine.probes.agreement.digest(ALL)
    states = [(counter, state) for counter in range(9) for state in (State.DEAD, State.ALIVE)]
    lines: list[tuple[int, str]] = []
    for number in range(2, 60):
        if states:
            counter, state = states.pop(0)
            message = said(state, counter=counter + (state is State.ALIVE))
            bench.transport.inbox.append(("b", replace(message, digest=digest)))
        bench.run(number, number)
        lines += [(number, line) for line in notices.lines(bench.engine, number * TICK_NS)]
    assert lines == [(2, "peer c is dead: nobody has heard from it"), (22, "peer c is back")]


def test_a_peer_that_is_removed_is_not_spoken_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drld.notices.QUIET_NS", 20 * TICK_NS)
    bench, notices = probing(), Notices()
    for number, state in ((2, State.DEAD), (3, State.ALIVE)):
        bench.transport.inbox.append(("b", said(state, counter=number)))
        bench.run(number, number)
        list(notices.lines(bench.engine, number * TICK_NS))
    assert bench.engine.judged == {"c"}
    peers = tuple(peer for peer in bench.engine.spec.peers if peer.name != "c")
    bench.engine.reconfigure(replace(bench.engine.spec, peers=peers), 3 * TICK_NS)
    assert list(notices.lines(bench.engine, 30 * TICK_NS)) == []


def test_notices_say_each_thing_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drld.notices.QUIET_NS", 0)
    bench, notices = probing(), Notices()
    number = 1

    def lines(*messages: tuple[str, Message]) -> list[str]:
        nonlocal number
        number += 1
        bench.transport.inbox += messages
        bench.run(number, number)
        return list(notices.lines(bench.engine, number * TICK_NS))

    same = bench.engine.probes
    assert same is not None
    digest = same.agreement.digest(ALL)

    def told(message: Control) -> Control:
        return replace(message, digest=digest)

    assert lines() == []
    assert lines(("b", told(said(State.SUSPECT)))) == []
    dead = ("b", told(said(State.DEAD)))
    assert lines(dead) == ["peer c is dead: nobody has heard from it"]
    assert lines(dead) == []
    assert lines(("b", told(said(State.ALIVE, counter=1)))) == ["peer c is back"]
    assert lines(("b", told(said(State.LEFT)))) == ["peer c has left"]
    other = Agreement([replace(FIRST, rate=1)], gossip_spec(), TICK_NS)
    named = []
    message = Control(Kind.ACK, 0, 0, other.digest(ALL))
    for _ in range(40):
        bench.transport.control.clear()
        named += lines(("b", message))
        for peer, question in bench.transport.control:
            if peer == "b":
                answer = other.digest(Selector.of(question.sequence))
                message = Control(Kind.ACK, question.sequence, 0, answer)
    assert named == ["peer b is configured otherwise for the limits first"]
    assert lines(("b", Control(Kind.ACK, 0, 0, digest))) == [
        "peer b is configured with the same limits again"
    ]
    number = 200
    assert lines() == ["no peer answers"]
