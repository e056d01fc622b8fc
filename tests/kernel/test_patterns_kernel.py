"""Interfaces by pattern, on both datapaths: they come and go, lie on each other, and count once.

The packets are those of the limiter's namespace itself. A kernel lacks some kinds of interfaces;
`scripts/test-vm` runs this file on one that has all.
"""

from __future__ import annotations

import contextlib
import re
import select
import socket
import subprocess
from collections.abc import Iterator

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from drld.capture.spec import Match
from drld.model import NS_PER_S
from drld.police.direction import Direction

from ..factories import limit_spec
from .attached import WAYS, identities
from .packets import NOTHING, PAYLOAD, UDP_NUMBER, UNLIMITED, limit
from .remote import RemoteDatapath, RemoteKernelDatapath, RemoteNfqueueDatapath
from .topology import Topology, wait_for

KINDS = {
    "bridge": ["link add {upper} type bridge", "link set {lower} master {upper}"],
    "vlan": ["link add link {lower} name {upper} type vlan id 5"],
    "bond": [
        *("link add {upper} type bond", "link set {lower} down"),
        "link set {lower} master {upper}",
    ],
    "macvlan": ["link add link {lower} name {upper} type macvlan"],
    "wireguard": ["link add {upper} type wireguard"],
}
"""Commands that make an interface, which lies on another or, if it is a tunnel, on none."""
PAIR = ["link add px0 type veth peer name qx0"]
ON_NONE = ("wireguard",)

PATIENCE_S = 0.5
"""The longest wait for a packet that may never come: a veth pair delivers in microseconds."""
HALF = 50
"""Half of the interfaces of a host with many containers."""
AT_ONCE = 10
"""Commands in one run of `ip`, and interfaces in a group: an emulated machine does them in time."""


