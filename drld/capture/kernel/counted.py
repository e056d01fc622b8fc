"""One limit's counters in the maps at its last read, and what they have counted since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from drld.capture import kernel_layout as layout
from drld.capture.kernel.state import NO_BYTES, NO_FLOWS, Counts, State
from drld.model import NO_COUNTS, FlowId, Measurement


@dataclass(slots=True)
class Counted:
    """A limit's counters at its last read."""

    slot: int
    read_ns: int
    counts: Counts
    flows: Sequence[int]
    """The id of the flow in each place of the flow table; 0: the place is free."""
    sizes: Sequence[int]
    hits: Sequence[int]
    """Bytes by place of the flow table: that arrived, and that were refused or marked."""

    @classmethod
    def of(cls, state: State, slot: int, now_ns: int) -> Counted:
        """The counters at this moment."""
        flows, sizes = _flows(state, slot)
        return cls(slot, now_ns, state.counts(slot), flows, sizes, state.hits(slot))

    def read(self, state: State, now_ns: int) -> Measurement:
        """What was counted since the last read."""
        counts, (flows, sizes) = state.counts(self.slot), _flows(state, self.slot)
        new = counts.since(self.counts)
        hits: Mapping[FlowId, int] = NO_COUNTS
        if new.dropped_bytes or new.marked_bytes:
            now = state.hits(self.slot)
            found = layout.by_flow(flows, now, self.hits)
            hits = {identity: size for identity, size in found.items() if size}
            self.hits = now
        measurement = Measurement(
            interval_ns=now_ns - self.read_ns,
            arrived_tokens=new.forwarded_bytes + new.dropped_bytes + new.refused_bytes,
            arrived_items=new.forwarded_packets + new.dropped_packets + new.refused_packets,
            forwarded_tokens=new.forwarded_bytes,
            forwarded_items=new.forwarded_packets,
            dropped_tokens=new.dropped_bytes,
            dropped_items=new.dropped_packets,
            flows=layout.by_flow(flows, sizes, self.sizes) or NO_COUNTS,
            hits=hits,
            marked_tokens=new.marked_bytes,
            marked_items=new.marked_packets,
        )
        self.read_ns, self.counts = now_ns, counts
        self.flows, self.sizes = flows, sizes
        return measurement


def _flows(state: State, slot: int) -> tuple[Sequence[int], Sequence[int]]:
    """The ids of the flows and their bytes, by place; most limits share those without flows."""
    table = state.flows(slot)
    return (NO_BYTES, NO_BYTES) if table is NO_FLOWS else (table[::2], table[1::2])
