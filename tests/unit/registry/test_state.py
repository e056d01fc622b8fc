"""A limiter's state, from the keys that its registry holds and lacks."""

from __future__ import annotations

import pytest

from drld.police.policer import Excess
from drld.registry.model import state
from drld.registry.model.state import Event, Member, Registry
from drld.spec import LimitSpec

from ...registry_factories import FLEET, KEYS, OTHER, events, known, limit, member

A, B, C = (KEYS.member(name) for name in "abc")
ONE, TWO = KEYS.limit(1), KEYS.limit(2)


def following(*changes: dict[str, bytes | None], name: str = "a") -> Registry:
    """A limiter that knows a fleet of `a` and `b` with one limit as of revision 10."""
    registry = known(name)
    there: dict[str, bytes | None] = {
        KEYS.fleet: FLEET.encode(),
        A: member(1),
        B: member(2),
        ONE: limit(1),
    }
    registry.resync(events(there, 10), 10)
    for number, change in enumerate(changes, start=11):
        registry.apply(events(change, number))
    return registry


def resync(registry: Registry, revision: int, there: dict[str, bytes | None]) -> None:
    """Let it read a whole registry in which all was written at this revision."""
    registry.resync(events(there, revision), revision)


def restore(registry: Registry) -> None:
    """Put again what it would, from revision 2 on."""
    for number, (key, value) in enumerate(registry.restoration(), start=2):
        registry.apply([Event(key, value, number)])


def wanted(registry: Registry, now_s: int = 0) -> tuple[Member, int]:
    """The value that it would register, and the revision that it replaces."""
    found = registry.registration(now_s)
    assert found is not None
    return found


def test_a_snapshot_is_the_fleet() -> None:
    registry = following()
    assert registry.members.keys() == {"a", "b"}
    assert registry.members["b"].value.address == ("127.0.0.2", 7946)
    assert registry.limits[1].value.policy.rate == 1_250_000
    assert registry.continuous
    assert (registry.fleet, registry.revision, registry.seen) == (FLEET, 10, 10)
    assert not registry.problems


def test_only_values_that_have_changed_are_read_again() -> None:
    """A large fleet's values take a second to read, and a reconnection brings them all."""
    registry = following({ONE: b"bad"})
    reads: list[str] = []
    read = registry._read

    class Noted:
        def limit(self, value: bytes, key: str) -> LimitSpec:
            reads.append(key)
            return read.limit(value, key)

        def member(self, value: bytes, key: str) -> Member:
            reads.append(key)
            return read.member(value, key)

    registry._read = Noted()
    there: dict[str, bytes | None] = {KEYS.fleet: FLEET.encode(), A: member(1), B: member(3)}
    registry.resync(events({**there, ONE: limit(1)}, 20), 20)
    assert reads == [B]
    assert registry.members["b"].value.address == ("127.0.0.3", 7946)
    assert {held.revision for held in registry.members.values()} == {20}
    assert (registry.limits[1].revision, registry.seen) == (20, 20)
    assert not registry.problems
    # A batch that was read ahead leaves nothing to read.
    reads.clear()
    there[C], there[TWO] = member(4), b"bad"
    items = events({**there, ONE: limit(1)}, 30)
    registry.read_ahead(items)
    assert reads == [C, TWO]
    registry.resync(items, 30)
    assert reads == [C, TWO, TWO]
    assert registry.members["c"].value.address == ("127.0.0.4", 7946)
    assert registry.problems.keys() == {TWO}


def test_events_change_the_state() -> None:
    registry = following({C: member(3), TWO: limit(2)}, {B: None, ONE: None})
    assert registry.members.keys() == {"a", "c"}
    assert registry.limits.keys() == {2}
    assert registry.seen == 12


