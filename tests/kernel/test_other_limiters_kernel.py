"""Two limiters of a host with limits on one interface: the operator is told, on both datapaths."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest

from drld.ebpf.clsact import Clsact
from drld.ebpf.other_limiters import BOTH, ONE
from drld.ebpf.tcx import Tcx
from drld.police.direction import Direction

from .daemon_host import CENTRAL, Daemons
from .kernel_limits import Start, limit
from .packets import UNLIMITED
from .test_doctor_kernel import examine
from .topology import Topology

MATCHES = ("out0", "out*")


@pytest.mark.parametrize("interface", MATCHES)
def test_a_second_limiter_on_an_interface_is_named(
    topology: Topology, daemons: Daemons, datapath: str, firewall: str, interface: str
) -> None:
    first, second = daemons("lim1"), daemons("lim2")
    first.configure({"customer-a": CENTRAL}, firewall=firewall)
    first.start()
    second.configure(
        {"b": CENTRAL.replace("out0", interface)}, firewall=firewall, listen="127.0.0.1:7947"
    )
    second.start()
    alone = datapath == "nfqueue" and firewall == "iptables"
    said = f"out0 out: limiter lim1 polices it too: {ONE if alone else BOTH}"
    assert second.wait_for_log(said)
    assert "polices it too" not in first.log
    wrong, found = examine(topology, first)
    assert wrong
    assert any("limiter lim2 polices it too" in each["what"] for each in found.values())

    # Its successor is the same limiter, and so is that of the first: neither names itself.
    second.kill()
    second.start()
    assert second.wait_for_log(f"{said}\n")
    assert "limiter lim2 polices" not in second.log
    first.kill()
    first.start()
    assert "limiter lim1 polices" not in first.log

    # A daemon that died under another name still polices, and no daemon looks after it.
    second.kill()
    third = daemons("lim3")
    third.configure({"c": CENTRAL}, firewall=firewall, listen="127.0.0.1:7948")
    third.start()
    assert third.wait_for_log(" without a daemon ")


def test_each_way_of_attaching_names_the_other_limiters(
    topology: Topology, kernel_start: Start, way: str
) -> None:
    for name in ("lim1", "lim2"):
        kernel_start(name).attach((limit(1, "out0"), UNLIMITED))

    def others() -> list[list[str]]:
        index = socket.if_nametoindex("out0")
        with closing((Tcx if way == "tcx" else Clsact)("lim1")) as programs:
            return [
                programs.others(index, direction) for direction in (Direction.OUT, Direction.IN)
            ]

    (other,), none = topology.within("limiter", others)
    # These processes claim no names.
    assert "limiter" in other
    assert " without a daemon" in other
    assert none == []
