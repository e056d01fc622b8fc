"""How packets are explained: which limits a packet meets, and what each would do with it now.

The matcher and the policer of the nfqueue datapath decide, which the kernel's program is held equal
to. Nothing is charged or counted: each limit tries the packet on a copy of its policer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import IO

from drld.capture.criteria import first_miss, hook, remarks
from drld.capture.matcher import Matcher
from drld.capture.notation import Packet, read
from drld.capture.packet import COPY_BYTES
from drld.capture.spec import Match
from drld.capture.trace_file import packets
from drld.explanation import Explanation
from drld.model import Enforcement, FlowKey
from drld.police.direction import Direction
from drld.police.policer import DRAW_BITS, MARK, Policer
from drld.policy import Mode
from drld.spec import LimitSpec
from drld.units import human_rate, human_size

__all__ = ["captured", "explain", "read", "remarks"]


class _Spared(Random):
    """Draws that drop no packet, unless all are dropped."""

    def getrandbits(self, k: int, /) -> int:
        """The largest draw."""
        return (1 << k) - 1


_SPARED = _Spared(0)


def captured(stream: IO[bytes], words: str) -> Iterator[tuple[int, str | None]]:
    """The packets of a capture: Unix time, ns, and text; None: no IP, so under no limit.

    `words` are those of `drld.capture.notation`, for all packets, without `size`.

    Raises:
        InputError: it is no capture; or, while it is read, a part of it is damaged.
    """
    return (
        (it.time_ns, f"{it.data[:COPY_BYTES].hex()} size {it.size} {words}" if it.data else None)
        for it in packets(stream)
    )


def explain(
    packet: Packet,
    limits: Iterable[LimitSpec],
    policing: Callable[[LimitSpec, FlowKey], tuple[Policer, Enforcement]],
    now_ns: int,
) -> Iterator[Explanation]:
    """What each limit on packets does with a packet, in the order in which they check it.

    Args:
        packet: the packet.
        limits: all limits, in the order of the configuration; limits of other planes are skipped.
        policing: a limit's present policer, to try the packet on, and the record in force; raises
            KeyError if the limit is gone.
        now_ns: the time, ns.
    """
    ours = [(limit, limit.match) for limit in limits if isinstance(limit.match, Match)]
    refused: dict[tuple[Direction, str], str] = {}
    """Hooks at which the packet is dropped, and by which limit."""
    for limit, match in sorted(ours, key=lambda pair: pair[1].direction is Direction.OUT):
        at = hook(match, packet)
        if at is None or not Matcher([limit]).classify(packet.header, at[1], at[0], packet.mark):
            yield _row(limit, misses=first_miss(match, packet))
            continue
        # A packet of which the hooks are not known may have crossed another one.
        before = [*refused.values()] if packet.crosses else [refused[at]] if at in refused else []
        if before:
            yield _row(limit, reason=f"not checked: {before[0]} drops the packet before")
        else:
            try:
                policer, enforcement = policing(limit, packet.header.flow)
            except KeyError:
                continue  # A reload has removed the limit.
            row = _tried(limit, policer, enforcement, packet, now_ns)
            if row["verdict"] == "drop":
                refused[at] = limit.name
            yield row


def _tried(
    limit: LimitSpec, policer: Policer, enforcement: Enforcement, packet: Packet, now_ns: int
) -> Explanation:
    """The row of a limit that the packet falls under."""
    length, bucket = packet.header.length, policer.bucket
    bucket.settle(now_ns)
    tokens = bucket.tokens
    covered = bucket.conforms(length)
    policer.read(now_ns)
    verdict = policer.police(packet.header.flow, length, now_ns, _SPARED, packet.capable)
    counted = policer.read(now_ns)
    held = f"the bucket holds {human_size(tokens)}, and the packet needs {human_size(length)}"
    rate = human_rate(enforcement.flow_rate * 8)
    flow = f"its flow has used its fair rate, {rate}, and the bucket is not full"
    if limit.policy.mode is Mode.PAUSE:
        reason = "the limit is paused: it counts, and drops nothing"
    elif policer.drop_threshold >> DRAW_BITS:
        reason = "all packets are dropped at random"
    elif counted.dropped_packets:
        reason = flow if covered else held
    elif counted.marked_packets:
        reason = flow
    else:
        reason = held if enforcement.depth is not None else "there is no bucket"
    acts = "dropped" if counted.dropped_packets else "marked" if counted.marked_packets else ""
    if acts and limit.policy.mode is Mode.SHADOW:
        reason = f"shadow mode; it would be {acts}: {reason}"
    if 0 < policer.drop_threshold < 1 << DRAW_BITS:
        chance = f"{enforcement.drop_probability:.3g}"
        reason += f"; before that it may be dropped at random, with probability {chance}"
    row = _row(limit, reason=reason)
    row["verdict"] = "drop" if not verdict else "mark" if verdict is MARK else "forward"
    if enforcement.depth is not None:
        row["tokens_bytes"], row["depth_bytes"] = tokens, enforcement.depth
        row["fill_rate_bps"] = enforcement.fill_rate * 8
        row["flow_rate_bps"] = enforcement.flow_rate * 8 or None
    row["drop_probability"] = enforcement.drop_probability
    return row


def _row(limit: LimitSpec, *, misses: str | None = None, reason: str = "") -> Explanation:
    return Explanation(
        limit=limit.name,
        id=limit.id,
        mode=limit.policy.mode.value,
        misses=misses,
        verdict=None,
        reason=reason,
        unit=limit.policy.unit.name,
        tokens_bytes=None,
        depth_bytes=None,
        fill_rate_bps=0.0,
        drop_probability=0.0,
        flow_rate_bps=None,
    )
