"""Three network namespaces for kernel tests, and traffic in them.

      source                        limiter                          sink
    +---------+  10.91.1.0/24   +-------------+  10.91.2.0/24   +-----------+
    |     s0 .1 ------------- .2 in0     out0 .2 ------------- .1 k0        |
    +---------+  fd91:1::/64    +-------------+  fd91:2::/64    +-----------+
                                                       also 10.91.3.1, fd91:3::1

Neighbours are permanent and link-local addresses absent, so that no packet crosses the limiter
but those that a test sends. The names hold the id of the process; what killed runs left is
removed by the next.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

from testbed.netns import run, within

T = TypeVar("T")

DEADLINE_S = 120.0
"""The time for steps of milliseconds, or a second with a compiler, s; emulation is slow."""
LONGEST_PAUSE_MS = 50.0
"""The longest pause between two looks: a daemon's report takes 5 ms of processor time."""

ROLES = ("source", "limiter", "sink")
ETH_P_ALL, PACKET_OUTGOING, SO_RCVBUFFORCE, SIOCGIFMTU = 3, 4, 33, 0x8921
PERMANENT = " 0x6 "
"""Flags of a neighbour that is complete and permanent (ATF_COM | ATF_PERM)."""

SETUP = {
    "source": """
        link set lo up
        link set s0 addrgenmode none address 02:00:00:00:01:01
        addr add 10.91.1.1/24 dev s0
        addr add fd91:1::1/64 dev s0 nodad
        link set s0 up
        route add default via 10.91.1.2
        route add default via fd91:1::2
        neigh add 10.91.1.2 lladdr 02:00:00:00:01:02 dev s0 nud permanent
        neigh add fd91:1::2 lladdr 02:00:00:00:01:02 dev s0 nud permanent
    """,
    "limiter": """
        link set lo up
        link set in0 addrgenmode none address 02:00:00:00:01:02
        link set out0 addrgenmode none address 02:00:00:00:02:02
        addr add 10.91.1.2/24 dev in0
        addr add 10.91.2.2/24 dev out0
        addr add fd91:1::2/64 dev in0 nodad
        addr add fd91:2::2/64 dev out0 nodad
        link set in0 up
        link set out0 up
        neigh add 10.91.1.1 lladdr 02:00:00:00:01:01 dev in0 nud permanent
        neigh add fd91:1::1 lladdr 02:00:00:00:01:01 dev in0 nud permanent
        neigh add 10.91.2.1 lladdr 02:00:00:00:02:01 dev out0 nud permanent
        neigh add fd91:2::1 lladdr 02:00:00:00:02:01 dev out0 nud permanent
        route add 10.91.3.0/24 via 10.91.2.1
        route add fd91:3::/64 via fd91:2::1
    """,
    "sink": """
        link set lo up
        link set k0 addrgenmode none address 02:00:00:00:02:01
        addr add 10.91.2.1/24 dev k0
        addr add 10.91.3.1/32 dev k0
        addr add fd91:2::1/64 dev k0 nodad
        addr add fd91:3::1/128 dev k0 nodad
        link set k0 up
        route add default via 10.91.2.2
        route add default via fd91:2::2
        neigh add 10.91.2.2 lladdr 02:00:00:00:02:02 dev k0 nud permanent
        neigh add fd91:2::2 lladdr 02:00:00:00:02:02 dev k0 nud permanent
    """,
}
SYSCTLS = ("net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding")


