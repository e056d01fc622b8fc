"""`drlctl fleet`, and `drlctl limit ... --fleet`, with a real etcd: what people see."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from drld.cli import main
from drld.errors import RegistryError
from drld.registry.admin import Fleet, Status
from drld.registry.etcd import Etcd
from drld.registry.records import write_alive

from ...etcd_server import EtcdServer
from ...registry_factories import KEYS, address, limit, member

LIMITS = """
[[limit]]
name = "a"
allocator = "fps"
rate = "1mbit"
burst = "15kB"
match = { out = "uplink", destination = "10.9.2.0/24" }
[[limit]]
id = 9
name = "b"
allocator = "fps"
rate = "2mbit"
excess = "mark"
weights = { l1 = 2 }
match = { in = "uplink" }
mode = "shadow"
"""
OPTIONS = ("--name", "c", "--rate", "1mbit", "--burst", "15kB", "--in", "uplink")
"""The options of a limit that is added without a file."""


ADD, SET, REMOVE, SHOW = (("limit", verb, "--fleet") for verb in ("add", "set", "remove", "show"))


class Operator:
    """Somebody with a file that says where the registry is."""

    def __init__(self, directory: Path) -> None:
        self.etcd = EtcdServer(directory / "etcd")
        self.directory = directory

    def file(self, name: str, text: str) -> str:
        path = self.directory / name
        path.write_text(text)
        return str(path)

    def drlctl(self, *arguments: str) -> Result:
        registry = (
            f'[registry]\nendpoints = ["http://127.0.0.1:1", "{self.etcd.url}"]\nfleet = "f"\n'
        )
        file = self.file("drld.toml", registry)
        environment = {"DRLD_CONTROL": None, "DRLD_CONFIG": file}
        return CliRunner().invoke(main, [*arguments], prog_name="drlctl", env=environment)

    def output(self, *arguments: str) -> str:
        result = self.drlctl(*arguments)
        assert (result.exit_code, result.stderr) == (0, "")
        return result.stdout

    def refusal(self, *arguments: str) -> str:
        result = self.drlctl(*arguments)
        assert (result.exit_code, result.stdout) == (1, "")
        return result.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    made = Operator(tmp_path_factory.mktemp("fleet"))
    try:
        made.etcd.start()
        yield made
    finally:
        made.etcd.kill()


@pytest.fixture
def operator(built: Operator) -> Operator:
    """An empty registry."""
    built.etcd.delete("/drld/")
    return built


def test_limits_may_come_from_a_file(operator: Operator) -> None:
    added = operator.output(*ADD, operator.file("limits.toml", LIMITS))
    assert added.startswith("limits 1, 9, revision ")
    assert added.endswith(": applied by 0 of 0\n")
    assert operator.output(*SHOW).splitlines() == [
        "NAME  ALLOCATOR  MODE     MATCH                      ID         RATE           BURST",
        "a     fps        enforce  out uplink to 10.9.2.0/24   1  1.00 Mbit/s         15.0 kB",
        "b     fps        shadow   in uplink                   9  2.00 Mbit/s  62.5 kB (auto)",
    ]
    second = json.loads(operator.output(*SHOW, "--json"))["limits"][1]
    assert (second["excess"], second["weights"]) == ("mark", {"l1": 2})
    assert operator.output(*REMOVE, "9").startswith("limit 9 removed, revision ")
    assert operator.output(*ADD, *OPTIONS, "--excess", "mark").startswith("limit 2, ")
    assert operator.refusal(*ADD, *OPTIONS, "--id", "9") == (
        "drlctl: limit[0].id: must be one that was never given out, but etcd "
        "/drld/f/limits/9 had it (got 9)\n"
        "limit[0].name: must be unique, but etcd /drld/f/limits/2 has it (got 'c')\n"
    )


def test_a_limit_that_is_named_like_another_s_id_is_not_guessed(operator: Operator) -> None:
    operator.etcd.put(KEYS.limit(1), limit(1, name="5"))
    operator.etcd.put(KEYS.limit(5), limit(5, name="x"))
    assert operator.refusal(*REMOVE, "5") == (
        "drlctl: limit: must be the name or the id of one limit, but limit 1 has the name "
        "(got '5')\n"
    )
    assert operator.output(*REMOVE, "x").startswith("limit 5 removed")
    assert operator.output(*REMOVE, "5").startswith("limit 1 removed")


def test_keys_of_a_limit_change_and_the_others_stay(operator: Operator) -> None:
    operator.output(*ADD, operator.file("limits.toml", LIMITS))
    assert operator.output(*SET, "b", "--rate", "3mbit").startswith("limit 9, revision ")
    for mode in ("shadow", "pause", "enforce"):
        assert operator.output("limit", mode, "9", "--fleet").startswith("limit 9, revision ")
        (shown,) = json.loads(operator.output(*SHOW, "b", "--json"))["limits"]
        assert (shown["rate"], shown["mode"], shown["excess"]) == ("3mbit", mode, "mark")
        said = operator.refusal("limit", mode, "c", "--fleet")
        assert said == "drlctl: fleet f has no limit 'c'\n"
    assert len(operator.output(*SHOW, "9").splitlines()) == 2
    assert operator.refusal(*SET, "b", "--name", "a", "--rate", "fast") == (
        "drlctl: limit[0].name: must be unique, but etcd /drld/f/limits/1 has it (got 'a')\n"
        "limit[0].rate: must be a rate such as \"10mbit\" (got 'fast')\n"
    )
    assert operator.refusal(*SET, "c", "--rate", "1mbit") == "drlctl: fleet f has no limit 'c'\n"
    assert operator.refusal(*SHOW, "c") == "drlctl: the fleet has no limit 'c'\n"
    assert operator.drlctl(*SET, "b").exit_code == 2
    result = operator.drlctl(*REMOVE, "b", "--save")
    assert result.exit_code == 2
    assert "--save is for this limiter: a registry keeps all changes" in result.stderr


def test_all_limits_of_a_file_are_added_or_none(operator: Operator) -> None:
    operator.etcd.put(KEYS.limit(9), limit(9, name="x"))
    operator.etcd.put(KEYS.given_out(9), "{}")
    wrong = LIMITS.replace('"2mbit"', '"fast"').replace('"b"', '"a"').replace('"1mbit"', '"slow"')
    assert operator.refusal(*ADD, operator.file("bad.toml", wrong.replace("mode", "mod"))) == (
        "drlctl: limit[0].rate: must be a rate such as \"10mbit\" (got 'slow')\n"
        "limit[1].id: must be one that was never given out, but etcd /drld/f/limits/9 has it; "
        "`drlctl limit set` changes it (got 9)\n"
        "limit[1].rate: must be a rate such as \"10mbit\" (got 'fast')\n"
        'limit[1].mod: unknown key; did you mean "mode"?\n'
    )
    operator.output(*REMOVE, "9")
    twice = (
        LIMITS.replace('"b"', '"a"')
        .replace("id = 9", "id = 1")
        .replace("[[limit]]", "[[limit]]\nid = 1", 1)
    )
    assert operator.refusal(*ADD, operator.file("twice.toml", twice)) == (
        "drlctl: limit[1].id: must be unique, but another has it (got 1)\n"
    )
    twice = operator.file("twice.toml", LIMITS.replace('"b"', '"a"'))
    assert "limit[1].name: must be unique" in operator.refusal(*ADD, twice)
    odd = operator.file("odd.toml", '[limiter]\nname = "x"\n')
    assert "must have [[limit]] tables, and nothing else" in operator.refusal(*ADD, odd)
    rows = operator.file("rows.toml", "limit = [5]\n")
    assert operator.refusal(*ADD, rows) == "drlctl: limit[0]: must be a table (got 5)\n"
    many = "\n".join(
        LIMITS.partition("[[limit]]\nid")[0].replace('"a"', f'"{n}"') for n in range(61)
    )
    assert operator.refusal(*ADD, operator.file("many.toml", many)) == (
        "drlctl: 61 limits: at most 60 at once\n"
    )
    assert not [key for key in operator.etcd.get("/drld/f/") if "limits" in key]
    assert operator.drlctl(*ADD).exit_code == 2


def test_members_that_have_not_applied_a_limit_are_listed(operator: Operator) -> None:
    operator.etcd.put(KEYS.member("a"), '{"address": "10.0.0.1:7946", "joined": true}')
    operator.etcd.put(KEYS.member("b"), '{"address": "10.0.0.2:7946", "since": 1700000000}')
    operator.etcd.put(KEYS.member("c"), '{"address": "10.0.0.3:7946"}')
    refused = f'{{"{KEYS.limit(1)}": "etcd {KEYS.limit(1)}: no uplink here"}}'
    for name, number, applied in (("a", 1, 10**9), ("b", 2, 1)):
        value = f'{{"address": "10.0.0.{number}:7946", "applied": {applied}, "refused": {refused}}}'
        operator.etcd.put(KEYS.alive(name), value)
    assert operator.output("fleet", "members").splitlines() == [
        "NAME  ADDRESS        STATE    SINCE                       APPLIED  REFUSED",
        "a     10.0.0.1:7946  joined   1970-01-01 00:00:00 UTC  1000000000        1",
        "b     10.0.0.2:7946  joining  2023-11-14 22:13:20 UTC           1        1",
        "c     10.0.0.3:7946  away     1970-01-01 00:00:00 UTC           -        -",
    ]
    file = operator.file("limits.toml", LIMITS)
    result = operator.drlctl(*ADD, file, "--wait", "0.1")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0].endswith(": applied by 0 of 3")
    assert result.stdout.splitlines()[1:] == [
        "a refuses etcd /drld/f/limits/1: no uplink here",
        "b refuses etcd /drld/f/limits/1: no uplink here",
        "b has not applied it yet",
        "c is away from etcd",
    ]
    assert "b is alive" in operator.refusal("fleet", "remove", "b")
    assert operator.refusal("fleet", "remove", "d") == "drlctl: fleet f has no member 'd'\n"
    assert operator.output("fleet", "remove", "c", "--wait", "0").startswith("c removed, revision ")
    assert operator.output("fleet", "remove", "b", "--force", "--wait", "0").startswith("b removed")


def test_a_member_with_many_refusals_shows_the_newest(operator: Operator) -> None:
    """The member gives the first few reasons of its refusals, and all ids."""
    refused = {
        KEYS.limit(number): f"etcd {KEYS.limit(number)}: no interface\nof this name"
        for number in range(100, 120)
    }
    operator.etcd.put(KEYS.member("a"), member(1))
    operator.etcd.put(KEYS.alive("a"), write_alive(KEYS, address(1), 10**9, refused))
    result = operator.drlctl(*ADD, *OPTIONS, "--id", "119")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[1:] == ["a refuses limit 119: its drlctl status says why"]
    assert operator.output("fleet", "members").splitlines()[1].split()[-1] == "20"
    result = operator.drlctl(*REMOVE, "119")
    assert result.exit_code == 1
    assert "a refuses limit 119" in result.stdout


def test_unusable_records_are_shown_and_can_be_removed(operator: Operator) -> None:
    operator.etcd.put(KEYS.limit(3), limit(3, rate="fast"))
    result = operator.drlctl(*SHOW)
    assert result.exit_code == 0
    assert "no limiter can use etcd /drld/f/limits/3: rate: must be a rate" in result.stderr
    said = operator.refusal(*ADD, *OPTIONS, "--id", "3")
    assert "/limits/3 has it; `drlctl limit set` changes it (got 3)" in said
    assert operator.output(*SET, "3", *OPTIONS).startswith("limit 3, revision ")
    assert json.loads(operator.output(*SHOW, "c", "--json"))["limits"][0]["rate"] == "1mbit"
    operator.etcd.put(KEYS.limit(3), "?")
    assert operator.output(*REMOVE, "3").startswith("limit 3 removed")
    operator.etcd.put(KEYS.member("a"), '{"address": "10.0.0.1"}')
    result = operator.drlctl("fleet", "members")
    assert result.exit_code == 0
    assert "no limiter can use etcd /drld/f/members/a: address: must be an address" in result.stderr
    assert operator.output("fleet", "remove", "a", "--wait", "0").startswith("a removed")


def test_the_id_of_a_limit_that_was_deleted_by_hand_is_not_given_out_again(
    operator: Operator,
) -> None:
    assert operator.output(*ADD, *OPTIONS).startswith("limit 1, ")
    operator.etcd.delete(KEYS.limit(1))
    assert operator.output(*ADD, *OPTIONS).startswith("limit 2, ")


def test_an_id_deleted_during_the_command_is_not_given_out_again(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = Etcd.commit

    async def late(etcd: Etcd, changes: Any, *rest: Any) -> int | None:
        if KEYS.limit(1) in changes:
            # Another operator has added it, and removed it.
            operator.etcd.put(KEYS.given_out(1), "{}")
        return await commit(etcd, changes, *rest)

    with monkeypatch.context() as during:
        during.setattr(Etcd, "commit", late)
        said = operator.refusal(*ADD, *OPTIONS)
    assert said.endswith("another client has changed this in the meantime: run the command again\n")
    assert operator.output(*ADD, *OPTIONS).startswith("limit 2, ")


def test_an_etcd_that_is_lost_in_the_middle(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change that etcd has taken is neither reported as refused nor done twice."""

    async def lost(*_: object) -> list[Status]:
        raise RegistryError("no answer in time")

    with monkeypatch.context() as during:
        during.setattr(Fleet, "applied", lost)
        said = operator.refusal(*ADD, *OPTIONS)
        assert said.startswith("drlctl: the change is made, revision ")
        assert "no answer in time" in said
    commit = Etcd.commit

    async def half(etcd: Etcd, changes: Any, *rest: Any) -> int | None:
        revision = await commit(etcd, changes, *rest)
        if KEYS.limit(2) in changes:
            raise RegistryError("no answer in time")
        return revision

    with monkeypatch.context() as during:
        during.setattr(Etcd, "commit", half)
        said = operator.refusal(*ADD, *OPTIONS, "--name", "d")
        assert said.endswith(
            "no answer in time; the change may be in force: "
            "check `drlctl limit show --fleet` before you try again\n"
        )
    assert len(operator.output(*SHOW).splitlines()) == 3


