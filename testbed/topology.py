"""The network of a run: its plan, and its construction.

    src-<group> ==== wan ==== <limiter> ==== sink      data; acknowledgements go back the same way
                      ||
                      ++===== <limiter> (ctl)          gossip

Each box is a network namespace, each line a veth pair. All links are emulated in `wan`, on the
egress of its interfaces. Data to a limiter, acknowledgements to a source and gossip to a limiter's
`ctl` each take half a round trip. A group, of long flows, of UDP sources or a web server (its
clients are in the sink), has its own source and its own interface at the limiter, named after the
group; `wan` tells the groups of a limiter apart by policy routing. Limits match `out`, the
limiter's interface towards the sink.

A group of flows with `egress` has neither source nor path: the limiter sends it from an address on
its loopback interface.

In a central topology (`ctb`) there is one limiter, and every group goes through it.

Addresses: 10.1.<group>.0/24 sources, 10.2.<group>.0/24 data, 10.3.<limiter>.0/24 gossip,
10.4.<limiter>.0/24 sink; .1 is nearer to `wan` (at the sink: the limiter), .2 the other end.
"""

from __future__ import annotations

import array
import fcntl
import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from testbed import MTU, netns
from testbed.datagrams import UdpTable
from testbed.errors import HostError
from testbed.experiment import Experiment
from testbed.experiment_tables import CENTRAL, FlowsTable
from testbed.link import Link

WAN, SINK = "wan", "sink"
GOSSIP_PORT = 7946
TRAFFIC_PORT = 5001

_FIRST_TABLE = 100
_SYSCTLS = {
    "net/ipv4/ip_forward": "1",
    "net/ipv4/conf/all/rp_filter": "0",
    "net/ipv4/conf/default/rp_filter": "0",
    # Only the experiment's packets may pass the counted interfaces: no address
    # detection, no router solicitation.
    "net/ipv6/conf/all/disable_ipv6": "1",
    "net/ipv6/conf/default/disable_ipv6": "1",
    "net/ipv4/tcp_congestion_control": "reno",
    # A connection uses ECN if its opener asks for it (`_ECN`).
    "net/ipv4/tcp_ecn": "2",
    "net/ipv4/tcp_sack": "1",
    "net/ipv4/tcp_timestamps": "1",
    "net/ipv4/tcp_window_scaling": "1",
    # A connection must not inherit metrics of an earlier one.
    "net/ipv4/tcp_no_metrics_save": "1",
    "net/ipv4/tcp_fastopen": "0",
    "net/ipv4/tcp_rmem": "4096 131072 6291456",
    "net/ipv4/tcp_wmem": "4096 16384 4194304",
    "net/core/somaxconn": "4096",
}
_ECN = {
    "net/ipv4/tcp_ecn": "1",
    # A repeated SYN asks for ECN, too.
    "net/ipv4/tcp_ecn_fallback": "0",
}
_SUPER_PACKETS = ("tso", "gso")
_SIOCETHTOOL = 0x8946
OFFLOADS = {"tso": (0x1E, 0x1F), "gso": (0x23, 0x24), "gro": (0x2B, 0x2C)}
"""ethtool's commands that get and set each offload."""


@dataclass(frozen=True, slots=True)
class End:
    """One end of a veth pair."""

    role: str
    """Role of the namespace."""
    device: str
    address: str
    mac: str


@dataclass(frozen=True, slots=True)
class Veth:
    """A veth pair."""

    near: End
    far: End


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a network, with the places of groups and limiters."""

    veths: tuple[Veth, ...]
    commands: dict[str, list[str]]
    """Lines for `ip -batch` by a namespace's role."""
    links: tuple[Link, ...]
    limiters: tuple[str, ...]
    """Running limiters: the configured ones, or the central one."""
    path: dict[str, str]
    """Limiter of a group's packets, by group."""
    source_address: dict[str, str]
    """The address of each group's source, by group."""
    sink_address: dict[str, str]
    """The address of each limiter's sink, by limiter."""
    gossip_address: dict[str, str]
    """The gossip address of each limiter, by limiter."""
    senders: dict[str, str] = field(default_factory=dict)
    """Role of the sending namespace, by group: the group's own, or its limiter's."""
    ecn: tuple[str, ...] = ()
    """Roles of namespaces with connections that ask for ECN."""
    super_packets: tuple[End, ...] = ()
    """Interfaces that do not segment super-packets."""


