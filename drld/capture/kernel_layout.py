"""What is in the maps of the kernel datapath: the Python side of bpf/drld.h, as pure functions.

The structs, and what of a limit is in them; what a hook's program classifies by is made by
`drld.capture.kernel_classifier`.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from drld.model import NS_PER_S, Enforcement, FlowId
from drld.police.flow_bucket import FlowBuckets
from drld.police.policer import DRAW_BITS
from drld.police.source_sample import source_masks
from drld.policy import Excess, Mode, Policy
from drld.spec import LimitSpec, OnFailure

ABI = 4
MAX_LIST = 8
MAX_GROUPS = 16
MAX_ENTRIES = 32
MAX_RANGES = 16
MAX_COMPARISONS = 128
"""Keys of a packet times limits of a key: what the verifier has the patience to follow."""
FLOW_SLOTS = 64
ANY_PROTOCOL = 256

FAMILIES = (4, 6, 0)
"""In the order of `drld_hook.family`; 0: addresses unknown."""

RECORD = Struct("=QQQQ")
FLOW_RECORD = Struct("=QQQ8x")
LIMIT = Struct("=qQQIHH32s32s32s32sQI20s")
COMMAND = Struct("=QQQI4x32s32s")
CONTROL = Struct("=QIIII")
COUNTS = Struct("=4Q4I16x")
PARSE_ANOMALIES = Struct("=4Q32x")
FLOW = Struct("=QQ")
FLOW_BUCKET = Struct("=QQ")
ENTRY = Struct("=IIII")
KEY4 = Struct("=II4s4s")
KEY6 = Struct("=II16s16s")
FOUND = Struct("=II")
GROUP = Struct("=16s16sI12x")
FAMILY = Struct("=IIII")
HOOK = Struct("=IIIIIIQ")
RANGE = Struct("=HH")
PORTS = Struct(f"=II{4 * MAX_RANGES}s{4 * MAX_RANGES}s")
TEST = Struct(f"=QQ{MAX_LIST}II4x")

FLOWS_BYTES = FLOW_SLOTS * (FLOW.size + FLOW_BUCKET.size)
FAMILY_BYTES = FAMILY.size + MAX_GROUPS * GROUP.size
HOOK_BYTES = HOOK.size + len(FAMILIES) * FAMILY_BYTES
SCRATCH_BYTES = 2 * 256 + (8 + 16) * MAX_LIST + 8 + 24

SHARED_MAPS = ("control", "limits", "counts", "parse_anomalies", "flows", "commands")
"""One of each for a limiter: its state."""
HOOK_MAPS = ("hook", "entries", "ports", "keys4", "keys6", "scratch")
"""One of each for a hook; a reload makes new ones."""
MAPS = (*SHARED_MAPS, *HOOK_MAPS, "test")

VALUE_HOOK = 1
VALUES = {VALUE_HOOK: "hook"}
"""What stands in a compiled program for the addresses of maps' values."""

BUCKET, DRAIN = 1, 2
SHADOW, MARK = 1, 2
_ALWAYS_DROP = 1 << DRAW_BITS
_FOREVER = 2**63 - 1
_DEBT = 2**30 * NS_PER_S
"""Tokens that a bucket may owe without that its filling takes longer than it should: a packet of
512 kB on each of 2,048 CPUs."""
_MAX_U64 = 2**64 - 1


def record(enforcement: Enforcement) -> bytes:
    """A `struct drld_record` that does what the enforcement says."""
    threshold = int(enforcement.drop_probability * (1 << DRAW_BITS))
    if enforcement.depth is None:
        return RECORD.pack(threshold << 8, 0, 0, _FOREVER)
    rate = abs(enforcement.fill_rate)
    depth = enforcement.depth * NS_PER_S
    # No more time counts, or the product would not fit into 64 bits.
    span = -(-(depth + _DEBT) // rate) if rate else _FOREVER
    flags = BUCKET | (DRAIN if enforcement.fill_rate < 0 else 0)
    return RECORD.pack(threshold << 8 | flags, rate, depth, span)


def flow_record(enforcement: Enforcement) -> bytes:
    """A `struct drld_flow_record` that does what the enforcement says."""
    if enforcement.depth is None:
        return bytes(FLOW_RECORD.size)
    buckets = FlowBuckets(enforcement)
    return FLOW_RECORD.pack(buckets.scaled, buckets.span_ns, buckets.per_ns)


def fallback(limit: LimitSpec, share: Enforcement) -> bytes:
    """What holds while the daemon is dead: the static share, nothing, or no packet."""
    if limit.on_failure is OnFailure.OPEN:
        return record(Enforcement())
    if limit.on_failure is OnFailure.CLOSED:
        return RECORD.pack(_ALWAYS_DROP << 8, 0, 0, _FOREVER)
    return record(share)


def command(slot: int, enforcement: Enforcement, now_ns: int) -> bytes:
    """A `struct drld_command`: put this in force."""
    return COMMAND.pack(
        now_ns,
        enforcement.credit_id & _MAX_U64,
        enforcement.credit * NS_PER_S,
        slot,
        record(enforcement),
        flow_record(enforcement),
    )


def limit_state(
    limit: LimitSpec, enforcement: Enforcement, share: Enforcement, grace_ns: int, now_ns: int
) -> bytes:
    """The first `struct drld_limit` of a limit: a full bucket."""
    return LIMIT.pack(
        (enforcement.depth or 0) * NS_PER_S,
        now_ns,
        grace_ns,
        0,
        limit_flags(limit.policy),
        0,
        flow_record(enforcement),
        record(enforcement),
        bytes(RECORD.size),
        fallback(limit, share),
        enforcement.credit_id & _MAX_U64,
        limit.id,
        source_bits(limit.policy),
    )


def source_bits(policy: Policy) -> bytes:
    """`source4` and `source6` of a `struct drld_limit`."""
    return bytes(20) if policy.flow is None else b"".join(source_masks(policy.flow))


def limit_flags(policy: Policy) -> int:
    """The flags of a `struct drld_limit`."""
    shadow = SHADOW if policy.mode is Mode.SHADOW else 0
    return shadow | (MARK if policy.excess is Excess.MARK else 0)


def by_flow(
    identities: Sequence[int], there: Sequence[int], then: Sequence[int]
) -> dict[FlowId, int]:
    """By flow, what the places of the flow table have counted since then."""
    counted: dict[FlowId, int] = {
        identity: size - before
        for identity, size, before in zip(identities, there, then, strict=True)
        if identity
    }
    if len(counted) + identities.count(0) < len(identities):
        # A flow that two CPUs have seen first has two places (bpf/flow.h).
        counted = dict.fromkeys(counted, 0)
        for identity, size, before in zip(identities, there, then, strict=True):
            if identity:
                counted[identity] += size - before
    return counted
