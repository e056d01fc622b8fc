"""Remarks and refusals that depend on the host, for limits on packets."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from drld.capture.registered.daemon import packet_plane
from drld.capture.registered.daemon.packet_plane import PacketPlane
from drld.capture.spec import Match
from drld.config import parse
from drld.daemon.command_line import main
from drld.daemon.running_plane import PlaneContext, host_remarks
from drld.errors import DatapathError
from tests.unit.config.good import GOOD

REMARK = "interface {}: does not exist: until it does, limits on it limit nothing: a"


@pytest.mark.parametrize("name", ["eth0", "eth1"])
def test_a_missing_interface_is_remarked_on(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(1, "lo"), (2, name)])
    spec = parse(GOOD, "f")
    match = cast(Match, spec.limits[0].match)
    own = match.interface
    assert host_remarks(spec) == ([] if own == name else [REMARK.format(own)])
    pattern = replace(spec.limits[0], match=replace(match, interface="w*"))
    assert host_remarks(replace(spec, limits=(pattern,))) == []


def test_check_does_not_look_at_the_host(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An administrator may check the files of other hosts."""
    monkeypatch.setattr(socket, "if_nameindex", list)
    file = tmp_path / "drld.toml"
    file.write_text(GOOD)
    assert main(["--config", str(file), "--check"]) == 0
    assert "does not exist" not in capsys.readouterr().err


@pytest.mark.parametrize("held", [0, 1 << 12, None])
def test_a_refusal_without_the_capability_names_it_alone(
    held: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def attach() -> None:
        raise DatapathError("the kernel refuses the BPF map control: [Errno 1]", {1: "no"})

    monkeypatch.setattr(packet_plane, "capabilities", lambda _: held)
    spec = parse(GOOD, "f")
    plane = PacketPlane(cast(PlaneContext, _Context), spec)
    with pytest.raises(DatapathError) as caught:
        plane.put(spec, attach)
    assert caught.value.limits == {1: "no"}
    assert ("CAP_NET_ADMIN" in str(caught.value)) == (held == 0)
    assert ("[Errno 1]" in str(caught.value)) == (held != 0)


class _Context:
    clock = staticmethod(lambda: 0)