def limiter_role(limiter: str) -> str:
    """Role of a limiter's namespace."""
    return f"lim-{limiter}"


def source_role(group: str) -> str:
    """Role of a group's source namespace."""
    return f"src-{group}"


def data_device(group: str) -> str:
    """Interface of `wan` towards the limiter of a group."""
    return f"d-{group}"


def sink_device(limiter: str) -> str:
    """Interface of the sink towards a limiter."""
    return f"in-{limiter}"


def plan(experiment: Experiment, allocator: str, seed: int) -> Plan:
    """Plan the network of one run; `seed`: the seed of the links' losses."""
    central = allocator in CENTRAL
    limiters = (allocator,) if central else experiment.limiters
    number = {limiter: index for index, limiter in enumerate(limiters, 1)}
    gossip = experiment.table.gossip
    veths: list[Veth] = []
    links: list[Link] = []
    commands: dict[str, list[str]] = {WAN: [], SINK: []}
    for limiter, i in number.items():
        role = limiter_role(limiter)
        control = veth(3, i, (WAN, f"c-{limiter}"), (role, "ctl"))
        veths += [control, veth(4, i, (role, "out"), (SINK, sink_device(limiter)))]
        links.append(
            Link(control.near.device, gossip.rtt // 2, gossip.loss, seed=seed * 1000 + 3 * i)
        )
        commands[role] = [f"route add 10.3.0.0/16 via {control.near.address}"]
    path: dict[str, str] = {}
    senders: dict[str, str] = {}
    ecn: list[str] = []
    super_packets: list[End] = []
    sources = (*experiment.sources, *experiment.udp)
    for g, group in enumerate(sources, 1):
        limiter = limiters[0] if central else group.limiter
        path[group.name] = limiter
        role, source, network = limiter_role(limiter), source_role(group.name), f"10.1.{g}.0/24"
        commands[SINK].append(f"route add {network} via 10.4.{number[limiter]}.1")
        if isinstance(group.table, FlowsTable) and group.table.egress:
            senders[group.name] = role
            commands[role].append(f"address add 10.1.{g}.2/32 dev lo")
            ecn += [role] if group.table.ecn else []
            continue
        senders[group.name] = source
        uplink = veth(1, g, (WAN, f"s-{group.name}"), (source, "eth0"))
        data = veth(2, g, (WAN, data_device(group.name)), (role, group.name))
        veths += [uplink, data]
        way = group.table
        there = Link(data.near.device, way.rtt // 2, way.loss, round_trip_ns=way.rtt,
                     seed=seed * 1000 + 3 * g + 1)  # fmt: skip
        if isinstance(way, UdpTable):
            links.append(there)
        else:
            links += [
                replace(there, rate=way.rate, queue=way.queue),
                Link(uplink.near.device, way.rtt // 2, round_trip_ns=way.rtt,
                     seed=seed * 1000 + 3 * g + 2),
            ]  # fmt: skip
        if isinstance(way, FlowsTable):
            ecn += [source] if way.ecn else []
            super_packets += [uplink.far, data.near] if way.gso else []
        table = _FIRST_TABLE + g
        commands[WAN] += [
            f"route add default via {data.far.address} table {table}",
            f"rule add iif {uplink.near.device} lookup {table}",
        ]
        commands[source] = [f"route add default via {uplink.near.address}"]
        commands[role].append(f"route add {network} via {data.near.address}")
    return Plan(
        veths=tuple(veths),
        commands=commands,
        links=tuple(links),
        limiters=limiters,
        path=path,
        source_address={group.name: f"10.1.{g}.2" for g, group in enumerate(sources, 1)},
        sink_address={limiter: f"10.4.{i}.2" for limiter, i in number.items()},
        gossip_address={limiter: f"10.3.{i}.2" for limiter, i in number.items()},
        senders=senders,
        ecn=tuple(ecn),
        super_packets=tuple(super_packets),
    )


def veth(kind: int, index: int, near: tuple[str, str], far: tuple[str, str]) -> Veth:
    """A pair between two (role, device), with addresses 10.<kind>.<index>.1 and .2."""
    return Veth(
        *(
            End(
                role,
                device,
                f"10.{kind}.{index}.{number}",
                f"02:00:00:{kind:02x}:{index:02x}:{number:02x}",
            )
            for number, (role, device) in enumerate((near, far), 1)
        )
    )


def build_plan(layout: Plan) -> None:
    """Build a plan; see `build`."""
    build(layout.commands, layout.veths)
    for role in layout.ecn:
        netns.within(netns.namespace(role), partial(_set_sysctls, _ECN))
    for end in layout.super_packets:
        leave = partial(set_offloads, [end.device], _SUPER_PACKETS, on=True)
        netns.within(netns.namespace(end.role), leave)


def build(commands: Mapping[str, Sequence[str]], veths: Sequence[Veth]) -> None:
    """Make the namespaces and wire them up; links are not emulated yet.

    `commands` are the lines for `ip -batch` by role: a namespace is made for each role.

    Raises:
        HostError: the host refuses a step; the caller removes the rest.
    """
    names = {role: netns.namespace(role) for role in commands}
    netns.run(["ip", "-batch", "-"], stdin=_lines(f"netns add {name}" for name in names.values()))
    for name in names.values():
        netns.within(name, partial(_set_sysctls, _SYSCTLS))
    netns.run(
        ["ip", "-batch", "-"],
        stdin=_lines(
            f"link add name {veth.near.device} address {veth.near.mac} mtu {MTU} "
            f"netns {names[veth.near.role]} type veth "
            f"peer name {veth.far.device} address {veth.far.mac} mtu {MTU} "
            f"netns {names[veth.far.role]}"
            for veth in veths
        ),
    )
    pairs = [(veth.near, veth.far) for veth in veths]
    pairs += [(far, near) for near, far in pairs]
    for role, name in names.items():
        here = [(near, far) for near, far in pairs if near.role == role]
        # These offloads merge packets; without them limiters see the packets of a wire.
        devices = [near.device for near, _ in here]
        netns.within(name, partial(set_offloads, devices, OFFLOADS, on=False))
        lines = ["link set lo up"]
        for end, other in here:
            lines += [
                f"address add {end.address}/24 dev {end.device}",
                f"link set dev {end.device} up",
                # Address resolution would delay the first packet and be counted as traffic.
                f"neighbour replace {other.address} lladdr {other.mac} dev {end.device} "
                "nud permanent",
            ]
        netns.run(["ip", "-n", name, "-batch", "-"], stdin=_lines([*lines, *commands[role]]))


def build_line(router: str) -> str:
    """Build src ==== router ==== sink; return the sink's address.

    The router's interfaces are `up` and `down`.
    """
    uplink = veth(1, 1, (router, "up"), ("src", "eth0"))
    downlink = veth(2, 1, (router, "down"), (SINK, "in"))
    build(
        {
            router: [],
            "src": [f"route add default via {uplink.near.address}"],
            SINK: [f"route add default via {downlink.near.address}"],
        },
        [uplink, downlink],
    )
    return downlink.far.address


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _set_sysctls(settings: Mapping[str, str]) -> None:
    for key, value in settings.items():
        path = Path("/proc/sys") / key
        if key.startswith("net/ipv6/") and not path.exists():
            continue  # a kernel without IPv6 is fine
        try:
            path.write_text(value, encoding="ascii")
        except OSError as error:
            raise HostError(f"sysctl {key.replace('/', '.')}={value}: {error}") from error


def set_offloads(devices: Iterable[str], names: Iterable[str], on: bool) -> None:
    """Turn offloads of devices in the current namespace on or off.

    Raises:
        HostError: a device keeps its setting.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for device in devices:
            for name in names:
                get, put = OFFLOADS[name]
                _ethtool(control, device, put, int(on))
                if _ethtool(control, device, get, 0) != int(on):
                    raise HostError(f"{device}: cannot turn {name} {'on' if on else 'off'}")


def _ethtool(control: socket.socket, device: str, command: int, value: int) -> int:
    """One ethtool command with one value (struct ethtool_value); return the value afterwards."""
    data = array.array("I", [command, value])
    request = struct.pack("16sP", device.encode(), data.buffer_info()[0])
    fcntl.ioctl(control, _SIOCETHTOOL, request)
    return data[1]
