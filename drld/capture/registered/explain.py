"""How packets are explained: which limits a packet meets, and what each would do with it now.

The matcher and the policer of the nfqueue datapath decide, which the kernel's program is held equal
to. Nothing is charged or counted: each limit tries the packet on a copy of its policer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import IO

from drld.capture.criteria import first_miss, hook, remarks
from drld.capture.matcher import Matcher
from drld.capture.notation import Packet, read
from drld.capture.packet import COPY_BYTES
from drld.capture.spec import Match
from drld.capture.trace_file import packets
from drld.explanation import Explanation, Words, row, tried
from drld.model import Enforcement, FlowKey
from drld.police.direction import Direction
from drld.police.policer import Policer
from drld.spec import LimitSpec

__all__ = ["WORDS", "captured", "explain", "read", "remarks"]


WORDS = Words("packet", "flow", "forwarded", "dropped", "drops")


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
            yield row(limit, misses=first_miss(match, packet))
            continue
        # A packet of which the hooks are not known may have crossed another one.
        before = [*refused.values()] if packet.crosses else [refused[at]] if at in refused else []
        if before:
            yield row(limit, reason=f"not checked: {before[0]} drops the packet before")
        else:
            try:
                trial = policing(limit, packet.header.flow)
            except KeyError:
                continue  # A reload has removed the limit.
            found = tried(
                limit,
                trial,
                packet.header.flow,
                packet.header.length,
                now_ns,
                words=WORDS,
                capable=packet.capable,
            )
            if found["verdict"] == "drop":
                refused[at] = limit.name
            yield found
