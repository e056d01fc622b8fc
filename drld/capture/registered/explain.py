"""Explanations of packets: the limits that a packet meets, and what each would do with it now.

The matcher and the policer of the nfqueue datapath decide; tests hold the kernel's program equal to
them. Nothing is charged or counted: each limit tries the packet on a copy of its policer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import IO

from drld.capture.criteria import first_miss, remarks
from drld.capture.matcher import Matcher
from drld.capture.notation import Packet, captured_packet, crossing, read
from drld.capture.packet import COPY_BYTES
from drld.capture.spec import Match, match_of
from drld.capture.trace_file import packets
from drld.model import Enforcement, FlowKey
from drld.planes.explanation import CapturedItem, Explanation, Words, row, tried
from drld.police.direction import Direction
from drld.police.policer import Policer
from drld.spec import LimitSpec

__all__ = ["WORDS", "Explainer", "captured", "read", "remarks"]


WORDS = Words("packet", "flow", "forwarded", "dropped", "drops")


def is_meant(text: str) -> bool:
    """Whether a text is to be a packet: the items of all other planes are NAME=VALUE pairs."""
    return "=" not in text.partition(" ")[0]


def captured(stream: IO[bytes], words: str) -> Iterator[CapturedItem]:
    """Return the packets of a capture, as if they came now. A frame without IP is None: it meets no
    limit.

    `words` are those of `drld.capture.notation`, for all packets, without `size`.

    Raises:
        InputError: the stream is no capture, or there are other words; or, while the capture is
            read, a part of it is damaged.
    """
    crosses, mark = crossing(words)

    def item(data: bytes, size: int, time_ns: int) -> CapturedItem:
        copied = data[:COPY_BYTES]
        packet = captured_packet(copied, size, crosses, mark) if data else None
        return CapturedItem(time_ns, packet, f"{copied.hex()} size {size} {words}")

    return (item(it.data, it.size, it.time_ns) for it in packets(stream))


class Explainer:
    """Explains what the limits on packets, among a set of limits, do with a packet."""

    def __init__(self, limits: Iterable[LimitSpec], *, misses: bool = True) -> None:
        """Prepare to explain packets.

        Args:
            limits: all limits in the order of the configuration; those of other planes are skipped.
            misses: whether limits that a packet does not fall under are explained, too. If not,
                the explainer serves many packets at one time: it finds a limit's verdict once for
                all packets that the limit cannot tell apart.
        """
        ours = [limit for limit in limits if isinstance(limit.match, Match)]
        ours.sort(key=lambda limit: match_of(limit).direction is Direction.OUT)
        self._limits = {limit.id: limit for limit in ours}
        self._places = {limit.id: place for place, limit in enumerate(ours)}
        self._matcher = Matcher(ours)
        hooks = [(match_of(limit).direction, match_of(limit).interface) for limit in ours]
        self._hooks = tuple(dict.fromkeys(hooks))
        self._misses = misses
        self._known: dict[tuple[int, int, bool, FlowKey | None], Explanation] = {}
        """The verdicts found so far, by limit, length, ECN capability, and by flow if flows are
        policed."""

    def explain(
        self,
        packet: Packet,
        policing: Callable[[LimitSpec, FlowKey], tuple[Policer, Enforcement]],
        now_ns: int,
    ) -> Iterator[Explanation]:
        """Return the verdict of each limit on a packet, in the order in which the limits check it.

        Args:
            packet: the packet.
            policing: a limit's present policer, to try the packet on, and the record in force;
                raises KeyError if the limit is gone.
            now_ns: the time, ns.
        """
        met = self._met(packet)
        refused: dict[tuple[Direction, str], str] = {}
        """The hooks at which a limit drops the packet, each with the name of this limit."""
        for limit_id in self._limits if self._misses else sorted(met, key=self._places.__getitem__):
            limit, at = self._limits[limit_id], met.get(limit_id)
            if at is None:
                yield row(limit, misses=first_miss(match_of(limit), packet))
                continue
            # A packet of which the hooks are not known may have crossed another one.
            before = refused.values() if packet.crosses else filter(None, [refused.get(at)])
            if by := next(iter(before), None):
                yield row(limit, reason=f"not checked: {by} drops the packet before")
                continue
            found = self._known_row(limit, packet)
            if found is None:
                flow, length = packet.header.flow, packet.header.length
                try:
                    trial = policing(limit, flow)
                except KeyError:
                    continue  # A reload has removed the limit.
                found = tried(
                    limit, trial, flow, length, now_ns, words=WORDS, capable=packet.capable
                )
                policed = flow if trial[1].flow_rate else None
                self._known[limit_id, length, packet.capable, policed] = found
            if found["verdict"] == "drop":
                refused[at] = limit.name
            yield found

    def _known_row(self, limit: LimitSpec, packet: Packet) -> Explanation | None:
        if self._misses:
            return None
        alike = limit.id, packet.header.length, packet.capable
        return self._known.get((*alike, None)) or self._known.get((*alike, packet.header.flow))

    def _met(self, packet: Packet) -> dict[int, tuple[Direction, str]]:
        """Return the ids of the limits that a packet falls under, each with the hook at which the
        packet meets it."""
        return {
            limit.id: (way, name)
            for way, name in packet.crosses or self._hooks
            for limit in self._matcher.classify(packet.header, name, way, packet.mark)
            # A packet without hooks meets a limit at the hook that the limit names.
            if packet.crosses or match_of(limit).interface == name
        }
