"""The bpf(2) system call: maps and programs, of this process and of others (linux/bpf.h).

A map with mapped memory (`BPF_F_MMAPABLE`) is read and written without a system call, so that the
daemon can read thousands of limits in a tick. This needs CAP_BPF and CAP_NET_ADMIN. A lookup of
programs and maps by id (`from_id`) needs CAP_SYS_ADMIN.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from drld.errors import DatapathError

HASH, ARRAY, PERCPU_ARRAY, RINGBUF = 1, 2, 6, 27
"""The kernel's numbers for the types of maps."""

SOCKET_FILTER, SCHED_CLS, TRACING = 1, 3, 26
"""Types of programs: filters of a socket, classifiers at an interface, traces of the kernel."""

TCX_INGRESS, TCX_EGRESS = 46, 47
"""Hooks of an interface that take programs without a filter (Linux 6.6)."""

PROGRAM_READS_ONLY, MMAPABLE = 1 << 7, 1 << 10
"""The kernel's flags for a new map."""

_MAP_CREATE, _MAP_UPDATE, _PROG_LOAD, _TEST_RUN = 0, 2, 5, 10
_PROG_FROM_ID, _MAP_FROM_ID, _INFO, _FREEZE, _UPDATE_BATCH = 13, 14, 15, 22, 26
_PROG_ATTACH, _PROG_DETACH, _PROG_QUERY, _ENABLE_STATS = 8, 9, 16, 32
_RAW_TRACEPOINT_OPEN, _TRACE_FENTRY = 17, 24
_REPLACE, _BEFORE = 1 << 2, 1 << 3
_MOST_ATTACHED = 64
_NUMBERS = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "s390x": 351, "ppc64le": 361}
_LD_IMM64_MAP = b"\x18"
_PSEUDO_MAP_FD, _PSEUDO_MAP_VALUE = 1, 2
_VERIFIER_LOG_BYTES = 1 << 20
_LICENSE = b"GPL"
"""The programs have two licences; under this one the kernel allows all helpers."""
_NAME_BYTES = 16
_POSSIBLE_CPUS = Path("/sys/devices/system/cpu/possible")

_libc = ctypes.CDLL(None, use_errno=True)


def _call(command: int, attributes: bytes) -> tuple[int, ctypes.Array[ctypes.c_char]]:
    """One bpf(2); return its result, and the attributes as the kernel left them.

    Raises:
        OSError: the call failed.
    """
    number = _NUMBERS.get(platform.machine())
    if number is None:
        raise DatapathError(f"bpf(2): its number on {platform.machine()} is not known")
    memory = ctypes.create_string_buffer(attributes, len(attributes))
    result: int = _libc.syscall(number, command, memory, len(attributes))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result, memory


def _address(data: ctypes.Array[ctypes.c_char]) -> int:
    return ctypes.addressof(data)


def _name(text: str) -> bytes:
    return text.encode()[: _NAME_BYTES - 1]


