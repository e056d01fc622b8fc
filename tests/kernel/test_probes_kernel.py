"""Three daemons that probe each other: what is found of one that dies, freezes, leaves, differs."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .daemon_host import SHARED, DaemonHost
from .topology import Topology, wait_for

ADDRESSES = {f"lim{number}": f"127.0.0.{number}:7946" for number in (1, 2, 3)}
QUICK = (
    "[probes]",
    'period = "400ms"',
    'timeout = "200ms"',
    "suspicion = 1",
    "isolation = 3",
)

Fleet = dict[str, DaemonHost]


def configure(daemon: DaemonHost, limit: str = SHARED) -> None:
    daemon.configure(
        {"customer-a": limit},
        listen=ADDRESSES[daemon.name],
        peers={name: address for name, address in ADDRESSES.items() if name != daemon.name},
        gossip=QUICK,
    )


@pytest.fixture
def fleet(topology: Topology, tmp_path: Path) -> Iterator[Fleet]:
    """Three limiters, each of which holds the others for alive."""
    made = {
        name: DaemonHost(topology.names["limiter"], tmp_path, name, "kernel") for name in ADDRESSES
    }
    try:
        for daemon in made.values():
            configure(daemon)
            daemon.start()
        for daemon in made.values():
            holds(daemon, lambda probes: probes["alive"] == 2)
        yield made
    finally:
        for daemon in made.values():
            daemon.close()


def holds(daemon: DaemonHost, so: Callable[[Any], bool]) -> None:
    """Wait until what a daemon found is so."""
    probes = wait_for(lambda: daemon.get("/v1/status")["probes"], so)
    assert so(probes), (probes, daemon.log)


def finds(daemon: DaemonHost, peer: str, verdict: str) -> None:
    """Wait until a daemon holds a peer for that."""

    def look() -> str:
        (found,) = [report for report in daemon.get("/v1/peers") if report["name"] == peer]
        return str(found["verdict"])

    assert wait_for(look, lambda found: found == verdict) == verdict, daemon.log


def test_a_killed_limiter_is_dead_and_a_restarted_one_alive(fleet: Fleet) -> None:
    fleet["lim3"].kill()
    for name in ("lim1", "lim2"):
        finds(fleet[name], "lim3", "dead")
        assert fleet[name].wait_for_log("peer lim3 is dead")
    fleet["lim3"].start()
    for name in ("lim1", "lim2"):
        finds(fleet[name], "lim3", "alive")
        assert fleet[name].wait_for_log("peer lim3 is back")


def test_a_frozen_limiter_is_dead_and_after_it_no_limiter_is(fleet: Fleet) -> None:
    before = len(fleet["lim3"].log)
    fleet["lim3"].signal(signal.SIGSTOP)
    for name in ("lim1", "lim2"):
        finds(fleet[name], "lim3", "dead")
    fleet["lim3"].signal(signal.SIGCONT)
    for name in ("lim1", "lim2"):
        finds(fleet[name], "lim3", "alive")
    assert fleet["lim3"].wait_for_log("no peer answers")
    assert fleet["lim3"].wait_for_log("peers answer again")
    holds(fleet["lim3"], lambda probes: probes["alive"] == 2 and not probes["isolated"])
    assert "is dead" not in fleet["lim3"].log[before:]


def test_a_stopped_limiter_has_left_and_one_with_another_rate_is_named(fleet: Fleet) -> None:
    assert fleet["lim3"].stop() == 0
    for name in ("lim1", "lim2"):
        finds(fleet[name], "lim3", "left")
    configure(fleet["lim3"], SHARED.replace('"10mbit"', '"20mbit"'))
    fleet["lim3"].start()
    for name in ("lim1", "lim2"):
        holds(fleet[name], lambda probes: probes["disagreeing"] == {"lim3": ["customer-a"]})
    holds(fleet["lim3"], lambda probes: len(probes["disagreeing"]) == 2)
    configure(fleet["lim3"])
    fleet["lim3"].ctl("reload")
    for daemon in fleet.values():
        holds(daemon, lambda probes: probes["disagreeing"] == {})
