"""The BPF programs without an interface: packets, time and randomness come from the test."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from random import Random
from typing import NamedTuple

from drld.capture import kernel_classifier as classifier
from drld.capture import kernel_layout as layout
from drld.capture.kernel.state import State
from drld.capture.kernel.tables import hook_maps
from drld.capture.packet import marked
from drld.ebpf.bpf import ARRAY, MMAPABLE, Code, Map, Program
from drld.model import Enforcement
from drld.police.policer import DROP, FORWARD, MARK
from drld.spec import LimitSpec

from ..fuzz.frames import packet_of

TEST_FLAGS = ("-DDRLD_TEST=1",)
SEED = 0x0123456789ABCDEF
ETHERNET = bytes.fromhex("020000000102 020000000101")
GRACE_NS = 10**18

_GO_ON, _SHOT = -1, 2
_CONTEXT_BYTES = 192
_MARK_OFFSET, _GSO_SEGS_OFFSET, _GSO_SIZE_OFFSET = 8, 164, 176


class Draws(Random):
    """A random generator that says what it is told to."""

    def __init__(self, values: Sequence[int]) -> None:
        super().__init__()
        self._values = list(values)

    def getrandbits(self, k: int) -> int:
        assert k == 32
        return self._values.pop(0)


class Flow(NamedTuple):
    """A place of a limit's flow table; bytes and hits are those of earlier flows, too."""

    place: int
    size: int
    due_ns: int
    hits: int


class Bench:
    """The test build of `police` and `apply` with some limits of one hook."""

    def __init__(
        self, code: Mapping[str, Code], limits: Sequence[LimitSpec], link_bytes: int = 14
    ) -> None:
        self.limits = list(limits)
        self.cpus = os.cpu_count() or 1
        self.slots = {limit.id: slot for slot, limit in enumerate(self.limits)}
        tables = classifier.tables(self.limits, self.slots, self.cpus, link_bytes, SEED)
        self.test = Map.create(ARRAY, "test", (4, layout.TEST.size), 1, MMAPABLE)
        self._hook_maps = hook_maps(tables)
        self.state = State.create(len(self.limits), self.cpus, code["apply"])
        self.program = Program.load(
            "police", code["police"], {**self.state.maps, **self._hook_maps, "test": self.test}
        )

    def close(self) -> None:
        self.program.close()
        for each in self._hook_maps.values():
            each.close()
        self.state.close()
        self.test.close()

    def reset(
        self, enforcements: Sequence[Enforcement], now_ns: int, limits: Sequence[LimitSpec] = ()
    ) -> None:
        """Full buckets, and counters from zero."""
        for limit, enforcement in zip(limits or self.limits, enforcements, strict=True):
            slot = self.slots[limit.id]
            self.state.occupy(
                slot, layout.limit_state(limit, enforcement, enforcement, GRACE_NS, now_ns)
            )
        for name in ("counts", "parse_anomalies"):
            memory = self.state.maps[name].memory()
            memory[:] = bytes(len(memory))
        self.state.beat(now_ns)

    def packet(
        self,
        data: bytes,
        coarse_ns: int = 0,
        fine_ns: int = 0,
        draws: Sequence[int] = (),
        *,
        mark: int = 0,
        segment: int = 0,
        segments: int = 0,
    ) -> int:
        """The verdict about this frame, Ethernet header first: one of `drld.police.policer`.

        `segment` is the payload of one segment of a GSO packet; `segments` their number, where
        the kernel has counted them already.
        """
        padded = [*draws, *[0] * (layout.MAX_LIST - len(draws))]
        content = layout.TEST.pack(coarse_ns, fine_ns, *padded, 0)
        self.test.memory()[: len(content)] = content
        context = bytearray(_CONTEXT_BYTES)
        struct.pack_into("=I", context, _MARK_OFFSET, mark)
        struct.pack_into("=I", context, _GSO_SIZE_OFFSET, segment)
        struct.pack_into("=I", context, _GSO_SEGS_OFFSET, segments)
        verdict, left, _ = self.program.run(data, bytes(context), room=len(data))
        assert verdict in (_GO_ON, _SHOT)
        if verdict == _SHOT:
            return DROP
        if left == data:
            return FORWARD
        start = len(data) - len(packet_of(data) or b"")
        assert left == data[:start] + marked(data[start:])
        return MARK

    def flows(self, slot: int) -> dict[int, Flow]:
        """The flows of the sample by their identity."""
        table, buckets = self.state.flows(slot), self.state.flow_buckets(slot)
        rows = zip(table[::2], table[1::2], buckets[::2], buckets[1::2], strict=True)
        return {
            identity: Flow(place, size, due_ns, hits)
            for place, (identity, size, due_ns, hits) in enumerate(rows)
            if identity
        }

    def adopt(self, apply: Code) -> None:
        """Find the maps that the program keeps, as the next daemon does after a crash."""
        state = State.adopt(self.state.handover_ids, apply)
        self.state.close()
        self.state = state

    def tokens(self, slot: int) -> tuple[int, int]:
        """Tokens, and the time that they are of."""
        limit = layout.LIMIT.unpack_from(
            self.state.maps["limits"].memory(), slot * layout.LIMIT.size
        )
        return limit[0], limit[1]
