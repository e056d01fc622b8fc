"""Changes of limits at run time: what is in force, what is saved, what a restart finds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drld import config
from drld.config.atomic_file import replace_by
from drld.config.changes import SAVED, Change, Configuration
from drld.errors import ConfigError
from tests.unit.config.good import GOOD

NEW = {"id": 7, "name": "b", "rate": "1mbit", "match": {"in": "eth1"}}


class Host:
    """A daemon's files and its configuration."""

    def __init__(self, file: Path) -> None:
        self.file = file
        file.write_text(GOOD)
        self.restart()

    def restart(self) -> None:
        self.now = Configuration.of(config.read(self.file))

    def do(self, change: Change) -> None:
        """Apply a change as the daemon does."""
        before, self.now = self.now, self.now.changed(change)
        if change.save:
            replace_by(self.now.drop_in, self.now.write(before))

    def add(self, *tables: Any, save: bool = False) -> None:
        self.do(Change("add", tables, save=save))

    def set(self, limit: str = "a", *, save: bool = False, **keys: Any) -> None:
        self.do(Change("set", [keys], limit, save))

    def remove(self, limit: str, *, save: bool = False) -> None:
        self.do(Change("remove", (), limit, save))

    def refusal(self, change: Change) -> list[str]:
        """The mistakes of a change, which changes nothing."""
        before = self.now
        with pytest.raises(ConfigError) as caught:
            self.do(change)
        self.now = before
        return caught.value.problems

    @property
    def limits(self) -> dict[str, tuple[int, str]]:
        """Rate in bytes per second, and mode, by name."""
        limits = self.now.in_force.limits
        return {it.name: (it.policy.rate, it.policy.mode.value) for it in limits}

    def after_restart(self) -> dict[str, tuple[int, str]]:
        other = Host.__new__(Host)
        other.file = self.file
        other.restart()
        return other.limits

    @property
    def saved(self) -> str:
        return (config.drop_ins(str(self.file)) / SAVED).read_text()


AS_FILED = {"a": (1_250_000, "enforce")}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "drld.toml")


def test_a_change_names_its_keys_and_is_reverted_by_a_restart(host: Host) -> None:
    host.set(rate="2mbit")
    host.set("1", mode="shadow")
    assert host.limits == {"a": (250_000, "shadow")}
    assert host.now.in_force.limits[0].policy.burst == 400_000
    assert host.now.unsaved_keys()[1] == ["rate", "mode"]
    assert host.now.unsaved_names() == ["a"]
    assert host.now.document()["limit"][0]["rate"] == "2mbit"
    assert host.after_restart() == AS_FILED
    assert not config.drop_ins(str(host.file)).exists()


def test_only_limits_differ(host: Host) -> None:
    before = host.now.in_force
    host.file.write_text(GOOD.replace("10.0.0.2", "10.0.0.3"))
    host.set(rate="2mbit")
    assert replace(host.now.in_force, limits=()) == replace(before, limits=())


def test_limits_are_added_and_removed(host: Host) -> None:
    host.add(NEW)
    assert host.limits == {**AS_FILED, "b": (125_000, "enforce")}
    assert host.now.unsaved_keys()[7] == ["id", "name", "rate", "match"]
    host.set("b", mode="pause")
    host.remove("a")
    assert host.limits == {"b": (125_000, "pause")}
    assert host.now.unsaved_names() == ["b", "a"]
    host.remove("7")
    assert host.limits == {}
    assert host.now.unsaved_names() == ["a"]
    assert host.after_restart() == AS_FILED


def test_a_change_that_is_taken_back_leaves_the_limit_as_the_files_have_it(host: Host) -> None:
    """Its digest is the file's, too: the limiter has no key that the file leaves out."""
    before = host.now.in_force.limits[0]
    for mode in ("pause", "enforce"):
        host.set(mode=mode, excess="drop")
    assert host.now.unsaved == {}
    assert host.now.in_force.limits[0] is before


def test_saved_changes_are_there_after_a_restart(host: Host) -> None:
    host.set(rate="2mbit", save=True)
    assert host.saved.startswith("# Written by `drlctl limit ... --save`")
    assert host.saved.endswith('[[limit]]\nid = 1\nname = "a"\nrate = "2mbit"\n')
    host.add(NEW, save=True)
    host.set("b", mode="shadow", save=True)
    expected = {"a": (250_000, "enforce"), "b": (125_000, "shadow")}
    assert host.limits == host.after_restart() == expected
    assert host.now.unsaved == {}
    # The operator's own file is left alone, and counts where nothing else is saved.
    assert host.file.read_text() == GOOD
    host.file.write_text(GOOD.replace("400kB", "300kB"))
    host.restart()
    assert host.now.in_force.limits[0].policy.burst == 300_000


def test_a_save_writes_the_keys_of_its_change_alone(host: Host) -> None:
    host.set(mode="pause")
    host.set(burst="auto")
    host.set(rate="2mbit", burst="300kB", save=True)
    assert host.limits == {"a": (250_000, "pause")}
    assert host.now.unsaved_keys()[1] == ["mode"]
    assert host.after_restart() == {"a": (250_000, "enforce")}


