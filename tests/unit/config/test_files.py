"""Files that are no TOML, or no files: one line says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from drld import config
from drld.errors import ConfigError
from drld.spec import LimiterSpec
from tests.unit.config.good import GOOD, problems


def test_a_syntax_error_is_one_line_with_its_place() -> None:
    (line,) = problems("[limiter]\nname = lim1\n")
    assert line.startswith("drld.toml: ")
    assert "line 2, column 8" in line


def test_an_unfinished_file_is_one_line() -> None:
    (line,) = problems('[limiter]\nname = "lim1')
    assert line.startswith("drld.toml: ")


def test_a_number_without_end_is_one_line() -> None:
    (line,) = problems("id = " + "9" * 5000)
    assert line.startswith("drld.toml: ")


def test_arrays_without_end_are_one_line() -> None:
    (line,) = problems("a = " + "[" * 100_000)
    assert line.startswith("drld.toml: ")


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "drld.toml"
    with pytest.raises(ConfigError) as caught:
        config.load(path)
    assert caught.value.problems == [f"{path}: No such file or directory"]


def test_a_directory_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        config.load(tmp_path)
    assert caught.value.problems == [f"{tmp_path}: Is a directory"]


def test_a_path_with_a_zero_byte_is_one_line() -> None:
    with pytest.raises(ConfigError) as caught:
        config.load("a\0b")
    assert len(caught.value.problems) == 1


def test_bytes_that_are_not_utf8_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "drld.toml"
    path.write_bytes(b'[limiter]\nname = "l\xefm1"\n')
    with pytest.raises(ConfigError) as caught:
        config.load(path)
    assert caught.value.problems == [f"{path}: not UTF-8 (at line 2)"]


def test_a_file_without_end_is_one_line() -> None:
    with pytest.raises(ConfigError) as caught:
        config.load("/dev/zero")
    assert caught.value.problems == ["/dev/zero: more than 64000000 bytes"]


def test_a_good_file_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "drld.toml"
    path.write_text(GOOD)
    assert isinstance(config.load(path), LimiterSpec)
    assert config.load(str(path)) == config.load(path)
