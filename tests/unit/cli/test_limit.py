"""The verbs of `drlctl limit` for one limiter, and `drlctl diff`: what people see."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from drld.config.changes import Configuration
from drld.config.files import Files as ConfigFiles
from drld.config.toml_text import toml
from tests.control_fake import CONFIGURATION, FakeDaemon
from tests.unit.cli.drlctl import drlctl, invoke, lines, output, refused

UNTIL = "in force (until a restart or a reload); --save keeps it\n"
WARNING = (
    "drlctl: limiters that share a limit must agree: make the same change at each of these "
    "that has the limit: lim2\n"
)
"""The daemon of these tests always says so."""


async def done(control: Path, *args: object) -> str:
    result = await drlctl(control, "limit", *args)
    assert (result.exit_code, result.stderr) == (0, WARNING)
    return result.stdout


def table(daemon: FakeDaemon, limit: str) -> Any:
    limits = daemon.configuration.document()["limit"]
    return next(it for it in limits if it["name"] == limit)


async def test_set_prints_each_changed_key(control: Path, daemon: FakeDaemon) -> None:
    said = await done(control, "set", "customer-a", "--rate", "20mbit", "--ewma", "0.2")
    assert said == (
        'limit customer-a: rate: "10mbit" -> "20mbit"\n'
        "limit customer-a: ewma: (left out) -> 0.2\n" + UNTIL
    )
    await done(control, "set", "1", "--source-port", "80", "--protocol", "tcp")
    await done(control, "set", "1", "--in", "eth2", "--out", "")
    assert table(daemon, "customer-a") == {
        "id": 1,
        "name": "customer-a",
        "rate": "20mbit",
        "ewma": 0.2,
        "match": {"in": "eth2", "source_port": "80", "protocol": "tcp"},
    }
    said = await done(control, "set", "1", "--rate", "20mbit")
    assert said == "nothing changes\n"
    said = await done(control, "set", "1", "--rate", "20mbit", "--save")
    assert said == "in force, and saved in /etc/drld/drld.toml.d/99-drlctl.toml\n"


@pytest.mark.parametrize(
    ("option", "given", "said"),
    [
        ("--destination-port", ("80", "443"), "given once, as 80,443 (got 80 and 443)"),
        ("--out", ("eth0", "eth1"), "given once (got eth0 and eth1)"),
    ],
)
async def test_a_repeated_option_of_the_target_is_refused(
    control: Path, option: str, given: tuple[str, str], said: str
) -> None:
    repeated = (option, given[0], option, given[1])
    result = await drlctl(control, "limit", "set", "1", *repeated)
    assert result.exit_code == 2
    assert f"must be {said}\n" in result.stderr


@pytest.mark.parametrize("mode", ["pause", "shadow"])
async def test_verbs_change_the_mode(control: Path, daemon: FakeDaemon, mode: str) -> None:
    said = await done(control, mode, "customer-a")
    assert said == f'limit customer-a: mode: (left out) -> "{mode}"\n' + UNTIL
    said = await done(control, "enforce", "customer-a", "--save")
    saved = "/etc/drld/drld.toml.d/99-drlctl.toml"
    assert said.endswith(f"in force, and saved in {saved}\n")
    assert table(daemon, "customer-a")["mode"] == "enforce"


async def test_add_and_remove(control: Path, daemon: FakeDaemon, tmp_path: Path) -> None:
    options = ("--name", "b", "--rate", "1mbit", "--out", "eth1")
    assert await done(control, "add", "--id", 7, *options) == "limit b: added\n" + UNTIL
    file = tmp_path / "more.toml"
    file.write_text(
        toml(
            {
                "limit": [
                    {"id": number, "name": f"c{number}", "rate": "1mbit", "match": {"in": "a"}}
                    for number in (8, 9)
                ]
            }
        )
    )
    assert await done(control, "add", file) == "limit c8: added\nlimit c9: added\n" + UNTIL
    assert await done(control, "remove", "c8") == "limit c8: removed\n" + UNTIL
    names = [limit.name for limit in daemon.configuration.in_force.limits]
    assert names == ["customer-a", "b", "c9"]


async def test_a_change_is_printed_as_json(control: Path) -> None:
    report = json.loads(await output(control, "limit", "pause", "customer-a", "--json"))
    assert report == {
        "changes": [
            {"table": "limit customer-a", "change": "changed", "keys": {"mode": [None, "pause"]}}
        ],
        "saved": None,
        "needed_at": ["lim2"],
    }
    result = await drlctl(control, "limit", "set", "customer-a", "--rate", "fast", "--json")
    assert result.exit_code == 1
    (problem,) = json.loads(result.stdout)["problems"]
    assert problem.startswith("limit[0].rate: must be a rate")


async def test_refusals_name_the_key(control: Path, tmp_path: Path) -> None:
    said = refused(await drlctl(control, "limit", "set", "customer-a", "--mode", "monitor"))
    assert said == (
        "drlctl: limit[0].mode: must be 'enforce', 'shadow' or 'pause' (got 'monitor')\n"
    )
    options = ("--name", "b", "--rate", "fast", "--out", "eth1")
    result = await drlctl(control, "limit", "add", *options)
    assert result.exit_code == 1
    assert result.stderr == (
        "drlctl: limit[0].id: is required: one that is free at all limiters, such as 2 (--id 2)\n"
        "limit[0].rate: must be a rate such as \"10mbit\" (got 'fast')\n"
    )
    said = refused(await drlctl(control, "limit", "remove", "nix"))
    assert said == "drlctl: the daemon refuses: no limit is named 'nix'\n"
    said = refused(await drlctl(control, "limit", "show", "a/b"))
    assert said == "drlctl: no limit is named 'a/b': names have no slash\n"
    for verb in (("pause",), ("set", "--rate", "1mbit"), ("show",), ("suggest",)):
        said = refused(await drlctl(control, "limit", *verb, "custmer a"))
        assert said == (
            "drlctl: the daemon refuses: no limit is named 'custmer a'; "
            'did you mean "customer-a"?\n'
        )
    said = refused(await drlctl(control, "limit", "add", tmp_path / "none.toml"))
    assert said.endswith("none.toml: No such file or directory\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("add",), "either a FILE with [[limit]] tables, or options"),
        (("add", "x.toml", "--rate", "1mbit"), "either a FILE with [[limit]] tables, or options"),
        (("set", "a"), "nothing to set: give an option such as --rate"),
        (("pause", "a", "--fleet", "--save"), "--save is for this limiter"),
        (("pause", "a", "--wait", "3"), "--wait is for the fleet's registry: add --fleet"),
        (("show", "--config", "x"), "--config is for the fleet's registry: add --fleet"),
        (("remove",), "Missing argument 'LIMIT'"),
    ],
)
def test_wrong_usage_is_explained(arguments: tuple[str, ...], said: str) -> None:
    result = invoke("limit", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.parametrize("verb", ["add", "set", "remove", "pause", "shadow", "enforce", "show"])
def test_every_verb_has_an_example_in_its_help(verb: str) -> None:
    help_text = invoke("limit", verb, "--help").stdout
    assert f"  drlctl limit {verb} " in help_text
    assert "--fleet" in help_text
    assert "--json" in help_text


async def test_show_names_unsaved_keys(control: Path) -> None:
    assert await output(control, "limit", "show") == await output(control, "limits")
    said = await output(control, "limit", "show", "b")
    assert "unsaved      mode, match (until a restart or a reload)\n" in said
    assert "unsaved" not in await output(control, "limit", "show", "customer-a")


async def test_unsaved_and_dropped_changes_are_named(control: Path, daemon: FakeDaemon) -> None:
    daemon.report["config"]["unsaved"] = ["customer-a", "b"]
    said = await output(control, "status")
    assert "unsaved   customer-a, b (until a restart or a reload)\n" in said
    daemon.report["config"]["dropped"] = ["b"]
    assert await output(control, "reload") == lines("""
        /etc/drld/drld.toml is in force
        unsaved changes are dropped: b
    """)


class Files:
    """The daemon's file, and another for `drlctl diff`."""

    def __init__(self, daemon: FakeDaemon, directory: Path) -> None:
        self.own, self.other = directory / "drld.toml", directory / "new.toml"
        daemon.report["config"]["file"] = str(self.own)
        self.document: dict[str, Any] = {}
        for kind, value in CONFIGURATION.files.document.items():
            self.document[kind] = [*value] if isinstance(value, list) else value
        self.own.write_text(toml(self.document))

    def write(self, limits: list[Any], **limiter: str) -> None:
        document = {**self.document, "limit": limits}
        document["limiter"] = {**self.document["limiter"], **limiter}
        self.other.write_text(toml(document))