def test_all_keys_of_an_unsaved_limit_are_saved(host: Host) -> None:
    host.add(NEW)
    host.set("b", rate="3mbit")
    host.set("b", mode="shadow", save=True)
    assert host.after_restart() == {**AS_FILED, "b": (375_000, "shadow")} == host.limits
    assert host.now.unsaved == {}


def test_a_single_key_s_override_is_changed_and_saved_with_the_others(host: Host) -> None:
    def overrides() -> dict[str, int]:
        policy = next(it for it in host.now.in_force.limits if it.name == "user").policy
        assert policy.keyed is not None
        return {it.key[0]: it.burst // 1_000_000 for it in policy.keyed.overrides}

    host.file.write_text(f'[requests]\nlisten = "/run/x"\n{GOOD}')
    host.restart()
    match = {"namespace": "api", "per": "user"}
    host.add({"id": 9, "name": "user", "rate": "1/s", "burst": 5, "match": match,
              "overrides": ["user=a,burst=1", "user=b,burst=2"]}, save=True)  # fmt: skip
    host.set("user", overrides=["user=b,burst=3"])
    assert overrides() == {"a": 1, "b": 3}
    host.set("user", overrides=["user=c,burst=4"], save=True)
    assert overrides() == {"a": 1, "b": 3, "c": 4}
    host.restart()
    assert overrides() == {"a": 1, "b": 3, "c": 4}
    host.set("user", overrides=["user=a"], save=True)
    host.restart()
    assert overrides() == {"b": 3, "c": 4}
    assert host.refusal(Change("set", [{"overrides": ["who=a,burst=1"]}], "user")) == [
        "limit[0].overrides[2].user: is required: it is a name of match.per",
        "limit[0].overrides[2].who: unknown key; known here: user, rate, burst",
    ]
    assert host.refusal(Change("set", [{"overrides": ["user=b,rat=1/s"]}], "user")) == [
        'limit[0].overrides[2].rat: unknown key; did you mean "rate"?',
        "limit[0].overrides[2]: must have rate or burst",
    ]
    host.set("user", overrides=["user=never"])
    assert overrides() == {"b": 3, "c": 4}


def test_edits_of_match_keep_its_other_fields(host: Host) -> None:
    def match() -> Any:
        (found,) = [it["match"] for it in host.now.document()["limit"] if it["name"] == "b"]
        return found

    host.add(NEW, save=True)
    host.set("b", match=["protocol=udp"], save=True)
    host.restart()
    assert match() == {"in": "eth1", "protocol": "udp"}
    host.set("b", match=["in=", "out=eth2"])
    assert match() == {"out": "eth2", "protocol": "udp"}
    host.set("b", match={"in": "eth3"})
    assert match() == {"in": "eth3"}
    (line,) = host.refusal(Change("set", [{"match": ["out=eth2"]}], "b"))
    assert line.startswith('limit[0].match: must have exactly one of "in" and "out"')
    assert host.refusal(Change("set", [{"match": ["in"]}], "b")) == [
        "limit[0].match: must be a table (got an array)"
    ]


def test_removals_are_saved(host: Host) -> None:
    host.add(NEW, save=True)
    host.set(mode="shadow")
    host.remove("a", save=True)
    assert host.after_restart() == host.limits == {"b": (125_000, "enforce")}
    host.remove("b", save=True)
    assert host.after_restart() == host.limits == {}
    assert "id = 7" not in host.saved
    assert host.now.unsaved == {}


def test_the_last_saved_change_can_be_taken_back(host: Host) -> None:
    host.add(NEW, save=True)
    host.remove("b", save=True)
    assert host.saved.endswith("\nlimit = []")
    assert host.after_restart() == host.limits == AS_FILED


def test_ids_are_not_given_out_twice(host: Host) -> None:
    host.remove("a")
    host.add(NEW)
    for taken in (1, 7):
        free = f"limit[0].id: must be one that no limit has or had (got {taken})"
        assert host.refusal(Change("add", [{**NEW, "id": taken, "name": "c"}])) == [free]
    twice = [{**NEW, "id": 9, "name": "c"}, {**NEW, "id": 9, "name": "d"}]
    (line,) = host.refusal(Change("add", twice))
    assert line == "limit[1].id: must be one that no limit has or had (got 9)"


def test_in_a_fleet_an_id_is_required_and_alone_the_first_free_one_is_taken(host: Host) -> None:
    nameless = {key: NEW[key] for key in ("name", "rate", "match")}
    required = "limit[0].id: is required: one that is free at all limiters, such as 2 (--id 2)"
    assert host.refusal(Change("add", [nameless])) == [required]
    wrong = {"name": "b", "rato": 3, "mode": "off", "match": {"out": "eth1"}}
    assert host.refusal(Change("add", [wrong, {**nameless, "id": 1, "rate": "fast"}])) == [
        required,
        "limit[1].id: must be one that no limit has or had (got 1)",
        "limit[0].rate: is required",
        "limit[0].mode: must be 'enforce', 'shadow' or 'pause' (got 'off')",
        'limit[0].rato: unknown key; did you mean "rate"?',
        "limit[1].rate: must be a rate such as \"10mbit\" (got 'fast')",
    ]
    alone = GOOD[: GOOD.index("[[peer]]")] + GOOD[GOOD.index("[[limit]]") :]
    host.file.write_text(alone)
    host.restart()
    host.add(nameless, {**nameless, "name": "c"})
    assert [limit.id for limit in host.now.in_force.limits] == [1, 2, 3]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            Change("set", [{"rate": "fast"}], "a"),
            "limit[0].rate: must be a rate such as \"10mbit\" (got 'fast')",
        ),
        (Change("set", [{"id": 3}], "a"), "limit[0].id: cannot be set: add or remove the limit"),
        (
            Change("set", [{"remove": True}], "a"),
            "limit[0].remove: cannot be set: add or remove the limit",
        ),
        (
            Change("set", [{"rato": 3}], "a", save=True),
            'limit[0].rato: unknown key; did you mean "rate"?',
        ),
        (Change("add", [3]), "limit[0]: must be a table (got 3)"),
        (
            Change("add", [{**NEW, "id": "7"}]),
            "limit[0].id: must be an integer from 1 to 65535 (got '7')",
        ),
        (Change("add", [{**NEW, "remove": None}]), "limit[0].remove: unknown key"),
        (
            Change("set", [{"shares": {"lim1": 1}}], "a"),
            "limit[0].shares: must name every limiter of the fleet (missing: lim2)",
        ),
    ],
)
def test_a_mistake_names_the_key_of_the_change(host: Host, change: Change, line: str) -> None:
    assert host.refusal(change) == [line]
    assert not config.drop_ins(str(host.file)).exists()


