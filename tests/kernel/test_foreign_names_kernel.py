"""An interface whose name is not UTF-8, under a pattern: it is limited, and can be looked at."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from .attached import ours
from .daemon_host import CENTRAL, Daemons
from .kernel_limits import Start, expected, limit
from .packets import UNLIMITED
from .test_doctor_kernel import examine
from .topology import Topology

NAME = b"nx\xff"


@pytest.fixture
def interface(topology: Topology) -> Iterator[bytes]:
    """The interface."""

    def ip(*words: str | bytes) -> None:
        subprocess.run(["ip", "-n", topology.names["limiter"], "link", *words], check=True)

    ip("add", NAME, "type", "veth", "peer", "name", "ny0")
    yield NAME
    ip("del", "ny0")


@pytest.mark.usefixtures("interface")
def test_a_daemon_reports_the_foreign_name(topology: Topology, daemons: Daemons) -> None:
    daemon = daemons("lim1")
    daemon.configure({"customer-a": CENTRAL.replace("out0", "nx*")})
    daemon.start()
    if daemon.datapath == "kernel":
        assert "nx\\udcff out" in daemon.ask("status")["datapath"]["reason"]
        assert "nx\\udcff out" in daemon.log
    wrong, found = examine(topology, daemon)
    assert any("nx" in check for check in found), (wrong, found)


@pytest.mark.usefixtures("interface")
def test_the_next_daemon_finds_its_program(
    topology: Topology, kernel_start: Start, way: str
) -> None:
    datapath = kernel_start()
    datapath.attach((limit(1, "nx*"), UNLIMITED))
    datapath.kill()
    successor = kernel_start()
    successor.attach((limit(1, "nx*"), UNLIMITED))
    name = os.fsdecode(NAME)
    assert ours(topology, name) == expected(way, f"{name} egress")
    assert successor.counters()["reattached"] == 0
    successor.detach()
    assert ours(topology, name) == []