async def test_diff_prints_what_a_reload_would_change(
    control: Path, daemon: FakeDaemon, tmp_path: Path
) -> None:
    files = Files(daemon, tmp_path)
    assert await output(control, "diff") == ""
    (limit,) = files.document["limit"]
    changed = {**limit, "rate": "20mbit", "match": {"out": "eth2"}}
    files.write([changed, {**limit, "id": 2, "name": "b"}])
    result = await drlctl(control, "diff", files.other)
    assert (result.exit_code, result.stderr) == (1, "")
    assert result.stdout == lines("""
        limit customer-a: rate: "10mbit" -> "20mbit"
        limit customer-a: match.out: "eth1" -> "eth2"
        limit b: added
    """)
    # Unsaved changes are what a reload takes back; drop-ins stay.
    await done(control, "set", "customer-a", "--mode", "pause")
    result = await drlctl(control, "diff")
    assert result.stdout == 'limit customer-a: mode: "pause" -> (left out)\n'
    drop_in = tmp_path / "drld.toml.d" / "x.toml"
    drop_in.parent.mkdir()
    drop_in.write_text('[[limit]]\nid = 1\nmode = "pause"\n')
    assert await output(control, "diff") == ""
    drop_in.unlink()
    files.write([])
    result = await drlctl(control, "diff", files.other, "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["refused"] == []
    assert [(it["table"], it["change"]) for it in found["differences"]] == [
        ("limit customer-a", "removed")
    ]


async def test_diff_names_the_changes_that_a_reload_refuses(
    control: Path, daemon: FakeDaemon, tmp_path: Path
) -> None:
    files = Files(daemon, tmp_path)
    files.write(files.document["limit"], listen="10.0.0.1:7000")
    result = await drlctl(control, "diff", files.other)
    assert result.exit_code == 1
    assert result.stdout == 'limiter: listen: "10.0.0.1:7946" -> "10.0.0.1:7000"\n'
    assert result.stderr.startswith(
        "drlctl: a reload would be refused: limiter.listen: cannot change"
    )


async def test_diff_compares_each_broker(control: Path, daemon: FakeDaemon, tmp_path: Path) -> None:
    brokers = [
        {"name": name, "protocol": "mqtt", "listen": f"/run/{name}", "server": f"/run/{name}.mqtt"}
        for name in ("north", "south")
    ]
    document = {**CONFIGURATION.files.document, "broker": brokers}
    daemon.configuration = Configuration.of(ConfigFiles("drld.toml", document))
    files = Files(daemon, tmp_path)
    files.document["broker"] = [{**brokers[0], "server": "/run/moved.mqtt"}, brokers[1]]
    files.write(files.document["limit"])
    result = await drlctl(control, "diff", files.other)
    assert (result.exit_code, result.stderr) == (1, "")
    assert result.stdout == 'broker north: server: "/run/north.mqtt" -> "/run/moved.mqtt"\n'


async def test_diff_ends_with_2_if_it_cannot_tell(
    control: Path, daemon: FakeDaemon, tmp_path: Path
) -> None:
    files = Files(daemon, tmp_path)
    files.write([{**files.document["limit"][0], "rate": "fast"}])
    result = await drlctl(control, "diff", files.other)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "new.toml: limit[0].rate: must be a rate" in result.stderr
    assert (await drlctl(tmp_path / "none.sock", "diff")).exit_code == 2
