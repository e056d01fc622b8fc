"""A flow sample whose flows are sources: the sample of a limit with `flow = "source/24"`.

A source that sends each packet from a new port has no lasting five-tuple, so no flow bucket would
bound it. Here all packets from one source prefix are one flow. Its key is a five-tuple with the
leading bits of the source address; all other bits are zero. `flow_in` in bpf/flow.h does the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from drld.estimate.flows import FlowSample, FlowSlot
from drld.model import FlowId, FlowKey


@dataclass(frozen=True, slots=True)
class SourcePrefix:
    """A flow by source: all packets whose source addresses agree in these leading bits."""

    ipv4: int = 32
    ipv6: int = 64
    """Length of the prefix; one host commonly has the addresses of a /64."""

    def __str__(self) -> str:
        """The notation of the configuration."""
        return f"source/{self.ipv4}/{self.ipv6}"


class SourceSample(FlowSample):
    """Byte counters of at most `capacity` source prefixes."""

    __slots__ = ("_prefix",)

    def __init__(self, prefix: SourcePrefix) -> None:
        super().__init__()
        self._prefix = prefix

    def observe(self, flow: FlowId, length: int) -> FlowSlot | None:
        """Count a packet of `length` bytes as one of its source; see `FlowSample.observe`."""
        assert isinstance(flow, FlowKey)
        return super().observe(source_of(flow, self._prefix), length)

    def peek(self, flow: FlowId) -> FlowSlot | None:
        """See `FlowSample.peek`."""
        assert isinstance(flow, FlowKey)
        return super().peek(source_of(flow, self._prefix))

    def _empty(self) -> FlowSample:
        """See `FlowSample._empty`."""
        return SourceSample(self._prefix)


def source_masks(prefix: SourcePrefix) -> tuple[bytes, bytes]:
    """The bits of an IPv4 and of an IPv6 source address that make a flow, in network order."""
    return _mask(prefix.ipv4, 4), _mask(prefix.ipv6, 16)


def source_of(flow: FlowKey, prefix: SourcePrefix) -> FlowKey:
    """The flow that a packet of this five-tuple belongs to, by its source."""
    width = len(flow.source)
    unused = 8 * width - (prefix.ipv4 if width == 4 else prefix.ipv6)
    source = int.from_bytes(flow.source, "big") >> unused << unused
    return FlowKey(0, source.to_bytes(width, "big"), bytes(width), 0, 0)


def _mask(bits: int, width: int) -> bytes:
    unused = 8 * width - bits
    return ((1 << 8 * width) - (1 << unused)).to_bytes(width, "big")
