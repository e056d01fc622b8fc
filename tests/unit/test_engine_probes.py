"""Probes in the engine, its reports and the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from drld.daemon.fleet_report import peer_reports, probes_report
from drld.daemon.peer_log import Notice, PeerLog
from drld.gossip.fabrics.tree_update import TREE
from drld.gossip.health.broadcast_queue import subject
from drld.gossip.health.config_digest import ALL, ConfigDigest, Selector
from drld.gossip.health.probes import Probes
from drld.gossip.wire.control_codec import Control, Kind, Rumour, State
from drld.gossip.wire.session import Met
from drld.model import NS_PER_S
from drld.shared_settings import shared_settings
from drld.spec import PeerSpec, ProbeSpec

from ..engine_fakes import FIRST, SLOW, Bench, heartbeat
from ..factories import TICK_NS, gossip_spec
from ..factories import limiter_spec as spec

DIFFERS = "has a different configuration: limits that differ: "


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
def test_a_verdict_is_logged_and_only_silence_removes_a_peer(state: State) -> None:
    bench = probing()
    bench.transport.inbox.append(("b", said(state)))
    bench.run(2, 2)
    assert verdicts(bench, 2 * TICK_NS) == {"b": ("alive", True), "c": (state.name.lower(), True)}
    bench.transport.inbox.append(("c", Met(9)))
    bench.run(3, 3)
    assert verdicts(bench, 3 * TICK_NS)["c"] == ("alive", True)


def test_a_peer_that_has_left_is_not_reported_for_its_configuration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = probing()
    monkeypatch.setattr(bench.engine, "disagreements", lambda: {"b": ["first"], "c": ["first"]})
    bench.transport.inbox.append(("b", said(State.LEFT)))
    bench.run(2, 2)
    report = probes_report(bench.engine, 2 * TICK_NS)
    assert report
    assert report["disagreeing"] == {"b": ["first"]}


def test_a_listing_of_peers_goes_on_across_a_reload_that_removes_one() -> None:
    bench = probing()
    listing = peer_reports(bench.engine, TICK_NS)
    assert next(listing)["name"] == "b"
    bench.engine.reconfigure(replace(bench.engine.spec, peers=()), TICK_NS)
    forgotten = TICK_NS + bench.engine.membership.forgotten_ns + 1
    assert bench.engine.node.forget_departed(forgotten)
    assert [peer["name"] for peer in listing] == ["c"]


def texts(notices: Iterable[Notice]) -> list[str]:
    return [notice.text for notice in notices]


class Unread(tuple[PeerSpec, ...]):
    """Peers that must not be looked through."""

    __slots__ = ()

    def __iter__(self) -> Iterator[PeerSpec]:
        raise AssertionError("the peers were looked through")


def test_a_tick_without_another_verdict_looks_through_no_peers() -> None:
    """There may be thousands of them."""
    bench, log = probing(), PeerLog()
    assert texts(log.lines(bench.engine, TICK_NS)) == []
    node = bench.engine.node
    node.spec = replace(node.spec, peers=Unread(node.spec.peers))
    assert texts(log.lines(bench.engine, TICK_NS)) == []
    node.judged.add("b")
    with pytest.raises(AssertionError):
        texts(log.lines(bench.engine, TICK_NS))


def test_a_verdict_of_life_connects_no_peer() -> None:
    bench = Bench(spec(FIRST, peers=("b", "c"), probes=ProbeSpec()))
    bench.transport.inbox += [("b", Met(3)), ("c", Met(2))]
    bench.run(1, 3)
    assert verdicts(bench, 3 * TICK_NS) == {"b": ("alive", False), "c": ("alive", False)}


def test_a_limiter_without_answers_is_isolated_and_still_follows_updates() -> None:
    bench = probing()
    (entry,) = bench.engine.limits.values()
    for number in range(2, 103):
        bench.transport.inbox += [("b", heartbeat(number)), ("c", heartbeat(number))]
        bench.packet(1)
        bench.run(number, number)
    assert bench.engine.node.probes is not None
    assert bench.engine.node.probes.isolated(102 * TICK_NS)
    assert entry.last is not None
    assert entry.last.in_force.rate == pytest.approx(FIRST.policy.rate)


def test_a_limiter_that_refuses_all_its_peers_says_once_that_the_keys_differ() -> None:
    bench = Bench(spec(FIRST, peers=("b",), probes=ProbeSpec()))
    peer_log = PeerLog(bench.transport.rejected)

    def lines(second: int) -> list[str]:
        found = texts(peer_log.lines(bench.engine, second * NS_PER_S))
        return [line for line in found if "keys" in line]

    bench.transport.rejected["tag"] = 12
    assert lines(0) == lines(9) == []
    assert lines(10) == [
        "no peer is heard, and 12 datagrams were refused: the keys or the names differ: compare "
        "drlctl keys list on all hosts"
    ]
    assert lines(30) == []


def test_a_limiter_that_stops_detaches_first_and_says_farewell_once() -> None:
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
    monkeypatch.setattr("drld.daemon.peer_log.QUIET_NS", 20 * TICK_NS)
    bench, peer_log = probing(), PeerLog()
    assert bench.engine.node.probes is not None
    digest = bench.engine.node.probes.config_digest.digest(ALL)
    states = [(counter, state) for counter in range(9) for state in (State.DEAD, State.ALIVE)]
    lines: list[tuple[int, str]] = []
    for number in range(2, 60):
        if states:
            counter, state = states.pop(0)
            message = said(state, counter=counter + (state is State.ALIVE))
            bench.transport.inbox.append(("b", replace(message, digest=digest)))
        bench.run(number, number)
        lines += [(number, line) for line in texts(peer_log.lines(bench.engine, number * TICK_NS))]
    assert lines == [
        (2, "peer c is dead: no limiter hears from it"),
        (22, "peer c is back (left out before it: 16)"),
    ]


def test_the_work_of_a_tick_is_linear_in_the_peers_that_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A partition that heals keeps the lines of thousands of peers waiting for `QUIET_NS`."""
    subtractions = 0

    class Counting(int):
        def __sub__(self, other: int) -> int:
            nonlocal subtractions
            subtractions += 1
            return int(self) - other

    peers = [f"p{number}" for number in range(100)]
    bench, peer_log = Bench(spec(FIRST, peers=peers, probes=ProbeSpec())), PeerLog()
    assert bench.engine.node.probes is not None
    states = bench.engine.node.probes.peer_states
    for state, expected in ((State.DEAD, 100), (State.ALIVE, 0)):
        monkeypatch.setattr(states, "state", lambda _, state=state: state)
        bench.engine.node.judged.update(peers)
        subtractions = 0
        lines = texts(peer_log.lines(bench.engine, Counting(TICK_NS)))
        assert len([line for line in lines if "dead" in line]) == expected
        assert subtractions < 1000


