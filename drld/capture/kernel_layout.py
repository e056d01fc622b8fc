"""Structs and constants of the kernel datapath's maps: the Python side of bpf/drld.h, pure.

`drld.capture.kernel_classifier` makes the contents of the classification tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, compress
from struct import Struct, calcsize

from drld.model import NS_PER_S, Enforcement, FlowId
from drld.police.flow_bucket import FlowBuckets
from drld.police.policer import DRAW_BITS, Excess
from drld.police.source_sample import SourcePrefix, source_masks
from drld.policy import Mode, Policy
from drld.spec import LimitSpec, OnFailure
from drld.units import BYTES

ABI = 4
MAX_LIST = 8
MAX_GROUPS = 16
MAX_ENTRIES = 32
MAX_RANGES = 16
MAX_COMPARISONS = 128
"""Keys of a packet times limits of a key. The verifier refuses a program that compares more."""
FLOW_SLOTS = 64
ANY_PROTOCOL = 256

FAMILIES = (4, 6, 0)
"""The address families in the order of `drld_hook.family`; 0: addresses unknown."""

RECORD = Struct("=QQQQ")
FLOW_RECORD = Struct("=QQQ8x")
_LIMIT_FIELDS = {
    "tokens": "q",
    "updated_ns": "Q",
    "grace_ns": "Q",
    "sequence": "I",
    "flags": "H",
    "had_traffic": "H",
    "flow": "32s",
    "record": "64s",
    "fallback": "32s",
    "credit_id": "Q",
    "id": "I",
    "source4": "20s",
}
LIMIT = Struct("=" + "".join(_LIMIT_FIELDS.values()))
COMMAND = Struct("=QQQI4x32s32s")
_CONTROL_FIELDS = {"heartbeat_ns": "Q", "abi": "I", "capacity": "I", "cpus": "I", "cursor": "I"}
CONTROL = Struct("=" + "".join(_CONTROL_FIELDS.values()))
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


def _offsets(fields: Mapping[str, str]) -> dict[str, int]:
    """Offset of each field of a packed struct, bytes."""
    sizes = (calcsize(f"={code}") for code in fields.values())
    return dict(zip(fields, accumulate(sizes, initial=0), strict=False))


LIMIT_OFFSETS, CONTROL_OFFSETS = _offsets(_LIMIT_FIELDS), _offsets(_CONTROL_FIELDS)
BUCKETS_OFFSET = FLOW_SLOTS * FLOW.size
"""Offset of the flow buckets in a `struct drld_flows`."""

FLOWS_BYTES = FLOW_SLOTS * (FLOW.size + FLOW_BUCKET.size)
FAMILY_BYTES = FAMILY.size + MAX_GROUPS * GROUP.size
HOOK_BYTES = HOOK.size + len(FAMILIES) * FAMILY_BYTES
SCRATCH_BYTES = 2 * 256 + (8 + 16) * MAX_LIST + 8 + 24

VALUE_HOOK = 1
VALUES = {VALUE_HOOK: "hook"}
"""Numbers that stand for the addresses of maps' values in a compiled program."""

BUCKET, DRAIN = 1, 2
SHADOW, MARK = 1, 2
_ALWAYS_DROP = 1 << DRAW_BITS
_PLACES = range(FLOW_SLOTS)
_FOREVER = 2**63 - 1
_DEBT = 2**30 * NS_PER_S
"""Debt, in tokens, up to which a bucket fills at its full rate: a packet of 512 kB on each of 2,048
CPUs."""
_MAX_U64 = 2**64 - 1


def _tokens(size: int) -> int:
    """Bytes as tokens of bpf/drld.h. Its 64-bit arithmetic holds no deeper bucket than this."""
    return min(size, BYTES.max_burst) * NS_PER_S


def record(enforcement: Enforcement) -> bytes:
    """The `struct drld_record` of an enforcement."""
    threshold = int(enforcement.drop_probability * (1 << DRAW_BITS))
    if enforcement.depth is None:
        return RECORD.pack(threshold << 8, 0, 0, _FOREVER)
    rate = abs(enforcement.fill_rate)
    depth = _tokens(enforcement.depth)
    # Longer times do not count, or the product would not fit into 64 bits.
    span = -(-(depth + _DEBT) // rate) if rate else _FOREVER
    flags = BUCKET | (DRAIN if enforcement.fill_rate < 0 else 0)
    return RECORD.pack(threshold << 8 | flags, rate, depth, span)


def flow_record(enforcement: Enforcement) -> bytes:
    """The `struct drld_flow_record` of an enforcement."""
    if enforcement.depth is None:
        return bytes(FLOW_RECORD.size)
    buckets = FlowBuckets(enforcement)
    return FLOW_RECORD.pack(buckets.scaled, buckets.span_ns, buckets.per_ns)


def fallback(limit: LimitSpec, share: Enforcement) -> bytes:
    """The `struct drld_record` in force while the daemon is dead, as `on_failure` says."""
    if limit.on_failure is OnFailure.OPEN:
        return record(Enforcement())
    if limit.on_failure is OnFailure.CLOSED:
        return RECORD.pack(_ALWAYS_DROP << 8, 0, 0, _FOREVER)
    return record(share)


def command(slot: int, enforcement: Enforcement, now_ns: int) -> bytes:
    """The `struct drld_command` that puts an enforcement in force."""
    return COMMAND.pack(
        now_ns,
        enforcement.credit_id & _MAX_U64,
        _tokens(enforcement.credit),
        slot,
        record(enforcement),
        flow_record(enforcement),
    )


def limit_state(
    limit: LimitSpec, enforcement: Enforcement, share: Enforcement, grace_ns: int, now_ns: int
) -> bytes:
    """The first `struct drld_limit` of a limit: its bucket is full."""
    return LIMIT.pack(
        _tokens(enforcement.depth or 0),
        now_ns,
        grace_ns,
        0,
        limit_flags(limit.policy),
        0,
        flow_record(enforcement),
        record(enforcement) + bytes(RECORD.size),
        fallback(limit, share),
        enforcement.credit_id & _MAX_U64,
        limit.id,
        source_bits(limit.policy),
    )


def source_bits(policy: Policy) -> bytes:
    """`source4` and `source6` of a `struct drld_limit`."""
    flow = policy.flow
    return b"".join(source_masks(flow)) if isinstance(flow, SourcePrefix) else bytes(20)


def limit_flags(policy: Policy) -> int:
    """The flags of a `struct drld_limit`."""
    shadow = 0 if policy.mode is Mode.ENFORCE else SHADOW
    return shadow | (MARK if policy.excess is Excess.MARK else 0)


def by_flow(
    identities: Sequence[int], there: Sequence[int], then: Sequence[int]
) -> dict[FlowId, int]:
    """Bytes by flow: the counts `there` of the flow table's places, less the counts `then`."""
    # Most samples are small, so only the places in use are looked at.
    places = [*compress(_PLACES, identities)]
    counted: dict[FlowId, int] = {identities[at]: there[at] - then[at] for at in places}
    if len(counted) < len(places):
        # A flow has two places if two CPUs saw it first at once (bpf/flow.h).
        counted = dict.fromkeys(counted, 0)
        for at in places:
            counted[identities[at]] += there[at] - then[at]
    return counted
