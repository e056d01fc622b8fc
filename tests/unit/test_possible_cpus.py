"""The number of processors that the host may have."""

from pathlib import Path

import pytest

from drld.ebpf import bpf
from drld.errors import DatapathError


def test_a_container_without_sys_gets_one_clear_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bpf, "_POSSIBLE_CPUS", tmp_path / "possible")
    with pytest.raises(DatapathError, match=r"possible: No such file or directory"):
        bpf.possible_cpus()