def test_notices_of_isolation_are_few_however_often_it_comes_and_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("drld.daemon.peer_log.QUIET_NS", 20 * TICK_NS)
    flaps = [number < 30 and number % 2 == 1 for number in range(100)]
    monkeypatch.setattr(Probes, "isolated", lambda _, now_ns: flaps[now_ns // TICK_NS])
    bench, peer_log = probing(), PeerLog()
    lines = [
        (number, line)
        for number in range(1, 100)
        for line in texts(peer_log.lines(bench.engine, number * TICK_NS))
    ]
    assert lines == [
        (1, "no peer answers this limiter: check its network and key"),
        (21, "peers answer again (left out before it: 18)"),
        (41, "peers answer again (left out before it: 9)"),
    ]


def test_notices_of_a_peer_s_limits_are_few_however_often_they_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("drld.daemon.peer_log.QUIET_NS", 20 * TICK_NS)
    bench, peer_log = probing(), PeerLog()
    found: dict[str, list[str]] = {}
    monkeypatch.setattr(bench.engine, "disagreements", lambda: found)
    monkeypatch.setattr(ConfigDigest, "agrees", lambda *_: True)
    lines = []
    for number in range(2, 100):
        found = {"b": ["first"]} if number < 30 and number % 2 else {}
        if number > 70:
            found = {"b": ["first", "7 (not here)", "[gossip]"], "c": ["[gossip]"]}
        lines += [(number, line) for line in texts(peer_log.lines(bench.engine, number * TICK_NS))]
    assert lines == [
        (3, f"peer b {DIFFERS}first"),
        (23, "peer b has the same configuration again (left out before it: 18)"),
        (43, "peer b has the same configuration again (left out before it: 7)"),
        (
            71,
            f"peer b {DIFFERS}first; "
            "limits missing here: id 7; [gossip]: fabric, branching or interval",
        ),
        (71, "peer c has a different configuration: [gossip]: fabric, branching or interval"),
    ]


def test_a_peer_that_is_removed_is_not_spoken_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drld.daemon.peer_log.QUIET_NS", 20 * TICK_NS)
    bench, peer_log = probing(), PeerLog()
    for number, state in ((2, State.DEAD), (3, State.ALIVE)):
        bench.transport.inbox.append(("b", said(state, counter=number)))
        bench.run(number, number)
        texts(peer_log.lines(bench.engine, number * TICK_NS))
    peers = tuple(peer for peer in bench.engine.spec.peers if peer.name != "c")
    bench.engine.reconfigure(replace(bench.engine.spec, peers=peers), 3 * TICK_NS)
    assert texts(peer_log.lines(bench.engine, 30 * TICK_NS)) == []


def test_notices_say_each_thing_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drld.daemon.peer_log.QUIET_NS", 0)
    bench, peer_log = probing(), PeerLog()
    number = 1

    def lines(*messages: tuple[str, Control | Met]) -> list[str]:
        nonlocal number
        number += 1
        bench.transport.inbox += messages
        bench.run(number, number)
        return texts(peer_log.lines(bench.engine, number * TICK_NS))

    same = bench.engine.node.probes
    assert same is not None
    digest = same.config_digest.digest(ALL)

    def told(message: Control) -> Control:
        return replace(message, digest=digest)

    assert lines() == []
    assert lines(("b", told(said(State.SUSPECT)))) == []
    dead = ("b", told(said(State.DEAD)))
    assert lines(dead) == ["peer c is dead: no limiter hears from it"]
    assert lines(dead) == []
    assert lines(("b", told(said(State.ALIVE, counter=1)))) == ["peer c is back"]
    assert lines(("b", told(said(State.LEFT)))) == ["peer c has left"]
    changed = replace(FIRST.policy, rate=1)
    other = ConfigDigest(shared_settings([changed], gossip_spec()), TICK_NS)
    named = []
    message = Control(Kind.ACK, 0, 0, other.digest(ALL))
    for _ in range(40):
        bench.transport.control.clear()
        named += lines(("b", message))
        for peer, question in bench.transport.control:
            if peer == "b":
                answer = other.digest(Selector.of(question.sequence))
                message = Control(Kind.ACK, question.sequence, 0, answer)
    assert named == [f"peer b {DIFFERS}first"]
    assert lines(("b", Control(Kind.ACK, 0, 0, digest))) == [
        "peer b has the same configuration again"
    ]
    number = 200
    assert lines() == ["no peer answers this limiter: check its network and key"]


def test_after_a_reload_a_peer_agrees_only_once_it_has_said_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("drld.daemon.peer_log.QUIET_NS", 0)
    bench, peer_log, number = probing(), PeerLog(), 1

    def lines(*rates: tuple[str, int]) -> list[str]:
        """The log after acknowledgements by peers whose first limit has these rates."""
        nonlocal number
        number += 1
        for peer, rate in rates:
            policy = replace(FIRST.policy, rate=rate)
            other = ConfigDigest(shared_settings([policy], gossip_spec()), TICK_NS)
            assert bench.engine.node.probes is not None
            digests = bench.engine.node.probes.config_digest
            digests.compare(peer, ALL, other.digest(ALL))
            while (asked := digests.question(number * NS_PER_S)) is not None:
                digests.compare(asked[0], asked[1], other.digest(asked[1]))
                number += 1
        lines = texts(peer_log.lines(bench.engine, number * NS_PER_S))
        return [line for line in lines if "configuration" in line]

    def reload(*peers: str) -> None:
        bench.engine.reconfigure(spec(FIRST, peers=peers, probes=ProbeSpec()), number * NS_PER_S)

    different = f"peer b {DIFFERS}first"
    assert lines(("b", 1)) == [different]
    reload("b", "c", "d")
    assert lines() == []
    assert lines(("b", 1)) == []
    reload("b", "c")
    assert lines(("b", FIRST.policy.rate)) == ["peer b has the same configuration again"]
    assert lines(("c", 1)) == [different.replace("b", "c", 1)]
    reload("b")
    assert lines() == []


def test_a_peer_of_another_wire_version_is_named_once_until_it_is_understood() -> None:
    bench, peer_log = probing(), PeerLog()
    found = bench.transport.other_versions
    bench.transport.inbox.append(("b", said(State.DEAD)))
    bench.run(2, 2)

    def lines(second: int) -> list[str]:
        logged = texts(peer_log.lines(bench.engine, second * NS_PER_S))
        return [it for it in logged if "version" in it]

    line = "peer c speaks wire version {}, this limiter 2: run the same version of drld on both"
    found["c"] = 1
    assert lines(1) == [line.format(1)]
    assert lines(2) == []
    found["c"] = 7
    assert lines(3) == []
    assert lines(12) == [line.format(7)]
    del found["c"]
    assert lines(30) == []
    found["c"] = 7
    assert lines(31) == [line.format(7)]


def test_a_peer_that_answers_probes_is_not_said_to_speak_another_version() -> None:
    """It was forged; but a peer that is dead, or has left, was upgraded since it was met."""
    bench, peer_log = probing(), PeerLog()
    bench.transport.other_versions["c"] = 7

    def lines(second: int) -> list[str]:
        logged = texts(peer_log.lines(bench.engine, second * NS_PER_S))
        return [it for it in logged if "version" in it]

    assert lines(1) == []
    bench.transport.inbox.append(("b", said(State.LEFT)))
    bench.run(2, 2)
    assert lines(2) == [
        "peer c speaks wire version 7, this limiter 2: run the same version of drld on both"
    ]


def test_a_peer_with_another_fabric_is_named_once_until_it_has_the_same() -> None:
    bench, peer_log = probing(), PeerLog()
    found = bench.transport.refused_kinds

    def lines(second: int) -> list[str]:
        logged = texts(peer_log.lines(bench.engine, second * NS_PER_S))
        return [line for line in logged if "fabric" in line]

    said = (
        "peer b uses the fabric tree, this limiter mesh, so neither hears the other: "
        "write the same gossip.fabric in all files"
    )
    found["b"] = TREE.kind, "fabric"
    assert lines(1) == [said]
    assert lines(2) == []
    # Another reason, as of a limiter that has not joined, is none of the fabric.
    found["b"] = TREE.kind, "unheeded"
    assert lines(20) == []
    found["b"] = TREE.kind, "fabric"
    assert lines(40) == [said]
