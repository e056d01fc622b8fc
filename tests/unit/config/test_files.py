"""Files that are no TOML, or no files: one line says so."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from drld import config
from drld.requests.spec import RequestsSpec
from drld.spec import LimiterSpec
from tests.unit.config.good import GOOD, problems, refusal

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_a_syntax_error_is_one_line_with_its_place() -> None:
    (line,) = problems("[limiter]\nname = lim1\n")
    assert line.startswith("drld.toml: ")
    assert "line 2, column 8" in line


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('[limiter]\nname = "lim1', id="an unfinished text"),
        pytest.param("id = " + "9" * 5000, id="a number without end"),
        pytest.param("a = " + "[" * 100_000, id="arrays without end"),
        pytest.param("[limiter]\n[limiter]\n", id="a table that comes twice"),
        pytest.param("a = 1\0", id="a zero"),
    ],
)
def test_a_file_that_is_no_toml_is_one_line(text: str) -> None:
    (line,) = problems(text)
    assert line.startswith(("drld.toml: must be TOML: ", "drld.toml: has "))
    assert "sys." not in line


def test_files_of_other_editors_are_read(tmp_path: Path) -> None:
    path = tmp_path / "drld.toml"
    path.write_text(GOOD)
    good = config.load(path)
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert config.load(path) == good
    path.write_text(GOOD + "#" + "x" * 10_000_000)
    assert config.load(path) == good


def test_a_file_that_is_no_text_is_one_line(tmp_path: Path) -> None:
    (latin := tmp_path / "latin.toml").write_bytes(b'[limiter]\nname = "l\xefm1"\n')
    missing = tmp_path / "drld.toml"
    (long := tmp_path / "long.toml").touch()
    os.truncate(long, 64_000_001)
    # A pipe without a writer would keep its reader waiting.
    os.mkfifo(pipe := tmp_path / "pipe.toml")
    for path, said in (
        (missing, f"{missing}: No such file or directory"),
        (tmp_path, f"{tmp_path}: must be a regular file (got a directory)"),
        (latin, f"{latin}: must be UTF-8, and is not at line 2"),
        (long, f"{long}: more than 64000000 bytes"),
        (pipe, f"{pipe}: must be a regular file (got a pipe)"),
        ("/dev/zero", "/dev/zero: must be a regular file (got a device)"),
    ):
        assert refusal(partial(config.load, path)) == [said]
    assert len(refusal(partial(config.load, "a\0b"))) == 1


def test_control_characters_are_escaped(tmp_path: Path) -> None:
    path = tmp_path / "\x1b[2J\udcff.toml"
    assert refusal(partial(config.load, path)) == [
        f"{tmp_path}/\\x1b[2J\\udcff.toml: No such file or directory"
    ]
    path.write_text(GOOD.replace('"eth1"', '"\\u001b]0;\\u0007\\u202e"'))
    (line,) = refusal(partial(config.load, path))
    assert line.isprintable()
    assert "\\x1b]0;" in line


def test_a_file_that_every_user_may_write_is_refused(tmp_path: Path) -> None:
    (path := tmp_path / "drld.toml").write_text(GOOD)
    path.chmod(0o666)
    must = "must not be writable by every user: run chmod o-w on it"
    assert refusal(partial(config.load, path)) == [f"{path}: {must} (got mode 666)"]
    path.chmod(0o664)
    (directory := tmp_path / "drld.toml.d").mkdir()
    (drop_in := directory / "a.toml").touch()
    drop_in.chmod(0o602)
    assert refusal(partial(config.load, path)) == [f"{drop_in}: {must} (got mode 602)"]
    drop_in.chmod(0o600)
    directory.chmod(0o1777)
    assert refusal(partial(config.load, path)) == [f"{directory}: {must} (got mode 1777)"]


def test_a_folder_in_which_every_user_may_replace_the_file_is_refused(tmp_path: Path) -> None:
    (path := tmp_path / "drld.toml").write_text(GOOD)
    tmp_path.chmod(0o777)
    assert refusal(partial(config.load, path)) == [
        f"{path}: its folder must not be writable by every user: run chmod o-w on it (got mode 777)"
    ]
    # Like /tmp: a file stays its owner's, but any user may add others.
    tmp_path.chmod(0o1777)
    assert config.load(path)
    (tmp_path / "drld.toml.d").mkdir()
    assert config.load(path)


def test_drop_ins_that_other_users_may_write_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path := tmp_path / "drld.toml").write_text(GOOD)
    (directory := tmp_path / "drld.toml.d").mkdir()
    stat = Path.stat

    def of_a_stranger(seen: Path) -> os.stat_result:
        found = stat(seen)
        return os.stat_result([*found[:4], 4711, *found[5:]]) if seen == directory else found

    monkeypatch.setattr(Path, "stat", of_a_stranger)
    assert config.load(path)
    tmp_path.chmod(0o1777)
    assert refusal(partial(config.load, path)) == [
        f"{directory}: must be owned by root or the owner of the configuration, as every user may "
        "write its folder (got user 4711)"
    ]


def test_a_mark_of_utf_8_in_front_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "drld.toml"
    path.write_text(GOOD, encoding="utf-8-sig")
    assert config.load(path) == config.parse(GOOD, "f")


def test_a_good_file_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "drld.toml"
    path.write_text(GOOD)
    assert isinstance(config.load(path), LimiterSpec)
    assert config.load(str(path)) == config.load(path)


def test_the_examples_of_the_planes_run_on_one_host() -> None:
    """A limiter with keys has a second UDP port, so a neighbouring port is taken."""
    taken: list[int] = []
    for plane in ("messages", "requests"):
        spec = config.load(DOCS / f"{plane}.example.toml")
        taken += [spec.listen[1], spec.plane(RequestsSpec).port_of_keys(spec.listen[1])]
    assert len(taken) == len(set(taken)) == 4, taken