class Topology:
    """The namespaces, and traffic in them."""

    def __init__(self) -> None:
        self.names = {role: f"drldt-{os.getpid()}-{role}" for role in ROLES}

    def build(self) -> None:
        for name in self.names.values():
            run(["ip", "netns", "add", name])
        source, limiter, sink = self.names.values()
        for near, inner, far, outer in (
            (source, "s0", limiter, "in0"),
            (sink, "k0", limiter, "out0"),
        ):
            pair = f"link add {inner} type veth peer name {outer} netns {far}"
            run(["ip", "-n", near, *pair.split()])
        within(limiter, _forward)
        for role, commands in SETUP.items():
            run(["ip", "-n", self.names[role], "-batch", "-"], stdin=commands)
        self._built = self._state()

    def put_right(self) -> list[str]:
        """Undo the changes that a test has left, and return them."""
        changed = sorted(self._state() ^ self._built)
        if changed:
            self.remove()
            self.build()
        return changed

    def _state(self) -> set[str]:
        """Interfaces with their MTU, IPv6 addresses, IPv4 routes and permanent neighbours."""
        return {f"{role}: {line}" for role in ROLES for line in self.within(role, _lines)}

    def remove(self) -> None:
        for name in self.names.values():
            run(["ip", "netns", "delete", name], check=False)

    def run(self, role: str, *command: str, stdin: str | None = None, check: bool = True) -> str:
        """Run a command in a namespace, and return what it prints."""
        return self.within(role, lambda: run(list(command), stdin=stdin, check=check))

    def within(self, role: str, function: Callable[[], T]) -> T:
        """Call a function in a namespace; the sockets it makes stay there."""
        return within(self.names[role], function)

    def udp(self, role: str, address: str, port: int = 0) -> socket.socket:
        """A UDP socket in a namespace, bound to one of its addresses."""

        def make() -> socket.socket:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            made = socket.socket(family, socket.SOCK_DGRAM)
            made.bind((address, port))
            return made

        return self.within(role, make)

    def host_drops(self) -> int:
        """How many packets towards the sink the host has dropped, not the limiter.

        A processor has one backlog of received packets for all namespaces. When it is full, because
        of the traffic of other tests too, the receiving interface counts a dropped packet. What
        drld drops is not in this counter.
        """
        at = (("limiter", "in0"), ("sink", "k0"))
        return sum(self.within(role, partial(_dropped_on_receipt, name)) for role, name in at)

    def send(self, packets: Iterable[bytes]) -> None:
        """Send IP packets as they are from the source towards the limiter."""

        def make() -> socket.socket:
            made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
            made.bind(("s0", 0))
            return made

        with self.within("source", make) as link:
            for packet in packets:
                ethertype = {4: 0x0800, 6: 0x86DD}[packet[0] >> 4]
                addresses = bytes.fromhex("020000000102 020000000101")
                link.send(addresses + struct.pack("!H", ethertype) + packet)

    @contextlib.contextmanager
    def capture(self) -> Iterator[Capture]:
        """The packets that arrive at the sink while this is entered."""

        def make() -> socket.socket:
            made = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
            made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 4 << 20)
            made.bind(("k0", ETH_P_ALL))
            return made

        with self.within("sink", make) as link:
            yield Capture(link)


class Capture:
    """Packets that arrive at the sink."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self.packets: list[bytes] = []

    def wait(self, count: int) -> list[bytes]:
        """All packets that have come, once there are so many."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            patience = deadline - time.monotonic() if len(self.packets) < count else 0
            ready, _, _ = select.select([self._link], [], [], max(patience, 0))
            if not ready:
                return self.packets
            data, origin = self._link.recvfrom(65536)
            if origin[2] != PACKET_OUTGOING:
                self.packets.append(data)


def _dropped_on_receipt(interface: str) -> int:
    """How many received packets an interface of this namespace has dropped."""
    lines = Path("/proc/thread-self/net/dev").read_text().splitlines()
    (numbers,) = (line.split(":")[1] for line in lines if line.strip().startswith(interface + ":"))
    return int(numbers.split()[3])


def _lines() -> list[str]:
    table = Path("/proc/thread-self/net")
    lines = (table / "if_inet6").read_text().splitlines()
    lines += (table / "route").read_text().splitlines()
    # Tests send to addresses of no host.
    lines += [line for line in (table / "arp").read_text().splitlines() if PERMANENT in line]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            answer = fcntl.ioctl(asking, SIOCGIFMTU, struct.pack("16sI12x", name.encode(), 0))
            lines.append(f"{name} mtu {struct.unpack('16xI12x', answer)[0]}")
    return lines


def _forward() -> None:
    for name in SYSCTLS:
        (Path("/proc/sys") / name).write_text("1")


def remove_stale() -> None:
    """Remove the namespaces of killed runs."""
    for path in Path("/run/netns").glob("drldt-*"):
        found = re.fullmatch(r"drldt-(\d+)-\w+", path.name)
        if found and not Path(f"/proc/{found[1]}").exists():
            run(["ip", "netns", "delete", path.name], check=False)


def wait_for(look: Callable[[], T], enough: Callable[[T], bool]) -> T:
    """Look until it is enough, or for too long, and return what was seen last."""
    deadline = time.monotonic() + DEADLINE_S
    pause, pause_ms = select.poll(), 2.0
    while True:
        seen = look()
        if enough(seen) or time.monotonic() > deadline:
            return seen
        pause.poll(pause_ms)
        pause_ms = min(1.5 * pause_ms, LONGEST_PAUSE_MS)
