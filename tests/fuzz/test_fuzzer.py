"""The work of scripts/fuzz around the coverage-guided fuzzer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import __main__ as fuzzer
from tests.fuzz.finding import failure, keep, shrink
from tests.fuzz.targets import TARGETS
from tests.fuzz.targets.base import Target


def refuses_x_before_y(data: bytes) -> bool:
    if b"y" in data[data.find(b"x") :] and b"x" in data:
        raise KeyError("x")
    if b"z" in data:
        raise ValueError("z")
    return True


def test_a_finding_is_shrunk() -> None:
    data = b"a" * 500 + b"x" + b"b" * 77 + b"y" + b"z" * 3
    assert shrink(refuses_x_before_y, data) == b"xy"
    assert shrink(refuses_x_before_y, b"zz") == b"z"
    assert shrink(refuses_x_before_y, b"sound") == b"sound"


def test_failures_differ_by_their_error_and_its_place() -> None:
    assert failure(refuses_x_before_y, b"a") is None
    one, other = failure(refuses_x_before_y, b"xy"), failure(refuses_x_before_y, b"z")
    assert one is not None
    assert other is not None
    assert one.startswith("KeyError at ")
    assert other.startswith("ValueError at ")


def test_a_finding_is_kept_in_the_folder_of_replays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = keep("wire", b"abc", tmp_path)
    assert path.parent == tmp_path / "wire"
    assert path.read_bytes() == b"abc"
    assert fuzzer.main(["--replay", str(path)]) == 0
    assert "the property of wire holds (refused)" in capsys.readouterr().out


def test_a_replay_fails_while_its_input_still_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(TARGETS, "x", Target(refuses_x_before_y, lambda: [b"a"]))
    assert fuzzer.main(["--replay", str(keep("x", b"xy", tmp_path))]) == 1
    assert "KeyError" in capsys.readouterr().err
    assert fuzzer.main(["--replay", str(keep("nobody", b"xy", tmp_path))]) == 2


def test_an_unknown_target_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        fuzzer.main(["nobody"])
    assert ended.value.code == 2
    assert "no such target: nobody" in capsys.readouterr().err


def test_progress_shows_the_figures_of_libfuzzer() -> None:
    progress = fuzzer.Progress()
    for line in (
        "INFO: seed corpus: files: 12",
        "#8192	pulse  cov: 345 ft: 456 corp: 78/9Kb lim: 1168 exec/s: 1638 rss: 95Mb",
        "stat::number_of_executed_units: 123456",
    ):
        progress.take(line)
    assert str(progress) == "123,456 executions, 345 edges, 78 inputs"
