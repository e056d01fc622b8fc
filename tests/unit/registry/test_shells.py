"""Taking a configuration over as far as the host goes along, and the file that remembers."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from drld.errors import DatapathError
from drld.registry import cache
from drld.registry.cache import Remembered
from drld.registry.model import takeover
from drld.registry.model.takeover import take_over
from drld.spec import LimiterSpec, LimitSpec

from ...factories import limit_spec, limiter_spec, with_policy
from ...registry_factories import FLEET, KEYS, limit, member

GOOD, BAD, LATER = (limit_spec(id=n, name=name) for n, name in enumerate(("good", "bad", "later")))


class Host:
    """Takes everything but limits called `bad`; names those that it refuses if it can."""

    def __init__(self, *, names: bool = False, bound: int = 1 << 20) -> None:
        self.names = names
        self.bound = bound
        """More limits than these it does not take, whatever they are."""
        self.specs: list[LimiterSpec] = []
        self.tries = 0

    async def __call__(self, spec: LimiterSpec) -> None:
        self.tries += 1
        bad = [limit.id for limit in spec.limits if limit.name.startswith("bad")]
        if bad:
            why = "no such\ninterface"
            raise DatapathError(why, dict.fromkeys(bad, why) if self.names else None)
        if len(spec.limits) > self.bound:
            raise DatapathError("too many")
        self.specs.append(spec)


names_them = pytest.mark.parametrize("names", [False, True], ids=["unnamed", "named"])


async def test_limits_already_in_force_are_left_alone() -> None:
    host = Host()
    assert await take_over(limiter_spec(BAD), limiter_spec(BAD), host) == (limiter_spec(BAD), {})
    assert host.specs == []


async def test_limits_that_the_host_accepts_come_into_force_at_once() -> None:
    host = Host()
    new = limiter_spec(GOOD, LATER, peers=("b", "c"))
    assert await take_over(limiter_spec(GOOD), new, host) == (new, {})
    assert host.specs == [new]


@names_them
async def test_a_bad_limit_keeps_neither_members_nor_other_limits_back(names: bool) -> None:
    host = Host(names=names)
    old = limiter_spec(with_policy(LATER, rate=1), limit_spec(id=9, name="old"))
    new = limiter_spec(BAD, GOOD, LATER, peers=("b", "c"))
    spec, refused = await take_over(old, new, host)
    assert spec.peers == new.peers
    assert {found.id: found for found in spec.limits} == {GOOD.id: GOOD, LATER.id: LATER}
    assert refused == {BAD.id: "no such interface"}
    # The members come first.
    assert (host.specs[0].peers, host.specs[0].limits) == (new.peers, old.limits)
    assert host.specs[-1] == spec


@names_them
async def test_a_limit_that_turns_bad_stays_what_it_was(names: bool) -> None:
    old = limiter_spec(GOOD)
    spec, refused = await take_over(
        old, limiter_spec(with_policy(BAD, id=GOOD.id)), Host(names=names)
    )
    assert spec == old
    assert refused.keys() == {GOOD.id}


def many(count: int, *bad: int) -> list[LimitSpec]:
    return [
        limit_spec(id=n, name=f"{'bad' if n in bad else 'good'}{n}") for n in range(1, count + 1)
    ]


@names_them
async def test_one_bad_limit_of_many_takes_a_few_tries(names: bool) -> None:
    host = Host(names=names)
    limits = many(60, 41)
    spec, refused = await take_over(limiter_spec(), limiter_spec(*limits), host)
    assert {limit.id for limit in spec.limits} == set(range(1, 61)) - {41}
    assert refused.keys() == {41}
    # All of them at first; then named ones go at once, and else it is halved six times.
    assert host.tries <= (3 if names else 2 + 2 * 6)
    assert len(host.specs) <= (1 if names else 6)


async def test_many_bad_limits_that_are_named_take_a_few_tries() -> None:
    host = Host(names=True)
    limits = many(1000, *range(1, 1001, 2))
    spec, refused = await take_over(limiter_spec(), limiter_spec(*limits), host)
    assert (len(spec.limits), len(refused), host.tries) == (500, 500, 3)


async def test_as_many_come_into_force_as_there_is_room_for() -> None:
    old = limiter_spec(*many(3))
    spec, refused = await take_over(old, limiter_spec(*many(12)), Host(bound=7))
    assert len(spec.limits) == 7
    assert spec.limits[:3] == old.limits
    assert len(refused) == 5


async def test_a_limit_in_force_that_is_refused_now_blames_no_other() -> None:
    """Its interface may be gone; the operator who adds limits gets the reason."""
    host = Host(names=True)
    old = limiter_spec(BAD)
    spec, refused = await take_over(old, replace(old, limits=(BAD, *many(64)[3:])), host)
    assert spec == old
    assert (len(refused), host.tries) == (61, 2)


async def test_a_limit_in_force_that_is_refused_now_delays_no_member() -> None:
    """A newcomer waits for members that do not count it yet, whatever became of an interface."""
    old = limiter_spec(BAD, GOOD)
    new = limiter_spec(BAD, LATER, peers=("b", "c"))
    refuse = Host(names=True)

    async def host(spec: LimiterSpec) -> None:
        if spec.limits == old.limits:
            refuse.specs.append(spec)  # Nothing is attached again.
        else:
            await refuse(spec)

    spec, refused = await take_over(old, new, host)
    assert spec == replace(new, limits=old.limits)
    assert refuse.specs == [spec]
    assert refused.keys() == {GOOD.id, LATER.id}
    assert refused[GOOD.id] == "not removed: no such interface"


async def test_limits_are_tried_up_to_a_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "MAX_TRIES", 3)
    host = Host()
    spec, refused = await take_over(limiter_spec(), limiter_spec(*many(4, 2, 3)), host)
    assert [limit.id for limit in spec.limits] == [1]
    assert {4: "not tried: others are refused, after 3 tries"}.items() <= refused.items()
    assert refused.keys() == {2, 3, 4}


REMEMBERED = Remembered(
    FLEET, 7, {KEYS.member("a"): member(1), KEYS.limit(1): limit(1)}, {KEYS.member("b"): member(2)}
)


def test_a_saved_cache_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "cache"
    cache.save(str(path), KEYS, REMEMBERED)
    assert cache.load(str(path), KEYS) == REMEMBERED
    assert path.stat().st_mode & 0o777 == 0o600
    assert [found.name for found in path.parent.iterdir()] == ["cache"]
    assert cache.load(str(path), replace(KEYS, name="other")) is None
    assert cache.load(str(tmp_path / "nothing"), KEYS) is None


def pipe(path: Path) -> None:
    """Put a pipe into the place of a file."""
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "damaged"),
        (lambda path: path.write_text(path.read_text().replace("/f/", "/g/")), "another fleet"),
        (lambda path: (path.unlink(), path.mkdir()), "must be a regular file (got a directory)"),
        (pipe, "must be a regular file (got a pipe)"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    tmp_path: Path, damage: Callable[[Path], object], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "cache"
    cache.save(str(path), KEYS, REMEMBERED)
    damage(path)
    assert cache.load(str(path), KEYS) is None
    (line,) = caplog.messages
    assert line.startswith(f"registry.cache is not used: {path}: ")
    assert why in line


def test_a_file_that_cannot_be_written_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cache"
    cache.save(str(path), KEYS, REMEMBERED)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        cache.save(str(path), KEYS, REMEMBERED._replace(revision=8))
    assert cache.load(str(path), KEYS) == REMEMBERED
    assert [found.name for found in tmp_path.iterdir()] == ["cache"]