def test_a_file_without_a_registry_and_an_etcd_that_is_not_there(tmp_path: Path) -> None:
    operator = Operator(tmp_path)
    said = operator.refusal("fleet", "members")
    assert said.count("http://127.0.0.1:") == 2
    other = ("--config", operator.file("other.toml", ""))
    for arguments in (
        ["fleet", *other, "members"],
        ["fleet", "members", *other],
        ["fleet", "remove", "lim3", *other],
        ["fleet", "--config", "/nowhere", "members", *other],
    ):
        result = CliRunner().invoke(main, arguments, prog_name="drlctl")
        assert result.exit_code == 1
        assert "registry: is required: the file must have a [registry] table" in result.stderr


def test_the_fleet_s_overrides_are_changed_one_by_one(operator: Operator) -> None:
    options = (
        "--name",
        "user",
        "--rate",
        "1/s",
        "--burst",
        "5",
        "--namespace",
        "api",
        "--per",
        "user",
    )
    operator.output(*ADD, *options, "--override", "user=a,burst=1", "--override", "user=b,rate=2/s")
    operator.output(*SET, "user", "--override", "user=b,rate=3/s", "--override", "user=a")

    def overrides() -> object:
        (found,) = json.loads(operator.output(*SHOW, "user", "--json"))["limits"]
        return found["overrides"]

    assert overrides() == [{"user": "b", "rate": "3/s"}]
    said = operator.refusal(*SET, "user", "--override", "user=c,rate=fast")
    assert "overrides[1].rate: must be a rate" in said
    operator.output(*SET, "user", "--override", "user=b")
    assert overrides() == []
