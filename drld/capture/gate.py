"""One packet in, one verdict out: the nfqueue datapath without the queue.

The gate joins header parser, matcher and policers. It is pure, so a trace of (bytes, interface,
direction, mark, time) replays to the same verdicts anywhere.

The gate caches the flow key and the limits of a plain packet (`packet.outline`) when a second
packet with the same outline arrives. The cache only saves time. It is cleared when it holds
`MEMORY` entries. A flow of one packet (a scan, a flood of SYNs) costs one byte of a table of fixed
size. An entry in the cache would cost more than parsing, and would push out other flows.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from random import Random

from drld.capture.matcher import Matcher
from drld.capture.packet import Header, ecn_capable, outline, parse
from drld.capture.queue_hooks import pass_without_daemon
from drld.model import Enforcement, FlowKey
from drld.police.direction import Direction
from drld.police.policer import Excess, Policer, police
from drld.police.policer_set import PolicerSet
from drld.policy import Policy
from drld.spec import LimitSpec

_IN = Direction.IN  # a name is faster than the member of an enumeration

MEMORY = 8192
"""The most entries of the cache: about 4 MB."""

_SLOTS = 1 << 14
"""The length of the table that recognizes the second packet of a flow, bytes."""


@dataclass(slots=True)
class Counts:
    """The numbers of packets that were not plain; several numbers may count one packet."""

    truncated: int = 0
    """The packets with headers beyond the copied bytes, or with too many extension headers."""
    malformed: int = 0
    """The packets whose fields contradict each other."""
    fragments: int = 0
    unmatched: int = 0
    """The packets under no limit, which are forwarded."""


class Gate(PolicerSet):
    """The limits on packets, which give a verdict on each packet."""

    def __init__(
        self,
        rng: Random,
        memory: int = MEMORY,
        policer: Callable[[Policy, Enforcement, int], Policer] = Policer,
    ) -> None:
        """Begin without limits. `rng` decides random drops. `memory` is the most entries of the
        cache. `policer` makes the policer of a limit from its policy, its first record and the
        time, ns."""
        super().__init__(policer)
        self.counts = Counts()
        self._rng = rng
        self._memory = memory
        self._matcher = Matcher(())
        self._met = bytearray(_SLOTS)
        self._known: dict[Hashable, tuple[FlowKey, list[Policer]]] = {}
        self.fail_open = False
        """Whether a packet without a verdict passes (`queue_hooks.pass_without_daemon`)."""
        self.marks = False
        """Whether any limit marks. Then the datapath copies whole packets: a packet of which only
        the headers were copied cannot be rewritten, and counts as not ECN-capable."""

    def replace(self, limits: Sequence[tuple[LimitSpec, Enforcement]], now_ns: int) -> None:
        """Apply these limits from now on; a limit whose id stays keeps counters and tokens."""
        super().replace(limits, now_ns)
        specs = [limit for limit, _ in limits]
        self._matcher = Matcher(specs)
        self._known.clear()
        self.fail_open = pass_without_daemon(specs)
        self.marks = marks(specs)

    def judge(
        self, data: bytes, interface: str, direction: Direction, mark: int, now_ns: int
    ) -> int:
        """Count a packet and return a verdict of `drld.police.policer`.

        Args:
            data: the packet's first bytes, from the IP header on; all bytes, if it may be marked.
            interface: the interface of arrival (`IN`) or departure (`OUT`).
            direction: the packet's direction at the hook that queued it.
            mark: the packet's mark.
            now_ns: the packet's arrival time.
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
        """Return whether the last packet in this key's slot of the table had the same key; 8 bits
        are compared."""
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


def marks(limits: Iterable[LimitSpec]) -> bool:
    """Whether any limit marks."""
    return any(limit.policy.excess is Excess.MARK for limit in limits)
