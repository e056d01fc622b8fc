"""Drop-ins: files beside the operator's own that add, change and remove limits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from drld import config
from drld.errors import ConfigError
from drld.policy import Mode
from tests.unit.config.good import GOOD

SECOND = """
[[limit]]
id = 7
name = "b"
rate = "1mbit"
match = { in = "eth1" }
"""


class Folder:
    """A configuration file and its drop-ins."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "drld.toml"
        self.file.write_text(GOOD)
        self.drop_ins = config.drop_ins(str(self.file))

    def add(self, name: str, text: str) -> None:
        self.drop_ins.mkdir(exist_ok=True)
        (self.drop_ins / name).write_text(text)

    def problems(self) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            config.load(self.file)
        return caught.value.problems

    def problem(self) -> str:
        """The only one, after the drop-in's path."""
        (line,) = self.problems()
        assert line.startswith(f"{self.drop_ins}/")
        return line.removeprefix(f"{self.drop_ins}/")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_without_a_directory_or_with_an_empty_one_the_file_alone_counts(folder: Folder) -> None:
    alone = config.parse(GOOD, "f")
    assert config.load(folder.file) == alone
    folder.drop_ins.mkdir()
    assert config.load(folder.file) == alone


def test_a_drop_in_adds_changes_and_removes_limits(folder: Folder) -> None:
    folder.add("10-more.toml", SECOND)
    folder.add("20-slow.toml", '[[limit]]\nid = 1\nname = "a"\nrate = "2mbit"\nmode = "shadow"\n')
    first, second = config.load(folder.file).limits
    assert (first.policy.rate, first.policy.burst) == (250_000, 400_000)
    assert first.policy.mode is Mode.SHADOW
    assert set(first.policy.written or ()) == {
        "id",
        "name",
        "rate",
        "burst",
        "match",
        "match.out",
        "mode",
    }
    assert (second.id, second.name) == (7, "b")
    folder.add("30-less.toml", "[[limit]]\nid = 1\nremove = true\n")
    assert [limit.id for limit in config.load(folder.file).limits] == [7]


def test_the_last_by_name_wins(folder: Folder) -> None:
    folder.add("20.toml", '[[limit]]\nid = 1\nrate = "2mbit"\n')
    folder.add("10.toml", '[[limit]]\nid = 1\nrate = "3mbit"\nburst = "auto"\n')
    (limit,) = config.load(folder.file).limits
    assert (limit.policy.rate, limit.policy.burst_is_automatic) == (250_000, True)


def test_files_that_are_no_drop_ins_are_left_alone(folder: Folder) -> None:
    for name in (".hidden.toml", "99-drlctl.toml.new", "README"):
        folder.add(name, "?")
    folder.add("empty.toml", "# nothing yet\n")
    folder.add("gone.toml", "[[limit]]\nid = 99\nremove = true\n")
    assert config.load(folder.file) == config.parse(GOOD, "f")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("limit = 3", "must have [[limit]] tables, and nothing else"),
        ("[gossip]\nfabric = 'mesh'\n", "must have [[limit]] tables, and nothing else"),
        ("limit = [3]", "limit[0]: must be a table (got 3)"),
        ("[[limit]]\nrate = '1mbit'\n", "limit[0].id: is required"),
        ("[[limit]]\nid = '1'\n", "limit[0].id: must be an integer from 1 to 65535 (got '1')"),
        (
            "[[limit]]\nid = 1\nrate = 'fast'\n",
            "limit[0].rate: must be a rate such as \"10mbit\" (got 'fast')",
        ),
        ("[[limit]]\nid = 1\nrato = 1\n", 'limit[0].rato: unknown key; did you mean "rate"?'),
        (
            "[[limit]]\nid = 1\nmatch = { in = 'a', out = 'b' }\n",
            'limit[0].match: must have exactly one of "in" and "out" (got both)',
        ),
        (
            "[[limit]]\nid = 1\nrate = '1mbit'\n[[limit]]\nid = 1\nmode = 'shadow'\n",
            "limit[1].id: must be unique in its file (got 1)",
        ),
        (
            "[[limit]]\nid = 1\nremove = false\n",
            "limit[0].remove: must be true, and have no other keys beside id and name",
        ),
        (
            "[[limit]]\nid = 1\nrate = '1mbit'\nremove = true\n",
            "limit[0].remove: must be true, and have no other keys beside id and name",
        ),
    ],
)
def test_a_mistake_names_the_drop_in_and_the_key(folder: Folder, text: str, said: str) -> None:
    folder.add("10-empty.toml", "limit = []")
    folder.add("20-bad.toml", text)
    assert folder.problem() == f"20-bad.toml: {said}"


def test_a_change_of_a_limit_that_is_gone_is_a_mistake(folder: Folder) -> None:
    folder.add("x.toml", '[[limit]]\nid = 9\nrate = "1mbit"\nmatch = { in = "eth1" }\n')
    assert folder.problem() == "x.toml: limit[0].name: is required"


def test_a_drop_in_changes_only_the_limit_that_it_names(folder: Folder) -> None:
    folder.add("x.toml", SECOND.replace("7", "1"))
    name = f"the name of limit 1 in {folder.file}, 'a'"
    assert folder.problem() == f"x.toml: limit[0].name: must be {name} (got 'b')"


def test_a_clash_names_both_files(folder: Folder) -> None:
    folder.add("x.toml", SECOND.replace('"b"', '"a"'))
    unique = f"must be unique, but limit[0].name of {folder.file} is the same (got 'a')"
    assert folder.problem() == f"x.toml: limit[0].name: {unique}"
    folder.add("x.toml", SECOND + SECOND.replace("7", "8"))
    unique = "must be unique, but limit[0].name is the same (got 'b')"
    assert folder.problem() == f"x.toml: limit[1].name: {unique}"


def test_mistakes_of_the_file_itself_keep_their_place(folder: Folder) -> None:
    folder.file.write_text(GOOD.replace('"10mbit"', '"fast"'))
    folder.add("x.toml", '[[limit]]\nid = 1\nmode = "shadow"\n')
    (line,) = folder.problems()
    assert line.startswith(f"{folder.file}: limit[0].rate: must be a rate")
    # And a drop-in may put it right.
    folder.add("x.toml", '[[limit]]\nid = 1\nrate = "1mbit"\n')
    assert config.load(folder.file).limits[0].policy.rate == 125_000


def test_all_bad_drop_ins_are_named_at_once(folder: Folder) -> None:
    folder.add("a.toml", "?")
    folder.add("b.toml", "[limiter]\n")
    (folder.drop_ins / "c.toml").mkdir()
    os.mkfifo(folder.drop_ins / "d.toml")
    a, b, c, d = folder.problems()
    assert a.startswith(f"{folder.drop_ins}/a.toml: ")
    assert b.startswith(f"{folder.drop_ins}/b.toml: must have")
    assert c == f"{folder.drop_ins}/c.toml: must be a regular file (got a directory)"
    # A pipe without a writer would keep a reload, and all changes after it, waiting.
    assert d == f"{folder.drop_ins}/d.toml: must be a regular file (got a pipe)"


def test_a_directory_that_is_none_is_one_line(folder: Folder) -> None:
    folder.drop_ins.write_text("")
    assert folder.problems() == [f"{folder.drop_ins}: Not a directory"]