def _has(kind: str) -> bool:
    """Whether this kernel has interfaces of this kind, tried in a namespace of its own."""
    done = subprocess.run(
        ["unshare", "--net", "ip", "-batch", "-"],
        input="\n".join(PAIR + on_top(kind, 9, 0)),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode == 0


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Try the kinds that the kernel has."""
    if "kind" in metafunc.fixturenames:
        metafunc.parametrize("kind", [kind for kind in KINDS if _has(kind)])


@pytest.fixture(params=[*WAYS, "nfqueue"])
def datapath(topology: Topology, request: pytest.FixtureRequest) -> Iterator[RemoteDatapath]:
    """Each datapath; the kernel's by each way to attach it."""
    namespace = topology.names["limiter"]
    made: RemoteDatapath
    if request.param == "nfqueue":
        made = RemoteNfqueueDatapath(namespace, "lim1", "auto", None)
    else:
        made = RemoteKernelDatapath(namespace, "lim1", request.param)
    yield made
    made.kill()
    remove(topology)


def ip(topology: Topology, *commands: str, check: bool = True) -> None:
    for start in range(0, len(commands), AT_ONCE):
        batch = "\n".join(commands[start : start + AT_ONCE])
        topology.run("limiter", "ip", "-force", "-batch", "-", stdin=batch, check=check)


def make(number: int) -> list[str]:
    """Commands that make an interface px<number>."""
    made = f"link add px{number} group {group(number)} type veth peer name qx{number}"
    return [made, f"link set qx{number} up"]


def group(number: int) -> int:
    """The group of the interface px<number>; the kernel removes all of a group in one step."""
    return 1 + number // AT_ONCE


def remove_groups(topology: Topology, first: int, after: int) -> None:
    """Remove the interfaces px<first> to px<after - 1>, a group at a time."""
    for number in range(first, after, AT_ONCE):
        ip(topology, f"link del group {group(number)}", check=False)


def address(number: int) -> list[str]:
    """Commands that give it a network, with a neighbour that is not there."""
    return [
        f"link set px{number} up",
        f"addr add 10.95.{number}.1/24 dev px{number}",
        f"neigh replace 10.95.{number}.2 lladdr 02:00:00:00:09:02 dev px{number} nud permanent",
    ]


def on_top(kind: str, upper: int, lower: int) -> list[str]:
    """Commands that make the interface px<upper> of this kind on px<lower>."""
    return [each.format(upper=f"px{upper}", lower=f"px{lower}") for each in KINDS[kind]]


def remove(topology: Topology) -> None:
    """Bridges, bonds and tunnels outlive the interfaces below them: they are removed by name."""
    remove_groups(topology, 0, 2 * HALF)
    names = topology.within("limiter", lambda: [name for _, name in socket.if_nameindex()])
    left = [f"link del {name}" for name in names if name.startswith(("px", "other"))]
    ip(topology, *left, check=False)


def send(topology: Topology, number: int, packets: int) -> None:
    with topology.udp("limiter", f"10.95.{number}.1") as sender:
        for _ in range(packets):
            with contextlib.suppress(OSError):  # WireGuard has no key for the peer
                sender.sendto(bytes(PAYLOAD), (f"10.95.{number}.2", 9000))


def settled(datapath: RemoteDatapath, *hooks: str) -> None:
    """Wait until the kernel datapath is on these; the rules of nfqueue need not change."""
    if isinstance(datapath, RemoteKernelDatapath):
        wanted = f"on {', '.join(hooks) or 'no interface'}"
        assert wait_for(datapath.reason, lambda said: said.endswith(wanted)).endswith(wanted)


def attached_to(datapath: RemoteDatapath, count: int) -> None:
    """Wait until the kernel datapath is on so many interfaces; it names the first few of them."""

    def interfaces(said: str) -> int:
        _, named = said.split(" on ", 1)
        more = re.search(r" and (\d+) more$", named)
        return named.count("px") + (int(more[1]) if more else 0)

    if isinstance(datapath, RemoteKernelDatapath):
        said = wait_for(datapath.reason, lambda said: interfaces(said) == count)
        assert interfaces(said) == count


def test_interfaces_of_a_pattern_come_and_go(topology: Topology, datapath: RemoteDatapath) -> None:
    datapath.attach((limit(1, "px*", "10.95.0.0/16", protocol=UDP_NUMBER), UNLIMITED))
    settled(datapath)
    sent = 0
    for _ in range(2):
        ip(topology, *make(0), *make(1), *address(0), *address(1))
        settled(datapath, "px0 out", "px1 out")
        send(topology, 0, 3)
        send(topology, 1, 4)
        sent += 7
        assert datapath.wait(1, sent).arrived_items == sent
        if isinstance(datapath, RemoteKernelDatapath):
            (one,), (other,) = (identities(topology, f"px{each}", "egress") for each in (0, 1))
            assert one == other  # interfaces with the same limits share a program
            assert datapath.counters()["reattached"] == 0
        # One that is renamed is another container's.
        ip(topology, "link set px1 down", "link set px1 name other1", "link set other1 up")
        settled(datapath, "px0 out")
        if isinstance(datapath, RemoteKernelDatapath):
            assert not identities(topology, "other1", "egress")
        ip(topology, "link del px0", "link del other1")
        settled(datapath)
    datapath.detach()


def test_a_hundred_interfaces_come_and_go(topology: Topology, datapath: RemoteDatapath) -> None:
    """The first half stays, while the second is replaced by others of the same names."""
    datapath.attach((limit(1, "px*", "10.95.0.0/16", protocol=UDP_NUMBER), UNLIMITED))
    everyone, second = range(2 * HALF), range(HALF, 2 * HALF)
    sent = 0
    for coming in (everyone, second):
        ip(topology, *(command for each in coming for command in make(each) + address(each)))
        attached_to(datapath, 2 * HALF)
        for number in everyone:
            send(topology, number, 2)
        sent += 4 * HALF
        assert datapath.wait(1, sent).arrived_items == sent
        remove_groups(topology, HALF, 2 * HALF)
        attached_to(datapath, HALF)
    datapath.detach()


def test_fifty_interfaces_on_fifty_others_count_each_packet_once(
    topology: Topology, kind: str
) -> None:
    """One way to attach serves: which interfaces a pattern stands for does not depend on it."""
    datapath = RemoteKernelDatapath(topology.names["limiter"], "lim1", WAYS[-1])
    try:
        datapath.attach((limit(1, "px*", "10.95.0.0/16", protocol=UDP_NUMBER), UNLIMITED))
        pairs = [(number + HALF, number) for number in range(HALF)]
        made = [
            [*make(lower), *on_top(kind, upper, lower), f"link set px{lower} up", *address(upper)]
            for upper, lower in pairs
        ]
        ip(topology, *(command for commands in made for command in commands))
        attached_to(datapath, 2 * HALF if kind in ON_NONE else HALF)
        for upper, _ in pairs:
            send(topology, upper, 2)
        assert datapath.wait(1, 2 * HALF).arrived_items == 2 * HALF
    finally:
        datapath.kill()
        remove(topology)


def test_a_packet_that_crosses_two_interfaces_of_a_pattern_counts_once(
    topology: Topology, datapath: RemoteDatapath, kind: str
) -> None:
    ip(topology, *make(0), *on_top(kind, 9, 0), "link set px0 up", *address(9))
    datapath.attach((limit(1, "px*", "10.95.9.2", protocol=UDP_NUMBER), UNLIMITED))
    below = ["px0 out"] if kind != "wireguard" else ["px0 out", "px9 out"]
    settled(datapath, *below)
    send(topology, 9, 5)
    assert datapath.wait(1, 5).arrived_items == 5
    # A stack that is made while the daemon runs is the same.
    ip(topology, "link del px9")
    settled(datapath, "px0 out")
    ip(topology, *on_top(kind, 9, 0), "link set px0 up", *address(9))
    settled(datapath, *below)
    send(topology, 9, 5)
    assert datapath.wait(1, 10).arrived_items == 10
    datapath.detach()


def test_a_packet_that_is_bridged_counts_once_in_each_direction(
    topology: Topology, way: str
) -> None:
    """The ports see it, and the bridge does not."""
    datapath = RemoteKernelDatapath(topology.names["limiter"], "lim1", way)
    try:
        ip(topology, *make(0), *make(1), "link add px9 type bridge", "link set px9 up")
        for number in (0, 1):
            ip(topology, f"link set px{number} up master px9")
        limits = [
            limit_spec(id=number, match=Match("px*", direction, protocol=UDP_NUMBER))
            for number, direction in enumerate(Direction, 1)
        ]
        datapath.attach(*((each, UNLIMITED) for each in limits))
        settled(datapath, *(f"px{each} {it.value}" for it in Direction for each in (0, 1)))

        def open_link() -> socket.socket:
            made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
            made.bind(("qx1", 0))
            return made

        frame = (
            Ether(src="02:00:00:00:09:01", dst="02:00:00:00:09:02") / IP(dst="10.95.0.2") / UDP()
        )
        with topology.within("limiter", open_link) as link:
            for _ in range(5):
                link.send(bytes(frame))
        for each in limits:
            assert datapath.wait(each.id, 5).arrived_items == 5
    finally:
        datapath.kill()
        remove(topology)


def test_an_interface_that_goes_during_a_reload_is_no_reason_to_refuse_it(
    topology: Topology, way: str
) -> None:
    datapath = RemoteKernelDatapath(topology.names["limiter"], "lim1", way)
    try:
        ip(topology, *make(0), *make(1), *address(0))
        datapath.attach((limit(1, "px*", protocol=UDP_NUMBER), UNLIMITED))
        settled(datapath, "px0 out", "px1 out")
        datapath.lose("px1")
        datapath.attach((limit(1, "px*", "10.95.0.0/16", protocol=UDP_NUMBER), UNLIMITED))
        settled(datapath, "px0 out")
        send(topology, 0, 3)
        assert datapath.wait(1, 3).arrived_items == 3
    finally:
        datapath.kill()
        remove(topology)


def moved_to_the_sink(topology: Topology) -> None:
    """Move px1, the other end of px0, to another network namespace, as a container's interface."""
    ip(topology, f"link set px1 netns {topology.names['sink']}")
    for command in (
        "addr add 10.95.0.2/24 dev px1",
        "link set px1 up",
        "neigh replace 10.95.0.1 lladdr 02:00:00:00:09:01 dev px1 nud permanent",
    ):
        topology.run("sink", "ip", *command.split())


def sent_back(topology: Topology, packets: int) -> int:
    """How many of these packets from px1, in the sink, come to px0."""
    with (
        topology.udp("limiter", "10.95.0.1", 9000) as receiver,
        topology.udp("sink", "10.95.0.2") as sender,
    ):
        for _ in range(packets):
            sender.sendto(bytes(PAYLOAD), ("10.95.0.1", 9000))
        came = 0
        while select.select([receiver], [], [], PATIENCE_S)[0]:
            came += len(receiver.recv(2 * PAYLOAD)) == PAYLOAD
            if came == packets:
                break
        return came


ENDS = [
    "link add px0 address 02:00:00:00:09:01 type veth peer name px1",
    *("link set px0 addrgenmode none", "link set px1 addrgenmode none"),
    *address(0),
]


def test_an_interface_in_another_namespace_is_not_limited(topology: Topology, way: str) -> None:
    """Its program on tcx goes with it, and cannot be removed from here."""
    datapath = RemoteKernelDatapath(topology.names["limiter"], "lim1", way)
    try:
        ip(topology, *ENDS)
        datapath.attach((limit(1, "px*", "10.95.0.0/16", protocol=UDP_NUMBER), NOTHING))
        settled(datapath, "px0 out", "px1 out")
        send(topology, 0, 2)
        assert datapath.wait(1, 2).dropped_items == 2
        moved_to_the_sink(topology)
        settled(datapath, "px0 out")
        assert sent_back(topology, 3) == 3
        send(topology, 0, 4)
        assert datapath.wait(1, 6).dropped_items == datapath.total(1).arrived_items == 6
        # Back again, it is limited as before.
        topology.run("sink", "ip", "link", "set", "px1", "netns", topology.names["limiter"])
        settled(datapath, "px0 out", "px1 out")
        there = [identities(topology, name, "egress") for name in ("px0", "px1")]
        assert there[0] == there[1]
        # It moves unseen, and the daemon is stopped.
        datapath.pause()
        moved_to_the_sink(topology)
        datapath.detach()
        assert sent_back(topology, 3) == 3
    finally:
        datapath.kill()
        topology.run("sink", "ip", "link", "del", "px1", check=False)
        remove(topology)


def test_an_interface_that_a_limit_names_is_not_limited_in_another_namespace(
    topology: Topology, way: str
) -> None:
    datapath = RemoteKernelDatapath(topology.names["limiter"], "lim1", way)
    try:
        ip(topology, *ENDS)
        limits = [
            limit_spec(
                id=number,
                name=name,
                match=Match(name, Direction.OUT, protocol=UDP_NUMBER),
                interval_ns=60 * NS_PER_S,
            )
            for number, name in enumerate(("px1", "px0"), 1)
        ]
        datapath.attach((limits[0], NOTHING), (limits[1], UNLIMITED))
        send(topology, 0, 2)
        datapath.wait(2, 2)
        moved_to_the_sink(topology)
        assert wait_for(lambda: sent_back(topology, 1), lambda came: came == 1) == 1
        send(topology, 0, 2)
        assert datapath.wait(2, 4).arrived_items == 4
        topology.run("sink", "ip", "link", "set", "px1", "netns", topology.names["limiter"])
        counters = wait_for(datapath.counters, lambda counters: counters["reattached"] == 1)
        assert counters["reattached"] == 1
        ip(topology, "addr add 10.96.0.1/24 dev px1", "link set px1 up")
        ip(topology, "neigh replace 10.95.7.7 lladdr 02:00:00:00:09:01 dev px1 nud permanent")
        ip(topology, "route add 10.95.7.7 dev px1")
        before = datapath.total(1).arrived_items
        with topology.udp("limiter", "10.96.0.1") as sender:
            for _ in range(3):
                sender.sendto(bytes(PAYLOAD), ("10.95.7.7", 9000))
        assert datapath.wait(1, before + 3).dropped_items == before + 3
    finally:
        datapath.kill()
        topology.run("sink", "ip", "link", "del", "px1", check=False)
        remove(topology)
