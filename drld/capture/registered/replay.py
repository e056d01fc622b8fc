"""A capture judged by limits that were not in force: `drlctl replay`, for packets. Pure.

The gate and the policers of the nfqueue datapath judge the packets, at the packets' own times.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from random import Random
from typing import IO

from drld.capture.gate import Gate
from drld.capture.notation import crossing, flow_name
from drld.capture.packet import COPY_BYTES, outline
from drld.capture.patterns import covers
from drld.capture.registered.explain import WORDS
from drld.capture.spec import Match, match_of
from drld.capture.trace_file import Captured, packets
from drld.model import Enforcement, FlowId, FlowKey
from drld.planes.replay import Replayed
from drld.police.direction import Direction
from drld.police.policer import DROP, FORWARD
from drld.police.source_sample import SourcePrefix, source_of
from drld.policy import Policy
from drld.spec import LimitSpec

EVERYTHING = {"out": "any"}
"""The `match` of a limit on all packets of a capture whose hooks are not given."""
BESIDE: dict[str, object] = {}
"""The other tables that a configuration with such a limit needs."""


class Replay(Replayed[Captured]):
    """A capture, and the limits that judge its packets."""

    items, words, unseen = "packets", WORDS, "not IP"

    def __init__(
        self,
        stream: IO[bytes],
        words: str,
        limits: Iterable[LimitSpec],
        allocator: str,
        rng: Random,
    ) -> None:
        """Read no packet yet.

        Args:
            stream: the capture.
            words: where the packets cross this host (`drld.capture.notation`); without them, at
                each place that a limit names, as if the capture had been taken there.
            limits: all limits, in the order of the configuration.
            allocator: the allocator that enforces the rates, instead of each limit's own.
            rng: decides random drops.

        Raises:
            InputError: the stream is no capture, or there are other words.
        """
        crosses, self._mark = crossing(words)
        captured = packets(stream)
        super().__init__(
            ((it.time_ns, it if it.data else None) for it in captured),
            (it for it in limits if isinstance(it.match, Match)),
            allocator,
        )
        self._in_turn = bool(crosses)
        hooks = {(match_of(limit).direction, match_of(limit).interface) for limit in self._limits}
        # A packet at a named interface falls under the limits of its pattern, too: once is enough.
        hooks -= {
            (way, pattern)
            for way, pattern in hooks
            for other, name in hooks
            if way is other and pattern != name and covers(pattern, name)
        }
        ordered = sorted(hooks, key=lambda hook: (hook[0] is Direction.OUT, hook[1]))
        self._hooks = crosses or tuple(ordered)
        self.policers = self._gate = Gate(rng, policer=self.watch)

    def start(self, limits: list[tuple[LimitSpec, Enforcement]], now_ns: int) -> None:
        """See `Replayed.start`."""
        self._gate.replace(limits, now_ns)

    def judge(self, it: Captured, now_ns: int) -> int:
        """The verdict on a packet; the lowest one, if the packet crosses several places."""
        data = it.data[:COPY_BYTES]
        if self._gate.marks:
            # The gate marks whole packets alone; a capture may have cut this one off, or padded it.
            _, length = outline(data)
            data = it.data[:length].ljust(length, b"\0") if length else it.data
        verdicts = []
        for direction, interface in self._hooks:
            verdicts.append(self._gate.judge(data, interface, direction, self._mark, now_ns))
            if self._in_turn and verdicts[-1] == DROP:
                break
        if DROP in verdicts:
            return DROP
        return max(verdicts, default=FORWARD)

    def flow_of(self, policy: Policy, flow: FlowId) -> Hashable:
        """See `Replayed.flow_of`: with `flow = "source/24"`, that of the source."""
        if not isinstance(policy.flow, SourcePrefix):
            return flow
        assert isinstance(flow, FlowKey)
        return source_of(flow, policy.flow)

    def flow_name(self, policy: Policy, flow: Hashable) -> str:
        """See `Replayed.flow_name`."""
        prefix = policy.flow if isinstance(policy.flow, SourcePrefix) else None
        return flow_name(flow, prefix) if isinstance(flow, FlowKey) else str(flow)
