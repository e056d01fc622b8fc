"""The files of compiled programs; tests/kernel compiles them."""

import platform
import shutil
from pathlib import Path

import pytest

from drld.ebpf import compiler


@pytest.fixture
def compilations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sources compiled so far, by a compiler that writes one empty program."""
    done: list[str] = []

    def compile_one(arguments: list[str]) -> str:
        done.append(arguments[0])
        return '{"stamp": {"instructions": "", "maps": {}}}'

    shutil.copytree(compiler.SOURCES, tmp_path / "bpf")
    monkeypatch.setattr(compiler, "SOURCES", tmp_path / "bpf")
    monkeypatch.setattr(compiler, "_compile_in_child", compile_one)
    return done


def test_a_package_ships_programs_for_any_kernel(
    tmp_path: Path, compilations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = compiler.compiled("arrival", cache=compiler.SOURCES)
    monkeypatch.setattr(platform, "release", lambda: "another kernel")
    assert compiler.compiled("arrival", cache=tmp_path / "host") == shipped
    assert compilations == ["arrival"]
    (compiler.SOURCES / "arrival.c").write_text("changed")
    compiler.compiled("arrival", cache=tmp_path / "host")
    assert compilations == ["arrival", "arrival"]


def test_a_host_keeps_programs_for_its_kernel(
    tmp_path: Path, compilations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for release, expected in (("one", 1), ("one", 1), ("two", 2)):
        monkeypatch.setattr(platform, "release", lambda release=release: release)
        compiler.compiled("arrival", cache=tmp_path / "host")
        assert len(compilations) == expected
