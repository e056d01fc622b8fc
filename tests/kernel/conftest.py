"""Fixtures of the kernel tests: namespaces, and datapaths inside them."""

from __future__ import annotations

import contextlib
import functools
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from drld.capture.nft_rules import nft_install
from drld.capture.queue_hooks import Hook
from drld.ebpf.compiler import compiled
from drld.errors import DatapathError
from drld.police.direction import Direction
from testbed.link import DelayLineLinks, NetemLinks, kernel_has_netem
from testbed.netns import run

from .attached import WAYS, take_off_tcx
from .daemon_host import DaemonHost, Daemons
from .registry_host import RegistryFleet, built
from .remote import RemoteKernelDatapath, RemoteNfqueueDatapath
from .topology import Topology, remove_stale


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark each test of this folder: it needs root, and makes its own network namespaces."""
    item.add_marker(pytest.mark.kernel)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what needs a firewall, or links, with every kind of them that this kernel has."""
    if "firewall" in metafunc.fixturenames:
        metafunc.parametrize("firewall", ["nft", "iptables"] if nft_can_queue() else ["iptables"])
    if "way" in metafunc.fixturenames:
        metafunc.parametrize("way", WAYS)
    if "make_links" in metafunc.fixturenames:
        ways = [DelayLineLinks, NetemLinks] if has_netem() else [DelayLineLinks]
        metafunc.parametrize("make_links", ways)


has_netem = functools.cache(kernel_has_netem)


@functools.cache
def nft_can_queue() -> bool:
    """Whether the kernel takes nft's queue statement; asked in a namespace of its own."""
    script = nft_install("probe", [Hook("lo", Direction.IN, True, (4, 6))], 0)
    command = ["unshare", "--net", "nft", "-c", "-f", "-"]
    done = subprocess.run(command, input=script, capture_output=True, text=True, check=False)
    return done.returncode == 0


@pytest.fixture(scope="session")
def built_topology() -> Iterator[Topology]:
    """The namespaces, made once; and what datapaths would compile, which takes an emulated machine
    longer than a test waits."""
    remove_stale()
    with contextlib.suppress(DatapathError):  # a host without bcc: the kernel stamps
        compiled("arrival")
    topology = Topology()
    try:
        topology.build()
        yield topology
    finally:
        topology.remove()


def _remove_rules() -> None:
    for tool in ("iptables-restore", "ip6tables-restore"):
        run([tool], stdin="*mangle\nCOMMIT\n*security\nCOMMIT\n")
    run(["nft", "flush", "ruleset"])
    for device in ("in0", "out0"):
        run(["tc", "qdisc", "del", "dev", device, "clsact"], check=False)


@pytest.fixture
def topology(built_topology: Topology) -> Iterator[Topology]:
    """The namespaces as they were built; a test that leaves them otherwise fails."""
    yield built_topology
    built_topology.within("limiter", _remove_rules)
    take_off_tcx(built_topology)
    assert built_topology.put_right() == []


@pytest.fixture
def start(topology: Topology, firewall: str) -> Iterator[Callable[..., RemoteNfqueueDatapath]]:
    """Starts a process with a datapath; all of them end with the test."""
    processes: list[RemoteNfqueueDatapath] = []

    def start(
        limiter: str = "lim1", queue: int | None = None, *, tool: str = firewall, **options: Any
    ) -> RemoteNfqueueDatapath:
        namespace = topology.names["limiter"]
        processes.append(RemoteNfqueueDatapath(namespace, limiter, tool, queue, **options))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()


@pytest.fixture(params=["nfqueue", "kernel"])
def datapath(request: pytest.FixtureRequest) -> str:
    """The datapath of the test's daemons; both must show operators the same."""
    name: str = request.param
    return name


@pytest.fixture
def daemons(topology: Topology, tmp_path: Path, datapath: str) -> Iterator[Daemons]:
    """Makes daemons in the limiter's namespace; all of them end with the test."""
    made: list[DaemonHost] = []

    def make(name: str) -> DaemonHost:
        made.append(DaemonHost(topology.names["limiter"], tmp_path, name, datapath))
        return made[-1]

    yield make
    for daemon in made:
        daemon.close()


@pytest.fixture
def kernel_start(topology: Topology, way: str) -> Iterator[Callable[..., RemoteKernelDatapath]]:
    """Starts a process with a datapath that attaches this way; all of them end with the test."""
    processes: list[RemoteKernelDatapath] = []

    def start(limiter: str = "lim1") -> RemoteKernelDatapath:
        processes.append(RemoteKernelDatapath(topology.names["limiter"], limiter, way))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[RegistryFleet]:
    """A namespace with etcd; daemons in it end with the test."""
    with built(tmp_path) as made:
        yield made