BAD_LIMITS = {
    b"": "not JSON",
    b"\xff": "not JSON",
    b"[" * 100_000: "not JSON",
    b"[]": "must be a table (got an empty array)",
    limit(1, rate="10mbot"): "rate: must be a rate such as \"10mbit\" (got '10mbot')",
    limit(1, match={"protocol": "tcp"}): 'match: must have exactly one of "in" and "out"',
    limit(1, burst="automatic"): 'burst: must be "auto", or a size',
    limit(1, excess="ecn"): "excess: must be 'drop' or 'mark' (got 'ecn')",
    limit(1, flow="ports"): 'flow: must be "5-tuple", "source", or',
    limit(1, weights={"a": 0}): "weights.a: must be a number from 0.001 to 1000 (got 0)",
    limit(1, weights={"": 1}): "weights.'': must be a name: 1 to 64",
    limit(1, rat="1mbit"): 'rat: unknown key; did you mean "rate"?',
    limit(1, allocator="ctb"): "allocator: must be an allocator for several limiters",
    limit(1, allocator={"name": "fps", "headroom": -9}): "allocator.headroom",
    limit(1, shares={"a": 0.5}): "shares: must sum to 1 (got 0.5)",
    limit(1, ewma=float("nan")): "ewma",
    limit(2): "id: must be 1, as in the key (got 2)",
    b'"' + b"x" * (300 << 10) + b'"': "more than 262144 bytes",
}


def test_an_automatic_burst_follows_the_rate() -> None:
    registry = following()
    for revision, (rate, burst) in enumerate((("10mbit", 312_500), ("20mbit", 625_000)), start=11):
        changed = limit(1, rate=rate, burst="auto")
        registry.apply([Event(ONE, changed, revision)])
        found = registry.limits[1].value
        assert (found.policy.burst, found.policy.burst_is_automatic) == (burst, True)


def test_excess_and_weights_are_the_fleets() -> None:
    registry = following()
    changed = limit(1, excess="mark", weights={"a": 2, "nobody": 0.5})
    registry.apply([Event(ONE, changed, 11)])
    found = registry.limits[1].value
    assert found.policy.excess is Excess.MARK
    assert found.policy.weights == {"a": 2.0, "nobody": 0.5}


@pytest.mark.parametrize("value", BAD_LIMITS, ids=lambda value: repr(value[:40]))
def test_a_bad_limit_keeps_the_last_good_one_and_names_key_and_field(value: bytes) -> None:
    registry = following()
    good = registry.limits[1]
    registry.apply([Event(ONE, value, 11)])
    assert registry.limits[1] == good
    assert registry.problems.keys() == {ONE}
    assert registry.problems[ONE].startswith("etcd /drld/f/limits/1: ")
    assert BAD_LIMITS[value] in registry.problems[ONE]
    assert registry.rejected == 1
    registry.apply([Event(ONE, limit(1, rate="20mbit"), 12)])
    assert registry.limits[1].value.policy.rate == 2_500_000
    assert not registry.problems


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"{}", "address: is required"),
        (b'{"address": 7}', "address: must be an address and a port"),
        (b'{"address": "0.0.0.0:7946"}', "one address, not the wildcard"),
        (
            b'{"address": "127.0.0.2:7946", "joined": "yes"}',
            "joined: must be true or false (got 'yes')",
        ),
        (b'{"address": "127.0.0.2:7946", "since": -1}', "since: must be at least 0 (got -1)"),
        (b'{"address": "127.0.0.2:7946", "since": 1e400}', "since"),
        (b"null", "must be a table (got None)"),
    ],
)
def test_a_bad_member_stays_what_it_was(value: bytes, said: str) -> None:
    registry = following()
    before = registry.members["b"]
    registry.apply([Event(B, value, 11)])
    assert registry.members["b"] == before
    assert said in registry.problems[B]
    assert registry.problems[B].startswith("etcd /drld/f/members/b: ")


def test_members_of_later_versions_are_members() -> None:
    registry = following({C: b'{"address": "127.0.0.3:7946", "colour": "blue"}'})
    assert "c" in registry.members


@pytest.mark.parametrize(
    "key",
    ["members/", "members/a b", "members/a/b", "limits/0", "limits/01", "limits/65536", "limits/x"],
)
def test_keys_of_no_known_form_are_counted_and_nothing_else(key: str) -> None:
    registry = following({KEYS.prefix + key: limit(1)})
    assert registry.rejected == 1
    assert registry.members.keys() == {"a", "b"}
    assert registry.limits.keys() == {1}