def test_a_clash_names_the_file(host: Host) -> None:
    (line,) = host.refusal(Change("add", [{**NEW, "name": "a"}]))
    other = f"limit[0].name of {host.file}"
    assert line == f"limit[0].name: must be unique, but {other} is the same (got 'a')"
    host.add(NEW)
    (line,) = host.refusal(Change("add", [{**NEW, "id": 8}]))
    other = "limit[0].name of an unsaved change"
    assert line == f"limit[0].name: must be unique, but {other} is the same (got 'b')"
    (line,) = host.refusal(Change("set", [{"name": "c"}], "a"))
    known = f"the name of limit 1 in {host.file}, 'a'"
    assert line == f"limit[0].name: must be {known} (got 'c')"


def test_a_missing_limit_is_an_error(host: Host) -> None:
    for change in (Change("set", [{}], "nix"), Change("remove", (), "nix")):
        with pytest.raises(KeyError):
            host.now.changed(change)


def test_a_limit_that_is_named_like_another_s_id_is_not_guessed(host: Host) -> None:
    host.add({**NEW, "name": "1"})
    for change in (Change("remove", (), "1"), Change("set", [{"rate": "2mbit"}], "1")):
        (line,) = host.refusal(change)
        assert line == (
            "limit: must be the name or the id of one limit, but limit 7 has the name (got '1')"
        )
    host.remove("7")
    host.remove("1")
    assert host.limits == {}


def test_files_that_changed_unread_are_not_overwritten(host: Host) -> None:
    host.file.write_text(GOOD + "# a remark changes nothing\n")
    host.set(rate="2mbit", save=True)
    host.file.write_text(GOOD.replace("400kB", "300kB"))
    (line,) = host.refusal(Change("set", [{"rate": "3mbit"}], "a", save=True))
    assert "has changed since it was read" in line
    assert '"2mbit"' in host.saved
    host.restart()
    (config.drop_ins(str(host.file)) / "50.toml").write_text("[[limit]]\nid = 1\newma = 0.2\n")
    assert host.refusal(Change("set", [{"rate": "3mbit"}], "a", save=True))


def test_a_change_that_a_later_drop_in_undoes_is_not_saved(host: Host) -> None:
    host.set(mode="shadow", save=True)
    later = config.drop_ins(str(host.file)) / "zz.toml"
    later.write_text('[[limit]]\nid = 1\nrate = "1mbit"\n')
    host.restart()
    (line,) = host.refusal(Change("set", [{"rate": "3mbit"}], "a", save=True))
    assert line.endswith(f"{later} would change it again: change that file")
    host.set(mode="pause", save=True)
    assert host.after_restart() == {"a": (125_000, "pause")}


def test_values_that_toml_does_not_have_and_places_that_cannot_be_written(host: Host) -> None:
    (line,) = host.refusal(Change("set", [{"interval": None}], "a", save=True))
    assert line.startswith(f"{host.now.drop_in}: ")
    config.drop_ins(str(host.file)).write_text("")
    (line,) = host.refusal(Change("set", [{"mode": "pause"}], "a", save=True))
    assert "Not a directory" in line
    assert host.limits == AS_FILED
