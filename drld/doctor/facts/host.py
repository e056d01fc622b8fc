"""Facts of the host, from the kernel's files and from sockets that send nothing."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import pwd
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from drld.config import drop_ins
from drld.doctor.host import Buffers, Chain, Clocks, File, Namespaces, Port, Way
from drld.gossip.transport import RECEIVE_BUFFER
from drld.spec import LimiterSpec

PROC = Path("/proc")
CACHE = Path("/var/cache/drld")
STATE = Path("/var/lib/drld")
"""The folder that systemd gives the unit for its history."""
UNIT_USER = "drld"
"""The user of the unit, whom the package makes (scripts/debian/drld.sysusers)."""
CAP_NET_ADMIN = 12

_IP_MTU, _IPV6_MTU = 14, 24
_UNSYNCHRONISED = 0x40
"""STA_UNSYNC of adjtimex(2), which is in the state of the clock at this offset."""
_STATUS_OFFSET, _TIMEX_BYTES = 40, 256
_COMMAND_TIMEOUT_S = 10


def number(path: Path) -> int | None:
    """The number in a file of the kernel; None if there is none."""
    try:
        return int(path.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return None


def output(*command: str) -> str | None:
    """The output of a tool; None: it is not installed, or fails."""
    path = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    tool = shutil.which(command[0], path=path)
    if tool is None:
        return None
    try:
        done = subprocess.run(
            [tool, *command[1:]],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_COMMAND_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def capabilities(pid: int | None) -> int | None:
    """Effective capabilities of a process as a bit mask; None: unknown."""
    try:
        status = (PROC / str(pid) / "status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.M)
    return int(found[1], 16) if found else None


def user(pid: int | None) -> int:
    """The user of a process. If there is none, the unit's, or root on a host without the unit."""
    with contextlib.suppress(OSError):
        return (PROC / str(pid)).stat().st_uid
    try:
        return pwd.getpwnam(UNIT_USER).pw_uid
    except KeyError:
        return 0


def port(address: str, port_number: int, pid: int | None) -> Port:
    """A UDP port of the daemon, and the processes that have it bound."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    local = True
    with socket.socket(family, socket.SOCK_DGRAM) as trial:
        try:
            trial.bind((address, 0))
        except OSError as error:
            local = error.errno != errno.EADDRNOTAVAIL
    return Port(address, port_number, local, pid, _owners(_bound(address, port_number)))


def _bound(address: str, port_number: int) -> set[str]:
    """Inodes of the UDP sockets that take what is sent to an address and port."""
    inodes = set()
    for table, family in (("udp", socket.AF_INET), ("udp6", socket.AF_INET6)):
        try:
            lines = (PROC / "self/net" / table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            host, _, hexadecimal = fields[1].partition(":")
            # Words of 32 bits, each in the byte order of the host.
            words = [bytes.fromhex(host[at : at + 8])[::-1] for at in range(0, len(host), 8)]
            here = socket.inet_ntop(family, b"".join(words))
            if int(hexadecimal, 16) == port_number and here in (address, "0.0.0.0", "::"):
                inodes.add(fields[9])
    return inodes


def _owners(inodes: set[str]) -> Sequence[tuple[int, str]] | None:
    """The processes with these sockets; None if a socket's process cannot be seen."""
    if not inodes:
        return ()
    links = {f"socket:[{inode}]" for inode in inodes}
    found: dict[int, str] = {}
    for process in PROC.glob("[0-9]*"):
        try:
            held = {str(each.readlink()) for each in (process / "fd").iterdir()}
            if held & links:
                found[int(process.name)] = (process / "comm").read_text(errors="replace").strip()
        except OSError:
            continue
    return sorted(found.items()) or None


def ways(spec: LimiterSpec) -> Iterator[Way]:
    """The way to each peer; connecting a UDP socket sends nothing."""
    for peer in spec.peers:
        host, peer_port = peer.address
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as trial:
            try:
                trial.bind((spec.listen[0], 0))
            except OSError:
                continue  # `port` says it
            try:
                trial.connect((host, peer_port))
                if family == socket.AF_INET:
                    mtu = trial.getsockopt(socket.IPPROTO_IP, _IP_MTU)
                else:
                    mtu = trial.getsockopt(socket.IPPROTO_IPV6, _IPV6_MTU)
            except OSError as error:
                yield Way(peer.name, host, _version(family), None, error.strerror or str(error))
            else:
                yield Way(peer.name, host, _version(family), mtu)


def _version(family: socket.AddressFamily) -> int:
    return 6 if family == socket.AF_INET6 else 4