def test_a_bad_value_that_is_deleted_is_no_problem_any_more() -> None:
    registry = following({TWO: b"?"}, {TWO: None})
    assert not registry.problems


# What is gone


def test_deleting_all_keys_makes_no_limiter_forget() -> None:
    registry = following({KEYS.fleet: None, ONE: None, A: None, B: None})
    assert registry.members.keys() == {"a", "b"}
    assert registry.limits.keys() == {1}
    assert not registry.continuous
    assert registry.lost == 3


def test_a_wiped_etcd_is_filled_again() -> None:
    registry = following()
    registry.resync([], 1)
    assert registry.members.keys() == {"a", "b"}
    assert registry.restoration() == [(ONE, limit(1)), (A, member(1)), (B, member(2))]
    assert not registry.founding
    assert registry.registration(0) is None
    restore(registry)
    assert (registry.lost, registry.continuous, registry.founding) == (0, False, True)
    assert registry.fleet == FLEET
    registry.apply([Event(KEYS.fleet, FLEET.encode(), 5)])
    assert (registry.continuous, registry.revision, registry.joined) == (True, 5, True)


def test_many_revisions_told_at_once_are_those_told_one_by_one() -> None:
    changes: list[dict[str, bytes | None]] = [
        {KEYS.fleet: None, A: None, B: None, ONE: None},
        {A: member(1)},
        {KEYS.fleet: FLEET.encode()},
    ]
    one_by_one, at_once = following(*changes), following()
    at_once.apply(
        [it for number, one in enumerate(changes, start=11) for it in events(one, number)]
    )
    for registry in (one_by_one, at_once):
        assert registry.knowledge().keys() == {A, B, ONE}
        assert [key for key, _ in registry.restoration()] == [ONE, B]
        assert (registry.continuous, registry.seen) == (True, 13)


def test_another_registry_in_place_of_the_known_one_takes_nothing_away() -> None:
    registry = following()
    slow = limit(1, rate="1mbit")
    resync(registry, 90, {KEYS.fleet: OTHER.encode(), C: member(3), ONE: slow})
    assert registry.members.keys() == {"a", "b", "c"}
    assert registry.limits[1].value.policy.rate == 125_000
    assert registry.fleet == FLEET
    for key, value in registry.restoration():
        registry.apply([Event(key, value, 91)])
    assert (registry.fleet, registry.continuous) == (OTHER, True)
    registry.apply([Event(B, None, 92)])
    assert registry.members.keys() == {"a", "c"}


def test_a_registry_that_went_back_in_time_takes_nothing_away() -> None:
    registry = following({C: member(3)})
    resync(registry, 9, {KEYS.fleet: FLEET.encode(), A: member(1), B: member(2)})
    assert registry.members.keys() == {"a", "b", "c"}
    assert [key for key, _ in registry.restoration()] == [ONE, C]


def test_a_member_removed_during_an_outage_is_gone() -> None:
    registry = following()
    resync(registry, 20, {KEYS.fleet: FLEET.encode(), A: member(1), ONE: limit(1)})
    assert registry.members.keys() == {"a"}


def test_a_registry_without_a_readable_identity_takes_nothing_away() -> None:
    registry = following({KEYS.fleet: b"mine now"}, {B: None})
    assert registry.members.keys() == {"a", "b"}
    assert "must be the fleet's identity" in registry.problems[KEYS.fleet]
    assert not registry.founding


def test_the_first_limiter_founds_the_fleet() -> None:
    registry = known()
    registry.resync([], 1)
    assert registry.founding
    registry.apply([Event(KEYS.fleet, FLEET.encode(), 2)])
    assert registry.continuous
    assert not registry.founding


# Registration


def test_a_newcomer_waits_until_all_members_count_it() -> None:
    registry = following(name="c")
    ours, revision = wanted(registry, 1_800_000_000)
    assert (ours.joined, ours.since, revision) == (False, 1_800_000_000, 0)
    assert registry.waiting_for == ["a", "b"]
    registry.apply([Event(C, member(1, joined=False), 11)])
    assert registry.registration(0) is None
    registry.acknowledge("a", 11)
    registry.acknowledge("b", 10)
    registry.acknowledge("stranger", 11)
    assert registry.waiting_for == ["b"]
    registry.acknowledge("b", 12)
    assert registry.waiting_for == []
    ours, revision = wanted(registry)
    assert (ours.joined, revision, registry.joined) == (True, 11, False)
    registry.apply([Event(C, member(1), 12)])
    assert (registry.joined, registry.registration(0)) == (True, None)


