"""Taking a configuration over as far as the host goes along, and the file that remembers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from drld.errors import DatapathError
from drld.registry import cache, takeover
from drld.registry.cache import Remembered
from drld.registry.takeover import take_over
from drld.spec import LimiterSpec

from ...factories import limit_spec, limiter_spec
from ...registry_factories import FLEET, KEYS, limit, member

GOOD, BAD, LATER = (limit_spec(id=n, name=name) for n, name in enumerate(("good", "bad", "later")))


class Host:
    """Takes everything but limits called `bad`."""

    def __init__(self) -> None:
        self.specs: list[LimiterSpec] = []

    def __call__(self, spec: LimiterSpec) -> None:
        if "bad" in [limit.name for limit in spec.limits]:
            raise DatapathError("no such\ninterface")
        self.specs.append(spec)


def test_what_is_in_force_already_is_left_alone() -> None:
    host = Host()
    assert take_over(limiter_spec(BAD), limiter_spec(BAD), host) == (limiter_spec(BAD), {})
    assert host.specs == []


def test_what_the_host_takes_is_taken_over_at_once() -> None:
    host = Host()
    new = limiter_spec(GOOD, LATER, peers=("b", "c"))
    assert take_over(limiter_spec(GOOD), new, host) == (new, {})
    assert host.specs == [new]


def test_a_bad_limit_keeps_neither_members_nor_other_limits_back() -> None:
    host = Host()
    old = limiter_spec(replace(LATER, rate=1), limit_spec(id=9, name="old"))
    new = limiter_spec(BAD, GOOD, LATER, peers=("b", "c"))
    spec, refused = take_over(old, new, host)
    assert spec.peers == new.peers
    assert {found.id: found for found in spec.limits} == {GOOD.id: GOOD, LATER.id: LATER}
    assert refused == {BAD.id: "no such interface"}
    # The members come first.
    assert (host.specs[0].peers, host.specs[0].limits) == (new.peers, old.limits)
    assert host.specs[-1] == spec


def test_a_limit_that_turns_bad_stays_what_it_was() -> None:
    old = limiter_spec(GOOD)
    spec, refused = take_over(old, limiter_spec(replace(BAD, id=GOOD.id)), Host())
    assert spec == old
    assert refused.keys() == {GOOD.id}


def test_limits_are_tried_one_by_one_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "MAX_SINGLE", 2)
    spec, refused = take_over(limiter_spec(), limiter_spec(GOOD, BAD, LATER), Host())
    assert spec.limits == (GOOD,)
    assert "one of more than 2" in refused[LATER.id]


REMEMBERED = Remembered(FLEET, 7, {KEYS.member("a"): member(1), KEYS.limit(1): limit(1)})


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "cache"
    cache.save(str(path), KEYS, REMEMBERED)
    assert cache.load(str(path), KEYS) == REMEMBERED
    assert path.stat().st_mode & 0o777 == 0o600
    assert [found.name for found in path.parent.iterdir()] == ["cache"]
    assert cache.load(str(path), replace(KEYS, name="other")) is None
    assert cache.load(str(tmp_path / "nothing"), KEYS) is None


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
