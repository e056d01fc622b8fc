"""The policers of a set of limits, for the datapaths in user space."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from drld.model import Enforcement, FlowId, Measurement
from drld.mypyc import mypyc_attr
from drld.police.policer import Policer
from drld.policy import Policy
from drld.spec import LimitSpec


@mypyc_attr(allow_interpreted_subclasses=True)
class PolicerSet:
    """Policers by the ids of their limits."""

    def __init__(self, policer: Callable[[Policy, Enforcement, int], Policer] = Policer) -> None:
        """`policer` makes the policer of a limit from its policy, its first record and the time,
        ns."""
        self._policer = policer
        self._policers: dict[int, Policer] = {}

    def replace(self, limits: Sequence[tuple[LimitSpec, Enforcement]], now_ns: int) -> None:
        """Replace the limits; one whose id and unit stay keeps its counters and tokens."""
        policers = {}
        for limit, enforcement in limits:
            policer = self._policers.get(limit.id)
            if policer is None or policer.unit != limit.policy.unit:
                policer = self._policer(limit.policy, enforcement, now_ns)
            else:
                policer.reconfigure(limit.policy)
                policer.program(enforcement, (), now_ns)
            policers[limit.id] = policer
        self._policers = policers

    def had_traffic(self, among: Collection[int]) -> Collection[int]:
        """See `Datapath.had_traffic`."""
        found = ((limit_id, self._policers.get(limit_id)) for limit_id in among)
        return [it for it, policer in found if policer is not None and policer.had_traffic]

    def read(self, limit_id: int, now_ns: int) -> Measurement:
        """The counts of this limit since its last read."""
        return self._policers[limit_id].read(now_ns)

    def program(
        self, limit_id: int, enforcement: Enforcement, evict: Iterable[FlowId], now_ns: int
    ) -> None:
        """Enforce this record from now on, and drop the named flows from the sample."""
        self._policers[limit_id].program(enforcement, evict, now_ns)

    def copy_of(self, limit_id: int) -> Policer:
        """A copy of a limit's policer, to try an item on.

        Raises:
            KeyError: there is no such limit.
        """
        return self._policers[limit_id].copy()
