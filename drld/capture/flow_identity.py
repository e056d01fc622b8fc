"""The kernel datapath's name of a flow: a hash of its five-tuple (`flow_id` in bpf/flow.h). Pure.

No code inverts it. With it, the place of a known flow in the kernel's flow table can be found.
"""

from __future__ import annotations

import sys

from drld.model import FlowKey
from drld.police.source_sample import SourcePrefix, source_of

FLOW_WAYS = 4
"""Places of a set of the flow table (`DRLD_FLOW_WAYS`)."""
_MASK = (1 << 64) - 1


def flow_identity(
    flow: FlowKey, seed: int, prefix: SourcePrefix | None = None, *, addressed: bool = True
) -> int:
    """The identity of a flow, or of its source if a limit's flows are sources.

    Args:
        flow: the five-tuple that `packet.parse` read.
        seed: the seed of the limiter's programs.
        prefix: what makes a flow of the limit; None: the five-tuple.
        addressed: whether the addresses are known.
    """
    if prefix is not None:
        flow = source_of(flow, prefix)
    ports = flow.source_port.to_bytes(2, "big") + flow.destination_port.to_bytes(2, "big")
    identity = seed ^ (flow.protocol << 32 | int.from_bytes(ports, sys.byteorder))
    if addressed or prefix is not None:
        for start in range(0, len(flow.source), 4):
            source, destination = (
                int.from_bytes(address[start : start + 4], sys.byteorder)
                for address in (flow.source, flow.destination)
            )
            identity = identity * 0x9E3779B97F4A7C15 & _MASK ^ (source << 32 | destination)
            for _ in range(2):
                identity ^= identity >> 32
                identity = identity * 0xD6E8FEB86659FD93 & _MASK
            identity ^= identity >> 32
    return identity | 1


def sets_of(flow: int) -> tuple[int, int]:
    """The two sets of the flow table that a flow of this identity may be in (bpf/flow.h)."""
    first = flow >> 60
    return first, first ^ 1 + ((flow >> 44 & 0xFFFF) * 15 >> 16)
