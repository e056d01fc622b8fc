"""The files of compiled programs; tests/kernel compiles them."""

import errno
import os
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


def test_a_full_disk_costs_a_compilation_and_leaves_no_part_of_a_file(
    tmp_path: Path, compilations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_a_part(file: Path, text: str, **_: str) -> None:
        file.write_bytes(text[:5].encode())
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", write_a_part)
    for _ in range(2):
        assert "stamp" in compiler.compiled("arrival", cache=tmp_path / "host")
    assert compilations == ["arrival", "arrival"]
    assert [*(tmp_path / "host").iterdir()] == []
