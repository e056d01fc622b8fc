"""Files that are no TOML, or no files: one line says so."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from drld import config
from drld.spec import LimiterSpec
from tests.unit.config.good import GOOD, problems, refusal


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
    ],
)
def test_what_is_no_toml_is_one_line(text: str) -> None:
    (line,) = problems(text)
    assert line.startswith("drld.toml: ")


def test_what_is_no_file_of_text_is_one_line(tmp_path: Path) -> None:
    (latin := tmp_path / "latin.toml").write_bytes(b'[limiter]\nname = "l\xefm1"\n')
    missing = tmp_path / "drld.toml"
    for path, said in (
        (missing, f"{missing}: No such file or directory"),
        (tmp_path, f"{tmp_path}: Is a directory"),
        (latin, f"{latin}: not UTF-8 (at line 2)"),
        ("/dev/zero", "/dev/zero: more than 64000000 bytes"),
    ):
        assert refusal(partial(config.load, path)) == [said]
    assert len(refusal(partial(config.load, "a\0b"))) == 1


def test_a_good_file_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "drld.toml"
    path.write_text(GOOD)
    assert isinstance(config.load(path), LimiterSpec)
    assert config.load(str(path)) == config.load(path)
