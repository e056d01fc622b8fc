"""The shared maps of the kernel datapath, read and written as memory: the limits' state.

A slot is the place of a limit in the maps. It contains the limit's id, so that a daemon that takes
over the maps of a dead one finds each limit's state.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping, Sequence
from operator import sub
from typing import NamedTuple

from drld.capture import kernel_layout as layout
from drld.ebpf import bpf
from drld.ebpf.bpf import Code, Map, Program
from drld.errors import DatapathError
from drld.model import Enforcement

MAX_COMMANDS = 256
"""Records that one system call puts in force."""

_LASTING = ("control", "limits", "counts", "parse_anomalies", "flows")
"""The shared maps that `police` uses, which its programs keep alive."""
_COMMANDS_MAP = ("commands", (4, layout.COMMAND.size), MAX_COMMANDS, bpf.MMAPABLE)

_MIN_CAPACITY = 64
NO_FLOWS = (0,) * (2 * layout.FLOW_SLOTS)
"""The shared table of limits that never had a packet: it saves memory."""
NO_BYTES = (0,) * layout.FLOW_SLOTS
"""The same, of one number for each place."""
_PACKETS_MASK = 2**32 - 1
_FRAME = bytes(64)
"""`apply` reads no packet, but the kernel requires one."""

_U64, _U32, _U16 = struct.Struct("=Q"), struct.Struct("=I"), struct.Struct("=H")
_S64 = struct.Struct("=q")
_AT = layout.LIMIT_OFFSETS
_IDS = struct.Struct(f"={_AT['id']}xI{layout.LIMIT.size - _AT['id'] - _U32.size}x")
"""A `struct drld_limit` of which only the id is read."""


class Counts(NamedTuple):
    """The counters of a limit, in the order of `struct drld_counts`; they are never reset.

    Counters of packets wrap at 2**32 on each CPU, so only differences have a meaning (`since`).
    """

    forwarded_bytes: int
    dropped_bytes: int
    refused_bytes: int
    marked_bytes: int
    forwarded_packets: int
    dropped_packets: int
    refused_packets: int
    marked_packets: int

    def since(self, earlier: Counts) -> Counts:
        """The difference from `earlier`."""
        one, two, three, four, *packets = map(sub, self, earlier)
        return Counts(one, two, three, four, *[packet & _PACKETS_MASK for packet in packets])


class State:
    """The shared maps of a limiter."""

    def __init__(self, maps: Mapping[str, Map], apply: Code) -> None:
        """Take existing maps; this object owns them and closes them.

        Raises:
            DatapathError: the maps have another version, or `apply` does not load.
        """
        self.maps = dict(maps)
        _, abi, capacity, cpus, _ = layout.CONTROL.unpack_from(self.maps["control"].memory())
        if abi != layout.ABI:
            raise DatapathError(f"the maps have version {abi}, not {layout.ABI}")
        self.capacity: int = capacity
        self.cpus: int = cpus
        self._counts = struct.Struct("=" + layout.COUNTS.format[1:] * cpus)
        self._flow_table = struct.Struct(f"={2 * layout.FLOW_SLOTS}Q")
        self._apply = Program.load("apply", apply, self.maps)

    @classmethod
    def create(cls, limits: int, cpus: int, apply: Code) -> State:
        """Make maps with room for at least this many limits.

        Raises:
            DatapathError: the kernel refuses.
        """
        capacity = max(_MIN_CAPACITY, 1 << (limits - 1).bit_length())
        sizes = {
            "control": (layout.CONTROL.size, 1),
            "limits": (layout.LIMIT.size, capacity),
            "counts": (layout.COUNTS.size, capacity * cpus),
            "parse_anomalies": (layout.PARSE_ANOMALIES.size, cpus),
            "flows": (layout.FLOWS_BYTES, capacity),
        }
        maps: dict[str, Map] = {}
        try:
            for name, (size, entries) in sizes.items():
                maps[name] = Map.create(bpf.ARRAY, name, (4, size), entries, bpf.MMAPABLE)
            maps["commands"] = Map.create(bpf.ARRAY, *_COMMANDS_MAP)
            control = layout.CONTROL.pack(0, layout.ABI, capacity, cpus, 0)
            maps["control"].memory()[: len(control)] = control
            return cls(maps, apply)
        except BaseException:
            for each in maps.values():
                each.close()
            raise

    @classmethod
    def adopt(cls, handover_ids: str, apply: Code) -> State:
        """Take over the lasting maps among those with these ids (`handover_ids`).

        Raises:
            DatapathError: maps are missing, of another version, or not accessible.
        """
        maps: dict[str, Map] = {}
        try:
            for identity in filter(None, handover_ids.split(".")):
                found = Map.from_id(int(identity))
                if found.name in _LASTING:
                    maps[found.name] = found
                else:
                    found.close()
            if set(maps) != set(_LASTING):
                raise DatapathError("the maps are not those of this program")
            maps["commands"] = Map.create(bpf.ARRAY, *_COMMANDS_MAP)
            return cls(maps, apply)
        except BaseException as error:
            for each in maps.values():
                each.close()
            if isinstance(error, (OSError, ValueError)):
                raise DatapathError(f"maps {handover_ids}: {error}") from error
            raise

    @property
    def handover_ids(self) -> str:
        """The ids of the maps that a program keeps alive, separated by dots, for `adopt`."""
        return ".".join(str(self.maps[name].identity()) for name in _LASTING)

    def close(self) -> None:
        """Close maps and program; other references keep them alive."""
        self._apply.close()
        for each in self.maps.values():
            each.close()

    # Slots

    def slots(self) -> dict[int, int]:
        """Slot by id of the limits in the maps."""
        size = self.capacity * layout.LIMIT.size
        with memoryview(self.maps["limits"].memory())[:size] as limits:
            ids = enumerate(_IDS.iter_unpack(limits))
            return {identity: slot for slot, (identity,) in ids if identity}

    def occupy(self, slot: int, content: bytes) -> None:
        """Give a slot to a limit (`kernel_layout.limit_state`)."""
        flows = self.maps["flows"].memory()
        flows[slot * layout.FLOWS_BYTES : (slot + 1) * layout.FLOWS_BYTES] = bytes(
            layout.FLOWS_BYTES
        )
        self.write_limit(slot, 0, content)

    def release(self, slot: int) -> None:
        """Free a slot, once no program uses it any more."""
        self.write_limit(slot, _AT["id"], _U32.pack(0))

    def write_limit(self, slot: int, offset: int, content: bytes) -> None:
        """Write into a `struct drld_limit`."""
        start = slot * layout.LIMIT.size + offset
        self.maps["limits"].memory()[start : start + len(content)] = content

    def configure(self, slot: int, flags: int, grace_ns: int, source_bits: bytes) -> None:
        """Change a limit's settings; empty its flow table if its definition of a flow changes."""
        self.write_limit(slot, _AT["flags"], _U16.pack(flags))
        self.write_limit(slot, _AT["grace_ns"], _U64.pack(grace_ns))
        start = slot * layout.LIMIT.size + _AT["source4"]
        if self.maps["limits"].memory()[start : start + len(source_bits)] != source_bits:
            self.write_limit(slot, _AT["source4"], source_bits)
            for place in range(layout.FLOW_SLOTS):
                self.evict(slot, place)

    def set_fallback(self, slot: int, record: bytes) -> None:
        """Change the record that is in force while the daemon is dead."""
        self.write_limit(slot, _AT["fallback"], record)

    def copy_to(self, other: State) -> None:
        """Copy all slots and counters into maps of at least this capacity."""
        for name in ("limits", "counts", "flows", "parse_anomalies"):
            size = self.maps[name].stride * self.maps[name].entries
            other.maps[name].memory()[:size] = self.maps[name].memory()[:size]
        heartbeat = self.maps["control"].memory()[: _U64.size]
        other.maps["control"].memory()[: _U64.size] = heartbeat

    def retire(self) -> None:
        """Have programs that still use these maps pass all packets.

        An interface that is moved to another network namespace takes its program on tcx along,
        where the daemon cannot remove it.
        """
        for slot in self.slots().values():
            self.write_limit(slot, _AT["flags"], _U16.pack(layout.SHADOW))

    # A tick

    def beat(self, now_ns: int) -> None:
        """Write the heartbeat, which shows that the daemon lives."""
        _U64.pack_into(self.maps["control"].memory(), 0, now_ns)

    def had_traffic(self) -> list[int]:
        """Slots of the limits that have seen a packet since the last call."""
        memory = self.maps["limits"].memory()
        size = layout.LIMIT.size
        low_byte = _AT["had_traffic"] + (sys.byteorder == "big")
        marks = memory[low_byte : self.capacity * size : size]
        slots = []
        slot = marks.find(1)
        while slot >= 0:
            slots.append(slot)
            # Another CPU may set the flag before its counts are visible here. The limit stays
            # awake, and is read again, for far longer than that takes.
            memory[slot * size + low_byte] = 0
            slot = marks.find(1, slot + 1)
        return slots

    def counts(self, slot: int) -> Counts:
        """A limit's counters, summed over all CPUs."""
        values = self._counts.unpack_from(self.maps["counts"].memory(), slot * self._counts.size)
        return Counts._make([sum(values[field::8]) for field in range(8)])

    def parse_anomalies(self) -> Sequence[int]:
        """Counts of truncated, malformed, fragments and unmatched packets; never reset."""
        memory = self.maps["parse_anomalies"].memory()
        rows = [
            layout.PARSE_ANOMALIES.unpack_from(memory, cpu * layout.PARSE_ANOMALIES.size)
            for cpu in range(self.cpus)
        ]
        return [sum(column) for column in zip(*rows, strict=True)]

    def bucket(self, slot: int) -> tuple[int, int]:
        """A limit's tokens, bytes x 10**-9, and the time up to which they are settled, ns."""
        start = slot * layout.LIMIT.size
        memory = self.maps["limits"].memory()
        (tokens,) = _S64.unpack_from(memory, start + _AT["tokens"])
        (updated_ns,) = _U64.unpack_from(memory, start + _AT["updated_ns"])
        return tokens, updated_ns

    def flows(self, slot: int) -> tuple[int, ...]:
        """A limit's flow table: id, bytes, id, bytes, ..."""
        table = self._flow_table.unpack_from(self.maps["flows"].memory(), slot * layout.FLOWS_BYTES)
        return table if any(table) else NO_FLOWS

    def flow_buckets(self, slot: int) -> tuple[int, ...]:
        """The flow buckets in the order of the flow table: due_ns, hits, due_ns, hits, ..."""
        table = self._flow_table.unpack_from(
            self.maps["flows"].memory(), slot * layout.FLOWS_BYTES + layout.BUCKETS_OFFSET
        )
        return table if any(table) else NO_FLOWS

    def hits(self, slot: int) -> tuple[int, ...]:
        """Bytes refused or marked, by place of the flow table; never reset."""
        buckets = self.flow_buckets(slot)
        return NO_BYTES if buckets is NO_FLOWS else buckets[1::2]

    def evict(self, slot: int, place: int) -> None:
        """Free a place of a limit's flow table; its counts of bytes and hits go on from there."""
        memory = self.maps["flows"].memory()
        start = slot * layout.FLOWS_BYTES
        # The bucket first: as soon as the place is free, a packet may give it to another flow.
        _U64.pack_into(memory, start + layout.BUCKETS_OFFSET + place * layout.FLOW_BUCKET.size, 0)
        _U64.pack_into(memory, start + place * layout.FLOW.size, 0)

    def apply(self, records: Mapping[int, Enforcement], now_ns: int) -> None:
        """Put records in force, by slot: one system call for each `MAX_COMMANDS` of them.

        After a signal, a further call puts the remaining records in force.

        Raises:
            DatapathError: the kernel refuses to run the program.
        """
        commands = self.maps["commands"].memory()
        packed = [layout.command(slot, record, now_ns) for slot, record in records.items()]
        for start in range(0, len(packed), MAX_COMMANDS):
            some = packed[start : start + MAX_COMMANDS]
            commands[: len(some) * layout.COMMAND.size] = b"".join(some)
            control, cursor_at = self.maps["control"].memory(), layout.CONTROL_OFFSETS["cursor"]
            _U32.pack_into(control, cursor_at, 0)
            done = 0
            while done < len(some):
                try:
                    self._apply.run(_FRAME, repeat=len(some) - done)
                    break
                except InterruptedError:  # a signal: the kernel stops after some of the runs
                    (done,) = _U32.unpack_from(control, cursor_at)
                except OSError as error:
                    raise DatapathError(f"BPF_PROG_TEST_RUN: {error}") from error
