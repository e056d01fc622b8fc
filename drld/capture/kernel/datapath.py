"""The datapath inside the kernel: BPF programs at tc's hooks of an interface (bpf/limiter.c).

Each hook (interface and direction) has an instance of one program, with its own classification
tables. All hooks share the maps with the limits' state. A packet costs this process nothing: it
reads counters and flow samples from mapped memory, and writes a tick's new records in one system
call.

The programs keep the maps alive (`drld.ebpf.attachment`). When the daemon dies, they stay and
enforce the last records. Once the heartbeat is older than `GRACE_INTERVALS` intervals of a limit,
they enforce its fallback. The next daemon of the same name finds the programs by name and the maps
by id. It replaces the programs and keeps the tokens, so no packet passes unlimited. If it cannot
start, the old programs stay. This needs no file, and ends with the network namespace.

A reload makes new tables and programs around the same state, and replaces the old ones one by one.
Each packet meets the old configuration or the new one.

An interface that is moved to another network namespace takes its program on tcx along, where the
daemon cannot remove it. So the limits move to other maps, and the old ones are made to let all
packets pass (`State.retire`).
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import socket
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from drld.capture import kernel_layout as layout
from drld.capture.flow_identity import FLOW_WAYS, flow_identity, sets_of
from drld.capture.kernel.counted import Counted
from drld.capture.kernel.hooks import Hooks
from drld.capture.kernel.link_news import LinkNews, News
from drld.capture.kernel.state import Counts, State
from drld.capture.packet import NO_FLOW
from drld.ebpf.attachment import Attachment, attachment
from drld.ebpf.bpf import Code, possible_cpus
from drld.ebpf.cleaning import cleaning_up
from drld.ebpf.compiler import compiled
from drld.errors import DatapathError
from drld.log_event import event
from drld.model import GRACE_INTERVALS, NS_PER_S, Enforcement, FlowId, FlowKey, Measurement
from drld.police.policer import Policer
from drld.police.source_sample import SourcePrefix
from drld.police.token_bucket import TokenBucket
from drld.spec import LimitSpec

log = logging.getLogger(__name__)

_LOOK_NS = NS_PER_S
_MOVE_NS = 10 * NS_PER_S
"""The shortest time between two moves to other maps, which take 0.1 s, and with thousands of limits
a second."""


def limiter_programs(flags: tuple[str, ...] = (), cache: Path | None = None) -> dict[str, Code]:
    """The programs of bpf/limiter.c, by name; see `compiled`."""
    return compiled("limiter", layout.VALUES, flags, cache)


class KernelDatapath:
    """Counts and polices in the kernel (`drld.police.datapath.Datapath`)."""

    name = "kernel"
    firewall = "none"
    queue = None

    def __init__(
        self,
        limiter_name: str,
        compile: Callable[[], Mapping[str, Code]] = limiter_programs,
        attachment: Callable[[str], Attachment] = attachment,
    ) -> None:
        """Prepare; `attach` is the first call that changes the host.

        Args:
            limiter_name: the name by which the next daemon finds the programs.
            compile: returns the programs.
            attachment: makes the object that attaches them.
        """
        self._attachment = attachment
        self._limiter_name = limiter_name
        self._compile = compile
        self._code: Mapping[str, Code] = {}
        self._state: State | None = None
        self._hooks: Hooks | None = None
        self._news: LinkNews | None = None
        self._limits: dict[int, LimitSpec] = {}
        self._counted: dict[int, Counted] = {}
        self._ids: dict[int, int] = {}
        """Limit's id by slot."""
        self._records: dict[int, Enforcement] = {}
        self._changed: dict[int, Enforcement] = {}
        self._parse_anomalies: Sequence[int] = (0, 0, 0, 0)
        self._last_parse_anomalies: Sequence[int] = (0, 0, 0, 0)
        self._taken_over = False
        self._look_ns = 0
        self._there: set[int] = set()
        """The indices of the interfaces that had a program before the last look."""
        self._moved: set[int] = set()
        """Those of them that have taken it to another network namespace."""
        self._move_ns = 0
        self._reattached = 0
        digest = hashlib.blake2s(limiter_name.encode("utf-8", "surrogatepass"), digest_size=8)
        self._seed = int.from_bytes(digest.digest(), "big")

    # What every datapath does

    def attach(self, limits: Iterable[tuple[LimitSpec, Enforcement]], now_ns: int) -> None:
        """See `Datapath.attach`."""
        pairs = list(limits)
        if self._state is not None:
            self._replace(pairs, now_ns)
            return
        with contextlib.ExitStack() as undo:
            undo.callback(self.detach)
            self._taken_over = False
            self._news = LinkNews()
            self._code = self._compile()
            self._hooks = Hooks(
                self._attachment(self._limiter_name), self._code["police"], self._seed
            )
            self._state = self._adopt() or State.create(
                len(pairs), possible_cpus(), self._code["apply"]
            )
            if not self._taken_over:
                self._state.beat(now_ns)
            self._parse_anomalies = self._state.parse_anomalies()
            self._replace(pairs, now_ns)
            undo.pop_all()

    def had_traffic(self, among: Collection[int]) -> Collection[int]:
        """See `Datapath.had_traffic`."""
        ids = self._ids
        slots = self._attached().had_traffic()
        return [ids[slot] for slot in slots if slot in ids and ids[slot] in among]

    def read(self, limit_id: int, now_ns: int) -> Measurement:
        """See `Datapath.read`."""
        return self._counted[limit_id].read(self._attached(), now_ns)

    def program(
        self,
        limit_id: int,
        enforcement: Enforcement,
        evict: Iterable[FlowId],
        now_ns: int,  # noqa: ARG002 -- `flush` gets the time
    ) -> None:
        """See `Datapath.program`; takes effect with `flush`."""
        counted = self._counted[limit_id]
        leaving = set(evict)
        if leaving:
            for place, identity in enumerate(counted.flows):
                if identity in leaving:
                    self._attached().evict(counted.slot, place)
        if self._records[limit_id] != enforcement:
            self._records[limit_id] = enforcement
            self._changed[counted.slot] = enforcement

    def snapshot(self, limit_id: int, flow: FlowKey) -> Policer:
        """See `Datapath.snapshot`."""
        slot, record = self._counted[limit_id].slot, self._records[limit_id]
        policy, state = self._limits[limit_id].policy, self._attached()
        tokens, updated_ns = state.bucket(slot)
        policer = Policer(policy, record, updated_ns)
        policer.bucket = TokenBucket(record, updated_ns, tokens)
        prefix = policy.flow if isinstance(policy.flow, SourcePrefix) else None
        identity = flow_identity(flow, self._seed, prefix, addressed=flow != NO_FLOW)
        places = state.flows(slot)[::2]
        if identity in places:
            found = policer.sample.observe(flow, 0)
            assert found is not None
            found.due_ns = state.flow_buckets(slot)[2 * places.index(identity)]
        else:
            ways = [places[at * FLOW_WAYS : (at + 1) * FLOW_WAYS] for at in sets_of(identity)]
            if 0 not in (*ways[0], *ways[1]):
                policer.sample.capacity = 0
        return policer

    def set_share(self, limit_id: int, share: Enforcement) -> None:
        """See `Datapath.set_share`."""
        self._attached().set_fallback(
            self._counted[limit_id].slot, layout.fallback(self._limits[limit_id], share)
        )

    def flush(self, now_ns: int) -> None:
        """See `Datapath.flush`."""
        state = self._attached()
        if self._changed:
            state.apply(self._changed, now_ns)
            self._changed = {}
        state.beat(now_ns)
        news = self._news.read() if self._news is not None else News(False, set())
        if news.any or now_ns >= self._look_ns:
            self._look_ns = now_ns + _LOOK_NS
            hooks = self._on_hooks()
            there = hooks.indices()
            self._reattached += hooks.put_back_lost(state, news=news.any)
            self._moved |= _moved(there | self._there, news)
            self._there = there
            if self._moved and not hooks.preparing and now_ns >= self._move_ns:
                self._move_ns = now_ns + _MOVE_NS
                with cleaning_up():
                    self._move(now_ns)
                    self._moved = set()

    def counters(self) -> Mapping[str, int]:
        """See `Datapath.counters`; the names are those of `gate.Counts`, and `reattached`."""
        if self._state is not None:
            self._last_parse_anomalies = [
                new - old
                for new, old in zip(
                    self._state.parse_anomalies(), self._parse_anomalies, strict=True
                )
            ]
        names = ("truncated", "malformed", "fragments", "unmatched")
        counted = dict(zip(names, self._last_parse_anomalies, strict=True))
        return {**counted, "reattached": self._reattached}

    def detach(self) -> None:
        """See `Datapath.detach`."""
        self.counters()
        if self._hooks is not None:
            self._hooks.close()
        if self._state is not None:
            if self._hooks is not None and self._hooks.in_force:
                self._state.retire()
            self._state.close()
        if self._news is not None:
            self._news.close()
        self._state = self._hooks = self._news = None

    # What only this datapath does

    def preparation(self, limits: Sequence[LimitSpec]) -> Callable[[], None]:
        """The slow part of a later `attach` with these limits, as a function for another thread.

        Without it `attach` blocks the daemon for 0.1 s if any `match` changes.
        """
        state = self._attached()
        if _room(limits, state) > state.capacity:
            return lambda: None  # `attach` makes larger maps, and programs for those
        return self._on_hooks().preparation(limits, _place(limits, state, state.capacity), state)

    @property
    def reason(self) -> str:
        """One sentence for an operator: the hooks of the programs."""
        return f"tc-BPF {self._hooks or 'on no interface'}" + (
            ", taken over from a daemon that died" if self._taken_over else ""
        )

    def _attached(self) -> State:
        if self._state is None:
            raise DatapathError("the kernel datapath is not attached")
        return self._state

    def _on_hooks(self) -> Hooks:
        if self._hooks is None:
            raise DatapathError("the kernel datapath is not attached")
        return self._hooks

    def _adopt(self) -> State | None:
        """The state of a dead daemon of this name; None if there is none."""
        refusal: DatapathError | None = None
        for handover_ids in self._on_hooks().handover_ids():
            try:
                state = State.adopt(handover_ids, self._code["apply"])
            except DatapathError as error:
                refusal = error
                continue
            self._taken_over = True
            return state
        if refusal is not None:
            log.warning(
                "limits start with full buckets: cannot take over those of the last daemon: %s",
                refusal,
                extra=event("datapath.emptied", reason=str(refusal)),
            )
        return None

    def _replace(self, pairs: Sequence[tuple[LimitSpec, Enforcement]], now_ns: int) -> None:
        """Enforce these limits instead of the current ones.

        Limits keep their slots. If the maps have too few, the state moves to larger maps: it is
        copied before the new programs are attached, so that no packet finds an empty bucket.
        """
        state = old_state = self._attached()
        limits = [limit for limit, _ in pairs]
        room = _room(limits, old_state)
        if room > old_state.capacity:
            room = max(room, 2 * len(limits))  # so that a growing fleet rarely needs new maps
            state = State.create(room, old_state.cpus, self._code["apply"])
        kept = old_state.slots()
        slots = _place(limits, old_state, state.capacity)
        fresh = [(limit, record) for limit, record in pairs if limit.id not in kept]
        counted: dict[int, Counted] = {}

        def ready() -> None:
            if state is not old_state:
                old_state.copy_to(state)
            for limit, enforcement in fresh:
                grace = GRACE_INTERVALS * limit.policy.interval_ns
                state.occupy(
                    slots[limit.id],
                    layout.limit_state(limit, enforcement, enforcement, grace, now_ns),
                )
            for limit_id, slot in (kept | slots).items():
                if state is not old_state or limit_id not in self._counted:
                    counted[limit_id] = Counted.of(state, slot, now_ns)

        try:
            self._on_hooks().replace(limits, slots, state, old_state.handover_ids, ready)
        except BaseException:
            if state is not old_state:
                state.close()
            elif self._on_hooks().in_force:  # else a dead daemon's program may use these slots
                for limit, _ in fresh:
                    state.release(slots[limit.id])
            raise
        if state is not old_state:
            self._leave(old_state, state, counted)
        self._counted = {
            limit_id: self._counted.get(limit_id) or counted[limit_id] for limit_id in slots
        }
        self._settle_in(pairs, slots, kept, now_ns)

    def _move(self, now_ns: int) -> None:
        """Move to other maps: an interface has taken its program to another network namespace,
        whose packets must not count here.

        Raises:
            DatapathError: the kernel refuses; the old maps stay in use.
        """
        old_state = self._attached()
        slots = {limit_id: counted.slot for limit_id, counted in self._counted.items()}
        state = State.create(old_state.capacity, old_state.cpus, self._code["apply"])
        copied: dict[int, Counted] = {}

        def ready() -> None:
            old_state.copy_to(state)
            copied.update({each: Counted.of(state, slots[each], now_ns) for each in slots})

        try:
            self._on_hooks().move(slots, state, old_state.handover_ids, ready)
        except BaseException:
            state.close()
            raise
        self._leave(old_state, state, copied)

    def _leave(self, old_state: State, state: State, copied: Mapping[int, Counted]) -> None:
        """Use `state`, whose programs have replaced those of `old_state`."""
        self._count_late(old_state, copied)
        old_state.retire()
        old_state.close()
        self._state = state

    def _count_late(self, old_state: State, copied: Mapping[int, Counted]) -> None:
        """Have the next reads count the packets that came after the old maps were copied."""
        for limit_id, base in self._counted.items():
            late = old_state.counts(base.slot).since(copied[limit_id].counts)
            base.counts = Counts._make(
                [one - other for one, other in zip(base.counts, late, strict=True)]
            )

    def _settle_in(
        self,
        pairs: Sequence[tuple[LimitSpec, Enforcement]],
        slots: Mapping[int, int],
        kept: Mapping[int, int],
        now_ns: int,
    ) -> None:
        """Apply changed settings to the limits that stay, once the new programs are in place."""
        state = self._attached()
        for limit_id in set(kept) - set(slots):
            state.release(kept[limit_id])
        limits, records = self._limits, self._records
        self._limits = {limit.id: limit for limit, _ in pairs}
        self._records = {limit.id: enforcement for limit, enforcement in pairs}
        changed = {}
        for limit, enforcement in pairs:
            if limit.id not in kept:
                continue
            slot = slots[limit.id]
            if limits.get(limit.id) != limit:
                state.configure(
                    slot,
                    layout.limit_flags(limit.policy),
                    GRACE_INTERVALS * limit.policy.interval_ns,
                    layout.source_bits(limit.policy),
                )
            if slot in self._changed or records.get(limit.id) != enforcement:
                changed[slot] = enforcement
        state.apply(changed, now_ns)
        state.beat(now_ns)
        self._changed = {}
        self._ids = {slot: limit_id for limit_id, slot in slots.items()}


def _moved(had_program: set[int], news: News) -> set[int]:
    """Those of these interfaces that are in another network namespace now; all that are gone, if
    the kernel's messages were lost."""
    if news.moved is not None:
        return had_program & news.moved
    try:
        return had_program - {index for index, _ in socket.if_nameindex()}
    except OSError:  # perhaps no descriptor is free
        return had_program


def _room(limits: Sequence[LimitSpec], state: State) -> int:
    """Slots for these limits and the current ones, which stay until new programs are in place."""
    return len(state.slots().keys() | {limit.id for limit in limits})


def _place(limits: Sequence[LimitSpec], state: State, capacity: int) -> dict[int, int]:
    """A slot below `capacity` for each limit: its current slot if it has one."""
    there = state.slots()
    free = iter(sorted(set(range(capacity)) - set(there.values())))
    return {limit.id: there[limit.id] if limit.id in there else next(free) for limit in limits}