class Map:
    """A BPF map, owned through a descriptor."""

    def __init__(self, fd: int, name: str, sizes: tuple[int, int], entries: int) -> None:
        self.fd = fd
        self.name = name
        self.key_bytes, self.value_bytes = sizes
        self.entries = entries
        self._memory: mmap.mmap | None = None

    @classmethod
    def create(
        cls, kind: int, name: str, sizes: tuple[int, int], entries: int, flags: int = 0
    ) -> Map:
        """Make a map; `sizes` are the sizes of a key and a value, in bytes.

        Raises:
            DatapathError: the kernel refuses.
        """
        attributes = struct.pack("<IIIIIII16s", kind, *sizes, entries, flags, 0, 0, _name(name))
        try:
            fd, _ = _call(_MAP_CREATE, attributes)
        except OSError as error:
            raise DatapathError(f"the kernel refuses the BPF map {name}: {error}") from error
        return cls(fd, name, sizes, entries)

    @classmethod
    def from_id(cls, identity: int) -> Map:
        """Open a map by its id, such as one of another process.

        Raises:
            OSError: the map does not exist, or is not accessible.
        """
        fd, _ = _call(_MAP_FROM_ID, struct.pack("<III", identity, 0, 0))
        # struct bpf_map_info: type, id, key, value, entries, flags, name
        _, _, key_bytes, value_bytes, entries, _, name = struct.unpack(
            "<IIIIII16s", _information(fd, 40)
        )
        return cls(fd, name.rstrip(b"\0").decode(), (key_bytes, value_bytes), entries)

    @property
    def stride(self) -> int:
        """Bytes from one value of an array to the next."""
        return (self.value_bytes + 7) & ~7

    def identity(self) -> int:
        """The map's id, by which other processes find it."""
        return int(struct.unpack_from("<I", _information(self.fd, 40), 4)[0])

    def memory(self) -> mmap.mmap:
        """The values of an mmapable array."""
        if self._memory is None:
            size = -(-self.entries * self.stride // mmap.PAGESIZE) * mmap.PAGESIZE
            self._memory = mmap.mmap(self.fd, size, mmap.MAP_SHARED)
        return self._memory

    def update(self, key: bytes, value: bytes) -> None:
        """Set one value.

        Raises:
            OSError: the map is full.
        """
        keys = ctypes.create_string_buffer(key, len(key))
        values = ctypes.create_string_buffer(value, len(value))
        _call(_MAP_UPDATE, struct.pack("<IxxxxQQQ", self.fd, _address(keys), _address(values), 0))

    def fill(self, content: Mapping[bytes, bytes]) -> None:
        """Set many values in one system call.

        Raises:
            OSError: the map is full.
        """
        if not content:
            return
        joined_keys = b"".join(content)
        joined = b"".join(content.values())
        keys = ctypes.create_string_buffer(joined_keys, len(joined_keys))
        values = ctypes.create_string_buffer(joined, len(joined))
        _call(
            _UPDATE_BATCH,
            struct.pack(
                "<QQQQIIQQ", 0, 0, _address(keys), _address(values), len(content), self.fd, 0, 0
            ),
        )

    def freeze(self) -> None:
        """Forbid writes from user space, for good."""
        _call(_FREEZE, struct.pack("<I", self.fd))

    def close(self) -> None:
        """Close the descriptor; the map lives while another reference to it exists."""
        if self._memory is not None:
            self._memory.close()
            self._memory = None
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


@dataclass(frozen=True, slots=True)
class Code:
    """A compiled program, and its references to maps."""

    instructions: bytes
    maps: Mapping[int, str]
    """Name of a map by the index of the instruction that refers to it."""


class Program:
    """A loaded program."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @classmethod
    def load(
        cls,
        name: str,
        code: Code,
        maps: Mapping[str, Map],
        kind: int = SCHED_CLS,
        function: int = 0,
    ) -> Program:
        """Load a program.

        Args:
            name: the program's name; the kernel keeps 15 bytes of it.
            code: its instructions.
            maps: its maps, by name.
            kind: its type, such as `SCHED_CLS`.
            function: BTF number of the kernel's function that it is to trace (`TRACING`); else 0.

        Raises:
            DatapathError: the kernel refuses; the error has the end of the verifier's log.
        """
        linked = bytearray(code.instructions)
        for index, target in code.maps.items():
            struct.pack_into("<i", linked, index * 8 + 4, maps[target].fd)
        instructions = ctypes.create_string_buffer(bytes(linked), len(linked))
        licence = ctypes.create_string_buffer(_LICENSE)
        tracing = 0, _TRACE_FENTRY if function else 0, 0, 0, 0, 0, 0, 0, 0, function

        def attempt(log: ctypes.Array[ctypes.c_char] | None) -> int:
            fd, _ = _call(
                _PROG_LOAD,
                struct.pack(
                    "<IIQQIIQII16sIIIIQIIQII",
                    *(kind, len(linked) // 8, _address(instructions), _address(licence)),
                    *(1 if log else 0, len(log) if log else 0, _address(log) if log else 0),
                    *(0, 0, _name(name), *tracing),
                ),
            )
            return fd

        try:
            return cls(attempt(None))
        except OSError as error:
            log = ctypes.create_string_buffer(_VERIFIER_LOG_BYTES)
            try:
                return cls(attempt(log))
            except OSError:
                said = log.value.decode(errors="replace").strip().splitlines()
            reason = "; ".join([str(error), *said[-3:]])
            raise DatapathError(f"the kernel refuses the BPF program {name}: {reason}") from error

    @classmethod
    def from_id(cls, identity: int) -> Program:
        """Open a loaded program by its id.

        Raises:
            OSError: the program does not exist, or is not accessible.
        """
        return cls(_call(_PROG_FROM_ID, struct.pack("<III", identity, 0, 0))[0])

    def identity(self) -> int:
        """The program's id, by which other processes find it."""
        return int(struct.unpack_from("<I", _information(self.fd, 64), 4)[0])

    def name(self) -> str:
        """The program's name, at most 15 bytes of it."""
        return _information(self.fd, 80)[64:].rstrip(b"\0").decode()

    def map_ids(self) -> Sequence[int]:
        """Ids of the maps that the program uses."""
        # struct bpf_prog_info: nr_map_ids at 52, map_ids at 56
        count = struct.unpack_from("<I", _information(self.fd, 64), 52)[0]
        ids = (ctypes.c_uint32 * count)()
        asked = bytearray(64)
        struct.pack_into("<IQ", asked, 52, count, ctypes.addressof(ids))
        _information(self.fd, 64, bytes(asked))
        return list(ids)

    def run(
        self, data: bytes, context: bytes = b"", repeat: int = 1, room: int = 0
    ) -> tuple[int, bytes, bytes]:
        """Run the program on a made-up packet (BPF_PROG_TEST_RUN).

        Args:
            data: the packet, from its Ethernet header on.
            context: the beginning of its struct __sk_buff.
            repeat: number of runs.
            room: bytes of the packet to return.

        Returns:
            The program's result; packet and context after the run.

        Raises:
            OSError: the kernel cannot run the program.
        """
        packet = ctypes.create_string_buffer(data, len(data))
        out = ctypes.create_string_buffer(room)
        given = ctypes.create_string_buffer(context, len(context))
        left = ctypes.create_string_buffer(len(context))
        _, memory = _call(
            _TEST_RUN,
            struct.pack(
                "<IIIIQQIIIIQQ",
                *(self.fd, 0, len(data), room),
                *(_address(packet), _address(out) if room else 0),
                *(repeat, 0, len(context), len(context)),
                *(_address(given) if context else 0, _address(left) if context else 0),
            ),
        )
        return struct.unpack_from("<i", memory.raw, 4)[0], out.raw, left.raw

    def close(self) -> None:
        """Close the descriptor."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def attached(index: int, hook: int) -> list[int]:
    """Ids of the programs on a hook (`TCX_INGRESS`) of an interface, in the order of execution.

    Raises:
        OSError: the interface is gone, or the kernel has no such hooks.
    """
    ids = (ctypes.c_uint32 * _MOST_ATTACHED)()
    where = ctypes.addressof(ids), len(ids)
    _, memory = _call(
        _PROG_QUERY, struct.pack("<IIIIQIxxxxQQQQ", index, hook, 0, 0, *where, 0, 0, 0, 0)
    )
    return list(ids[: struct.unpack_from("<I", memory.raw, 24)[0]])


def attach(index: int, hook: int, program: Program, replaced: Program | None = None) -> None:
    """Attach to a hook of an interface: in place of another program, or before all programs.

    Raises:
        OSError: the kernel refuses.
    """
    how = (_REPLACE, replaced.fd) if replaced else (_BEFORE, 0)
    _call(_PROG_ATTACH, struct.pack("<IIIIIIQ", index, program.fd, hook, *how, 0, 0))


def detach(index: int, hook: int, program: Program) -> None:
    """Remove a program from a hook of an interface.

    Raises:
        OSError: the program is not on the hook.
    """
    _call(_PROG_DETACH, struct.pack("<IIIIIIQ", index, program.fd, hook, 0, 0, 0, 0))


def trace(program: Program) -> int:
    """Run a program of type `TRACING` whenever the traced function begins (Linux 5.5).

    Returns:
        A descriptor; the program runs until it is closed.

    Raises:
        OSError: the kernel refuses.
    """
    return _call(_RAW_TRACEPOINT_OPEN, struct.pack("<QIxxxx", 0, program.fd))[0]


def enable_statistics() -> int:
    """Make the kernel count the runs and the run time of all programs (Linux 5.8).

    Returns:
        A descriptor; the kernel counts until it is closed, also by the end of the process.

    Raises:
        OSError: the kernel cannot, or CAP_SYS_ADMIN is missing.
    """
    return _call(_ENABLE_STATS, struct.pack("<I", 0))[0]


def references(
    instructions: bytes, names: Mapping[int, str], values: Mapping[int, str]
) -> dict[int, str]:
    """A program's references to maps: the map's name by the index of the instruction.

    Args:
        instructions: the program's instructions.
        names: maps by descriptor.
        values: maps by the numbers that stand for the addresses of their values.
    """
    spaces = {_PSEUDO_MAP_FD: names, _PSEUDO_MAP_VALUE: values}
    found = {}
    for index in range(len(instructions) // 8):
        opcode, registers, value = struct.unpack_from("<BBxxi", instructions, index * 8)
        if bytes([opcode]) == _LD_IMM64_MAP and registers >> 4 in spaces:
            found[index] = spaces[registers >> 4][value]
    return found


def possible_cpus() -> int:
    """The number of CPUs that this kernel may use: one more than the highest number of any.

    Raises:
        DatapathError: the host hides /sys, as a sandbox or container may.
    """
    try:
        text = _POSSIBLE_CPUS.read_text()  # "0-3,8"
    except OSError as error:
        raise DatapathError(f"{_POSSIBLE_CPUS}: {error.strerror}") from error
    return max(int(part.split("-")[-1]) for part in text.strip().split(",")) + 1


def _information(fd: int, size: int, asked: bytes | None = None) -> bytes:
    memory = ctypes.create_string_buffer(asked or bytes(size), size)
    _call(_INFO, struct.pack("<IIQ", fd, size, _address(memory)))
    return memory.raw