def test_a_limiter_alone_joins_at_once() -> None:
    registry = known()
    registry.resync([], 1)
    registry.apply([Event(A, member(1, joined=False), 2)])
    assert wanted(registry)[0].joined


def test_a_restart_finds_itself_joined() -> None:
    registry = known()
    old = following()
    registry.recall(old.fleet, old.revision, old.knowledge(), {})
    assert registry.joined
    assert registry.members.keys() == {"a", "b"}
    assert registry.limits.keys() == {1}


def test_a_limiter_with_another_address_joins_again() -> None:
    registry = following(name="b")
    assert not registry.joined
    ours, revision = wanted(registry, 7)
    assert (ours.address, ours.joined, revision) == (("127.0.0.1", 7946), False, 10)


def test_a_removed_limiter_joins_again() -> None:
    registry = following({A: None})
    assert not registry.joined
    ours, revision = wanted(registry)
    assert (ours.joined, revision) == (False, 0)


def test_garbage_in_the_limiter_s_own_key_is_replaced() -> None:
    registry = following({A: b"?"})
    assert registry.joined
    ours, revision = wanted(registry)
    assert (ours.joined, revision) == (True, 11)


def test_an_acknowledgement_belongs_to_one_registry() -> None:
    registry = following({C: member(3, joined=False)}, name="c")
    registry.acknowledge("a", 1000)
    registry.acknowledge("b", 1000)
    registry.resync([], 1)
    restore(registry)
    assert registry.waiting_for == ["a", "b"]


# Bounds


def test_the_number_of_members_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "MAX_MEMBERS", 3)
    registry = following({C: member(3), KEYS.member("d"): member(4)}, {C: member(5)})
    assert registry.members.keys() == {"a", "b", "c"}
    assert "more than 3 members" in registry.problems[KEYS.member("d")]
    assert registry.members["c"].value.address == ("127.0.0.5", 7946)


def test_members_that_left_during_an_outage_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = following()
    monkeypatch.setattr(state, "MAX_MEMBERS", 2)
    there: dict[str, bytes | None] = {KEYS.fleet: FLEET.encode(), A: member(1), C: member(3)}
    registry.resync(events(there, 20), 20)
    assert registry.members.keys() == {"a", "c"}
    assert not registry.problems


def test_the_bytes_of_all_values_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = following()
    monkeypatch.setattr(state, "MAX_BYTES", sum(map(len, registry.knowledge().values())) + 10)
    registry.apply([Event(TWO, limit(2), 11)])
    assert "bytes in the registry" in registry.problems[TWO]
    registry.apply([Event(B, None, 12), Event(ONE, None, 12), Event(TWO, limit(2), 13)])
    assert registry.limits.keys() == {2}


def test_the_number_of_problems_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "MAX_PROBLEMS", 3)
    registry = following({KEYS.limit(number): b"?" for number in range(100, 120)})
    assert len(registry.problems) == 3
    assert registry.rejected == 20


def test_a_limiter_that_left_during_the_founding_is_not_registered_again() -> None:
    """All of it is told at once to a limiter that has read an empty registry."""
    registry = known("b", 2)
    registry.resync([], 1)
    founded = [Event(KEYS.fleet, FLEET.encode(), 2), Event(A, member(1), 3), Event(A, None, 4)]
    registry.apply(founded)
    assert (registry.members, registry.lost, registry.restoration()) == ({}, 0, [])
    assert registry.continuous
    # A limiter that knew a member does not drop it when another registry replaces its own.
    registry = following()
    wiped = [Event(KEYS.fleet, None, 11), Event(B, None, 11)]
    registry.apply([*wiped, Event(KEYS.fleet, OTHER.encode(), 12)])
    assert registry.members.keys() == {"a", "b"}