def chains() -> list[Chain] | None:
    """The chains that packets for this host meet first; None if they cannot be read."""
    if os.geteuid() != 0:
        return None
    found = list(nft_chains(output("nft", "--terse", "list", "ruleset") or ""))
    for tool in ("iptables-legacy-save", "ip6tables-legacy-save"):
        found += iptables_chains(tool.removesuffix("-save"), output(tool) or "")
    return found


def nft_chains(ruleset: str) -> Iterator[Chain]:
    """The chains at the input hook of what `nft list ruleset` prints."""
    table = name = ""
    hooked = False
    drops = False
    rules: list[str] = []
    for line in map(str.strip, ruleset.splitlines()):
        if line.startswith("table "):
            table = line.removesuffix("{").strip()
        elif line.startswith("chain "):
            name, hooked, drops, rules = line.split()[1], False, False, []
        elif line.startswith("type ") and " hook " in line:
            hooked, drops = "hook input" in line, "policy drop" in line
        elif line == "}" and name:
            if hooked:
                yield Chain(f"{table} chain {name}", drops, tuple(rules))
            name = ""
        elif name:
            rules.append(line)


def iptables_chains(tool: str, saved: str) -> Iterator[Chain]:
    """The chain INPUT of the filter table in what `iptables-save` prints."""
    policy = re.search(r"^:INPUT (\w+)", saved, re.M)
    if policy:
        rules = re.findall(r"^-A INPUT (.+)$", saved, re.M)
        yield Chain(f"{tool} chain INPUT", policy[1] == "DROP", tuple(rules))


def files(spec: LimiterSpec, file: str) -> list[File]:
    """The files and directories that the daemon trusts or writes."""
    used = {
        "configuration file mode": file,
        "drop-ins mode": str(drop_ins(file)),
        "compiled programs": str(CACHE),
        "history": str(STATE),
    }
    used["control directory"] = str(Path(spec.control).parent)
    if spec.registry is not None:
        used["registry cache"] = spec.registry.cache
    return [_file(use, path) for use, path in used.items()]


def _file(use: str, path: str) -> File:
    try:
        found, disk = Path(path).stat(), os.statvfs(path)
    except OSError:
        return File(use, path, None)
    # A file system without a table of inodes has `f_files` 0; a read-only image has no room at all.
    full = disk.f_bavail == 0 or (disk.f_files > 0 and disk.f_favail == 0)
    full = full and not disk.f_flag & os.ST_RDONLY
    return File(use, path, found.st_mode, found.st_uid, full)


def not_read(file: str) -> list[str]:
    """Files in the folder of drop-ins that are no drop-ins."""
    try:
        names = sorted(entry.name for entry in drop_ins(file).iterdir())
    except OSError:
        return []
    return [name for name in names if name.startswith(".") or not name.endswith(".toml")]


def clocks(certificates: bool) -> Clocks:
    """The clocks of this host."""
    timex = ctypes.create_string_buffer(_TIMEX_BYTES)
    synchronised = None
    if ctypes.sizeof(ctypes.c_long) == 8 and ctypes.CDLL(None).adjtimex(timex) >= 0:
        state = int.from_bytes(timex.raw[_STATUS_OFFSET : _STATUS_OFFSET + 4], "little")
        synchronised = not state & _UNSYNCHRONISED
    source = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    try:
        name = source.read_text(encoding="ascii").strip()
    except OSError:
        name = "unknown"
    return Clocks(synchronised, name, certificates)


def buffers(held: int | None) -> Buffers:
    """Limits on buffers; `held` are the daemon's capabilities."""
    core, filters = PROC / "sys/net/core", PROC / "sys/net/netfilter"
    return Buffers(
        rmem_max=number(core / "rmem_max"),
        wanted=RECEIVE_BUFFER,
        net_admin=held is None or bool(held >> CAP_NET_ADMIN & 1),
        tracked=number(filters / "nf_conntrack_count"),
        trackable=number(filters / "nf_conntrack_max"),
    )


def namespaces(pid: int | None) -> Namespaces:
    """The namespaces of the daemon, or of this process if there is no daemon."""
    same = None
    if pid is not None:
        with contextlib.suppress(OSError):
            same = (PROC / str(pid) / "ns/net").readlink() == (PROC / "self/ns/net").readlink()
    return Namespaces(same, pid)


def shifted_s(pid: int | None) -> float:
    """Return the offset of the monotonic clock in the time namespace of the daemon, or of this
    process if there is no daemon, seconds."""
    try:
        offsets = PROC / ("self" if pid is None else str(pid)) / "timens_offsets"
        for line in offsets.read_text(encoding="ascii").splitlines():
            clock, seconds, nanoseconds = line.split()
            if clock == "monotonic":
                return int(seconds) + int(nanoseconds) / 1e9
    except (OSError, ValueError):
        pass
    return 0.0
