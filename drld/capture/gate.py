"""One packet in, one verdict out: the nfqueue datapath without the queue.

Puts header parser, matcher and policers together. Pure, so that a trace of (bytes, interface,
direction, mark, time) replays to the same verdicts anywhere.

What parser and matcher say of a plain packet (`packet.outline`) is remembered when a second one
like it comes, for all that follow: in a dictionary bounded by `MEMORY`, which is emptied when it is
full. Nothing depends on it but time. Flows of one packet (a scan, a flood of SYNs) leave no more
behind than one byte each, in a table of fixed size: to remember them would cost more than to read
them, and push out the others.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from random import Random

from drld.capture.matcher import Matcher
from drld.capture.packet import Header, ecn_capable, outline, parse
from drld.model import Enforcement, FlowId, FlowKey, Measurement
from drld.police.policer import Policer, police
from drld.policy import Excess
from drld.spec import Direction, LimitSpec, OnFailure

_IN = Direction.IN  # looking up a member of an enumeration takes longer than a name

MEMORY = 8192
"""Flows whose limits are remembered, about 4 MB of them."""

_SLOTS = 1 << 14
"""Bytes in which flows are recognized when their second packet comes."""


@dataclass(slots=True)
class Counts:
    """Packets that were not plain ones; a packet may be in several counts."""

    truncated: int = 0
    """Headers go on where the copied bytes, or our patience with extension headers, end."""
    malformed: int = 0
    """The packet contradicts itself."""
    fragments: int = 0
    unmatched: int = 0
    """Fell under no limit, and was forwarded."""


class Gate:
    """A set of limits that packets are judged by."""

    def __init__(self, rng: Random, memory: int = MEMORY) -> None:
        """`rng` decides random drops; `memory` is how many flows' limits are remembered."""
        self.counts = Counts()
        self._rng = rng
        self._memory = memory
        self._policers: dict[int, Policer] = {}
        self._matcher = Matcher(())
        self._met = bytearray(_SLOTS)
        self._known: dict[Hashable, tuple[FlowKey, list[Policer]]] = {}
        self.fail_open = False
        """Whether a packet that cannot be judged passes: only if every limit says `open`."""
        self.marks = False
        """Whether any limit marks, so that packets must be judged whole: one that was cut off
        cannot be rewritten, and counts as not ECN-capable."""

    def replace(self, limits: Sequence[tuple[LimitSpec, Enforcement]], now_ns: int) -> None:
        """Judge by these limits from now on; those whose id stays keep counters and tokens."""
        policers = {}
        for limit, enforcement in limits:
            policer = self._policers.get(limit.id)
            if policer is None:
                policer = Policer(limit.policy, enforcement, now_ns)
            else:
                policer.reconfigure(limit.policy)
                policer.program(enforcement, (), now_ns)
            policers[limit.id] = policer
        specs = [limit for limit, _ in limits]
        self._policers = policers
        self._matcher = Matcher(specs)
        self._known.clear()
        self.fail_open = all(limit.on_failure is OnFailure.OPEN for limit in specs)
        self.marks = any(limit.policy.excess is Excess.MARK for limit in specs)

    def judge(
        self, data: bytes, interface: str, direction: Direction, mark: int, now_ns: int
    ) -> int:
        """Count a packet and decide about it: a verdict of `drld.police.policer`.

        Args:
            data: its first bytes, from the IP header on; all of it, if it may be marked.
            interface: where it came in, or goes out, by `direction`.
            direction: of the packet at the hook where it was taken.
            mark: the packet's mark.
            now_ns: when it arrived.
        """
        plain, length = outline(data)
        key = plain, interface, direction is _IN, mark
        known = self._known.get(key)
        sound = True
        if known is None:
            header = self._parse(data)
            length = header.length
            sound = header.defect is None
            limits = self._matcher.classify(header, interface, direction, mark)
            known = header.flow, [self._policers[limit.id] for limit in limits]
            if plain is not None and self._met_before(key):
                if len(self._known) >= self._memory:
                    self._known.clear()
                self._known[key] = known
        flow, policers = known
        capable = self.marks and sound and len(data) == length and ecn_capable(data)
        if len(policers) == 1:
            return policers[0].police(flow, length, now_ns, self._rng, capable)
        if not policers:
            self.counts.unmatched += 1
        return police(policers, flow, length, now_ns, self._rng, capable=capable)

    def _met_before(self, key: Hashable) -> bool:
        """Whether a packet like this came lately, as far as one byte can tell."""
        fingerprint = hash(key)
        slot, tag = fingerprint % _SLOTS, fingerprint >> 32 & 0xFF
        met = self._met[slot] == tag
        self._met[slot] = tag
        return met

    def _parse(self, data: bytes) -> Header:
        header = parse(data)
        if header.defect is not None:
            if header.defect.malformed:
                self.counts.malformed += 1
            else:
                self.counts.truncated += 1
        if header.fragment:
            self.counts.fragments += 1
        return header

    def had_traffic(self) -> Collection[int]:
        """See `Datapath.had_traffic`."""
        return [limit_id for limit_id, policer in self._policers.items() if policer.had_traffic]

    def read(self, limit_id: int, now_ns: int) -> Measurement:
        """What was counted since the last read of this limit."""
        return self._policers[limit_id].read(now_ns)

    def program(
        self, limit_id: int, enforcement: Enforcement, evict: Iterable[FlowId], now_ns: int
    ) -> None:
        """Enforce this record from now on, and drop the named flows from the sample."""
        self._policers[limit_id].program(enforcement, evict, now_ns)
