"""The datapath in user space: the daemon judges each packet, through NFQUEUE and NetfilterQueue.

Firewall rules (`drld.capture.queue_hooks`) send packets to one queue. The kernel copies their
headers to a netlink socket, and the daemon waits for its descriptor. `drain` then gives each packet
a verdict and sets no packet mark. The verdicts of `BATCH` packets go back in one system call
(docs/performance.md). The kernel segments GSO packets first, so every packet here has its size on
the wire. A packet that gets a congestion mark goes back rewritten, so packets are copied whole
while a limit marks. A packet is charged at its arrival time if that is known (`nfqueue.arrival`).
So packets that pile up while the daemon is late do not count as a burst.

Failures:

- The queue or its socket is full: the kernel drops the packet, as an overloaded router does,
  whatever `on_failure` says. Counted as `overflow`.
- Judging a packet raises: as if the daemon were dead, the packet passes if every limit says
  `on_failure = "open"`, and is dropped otherwise. Counted as `errors`.
- The daemon dies: its queue ends with it. Its rules stay and decide (`drld.capture.queue_hooks`)
  until the next daemon of the same name attaches. If the firewall refuses the new rules, the old
  ones stay.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from random import Random
from typing import TypeVar

import netfilterqueue

from drld.capture.gate import Gate, marks
from drld.capture.nfqueue.arrival import Arrival
from drld.capture.nfqueue.firewall import Firewall, choose, others_on, remove_leftovers
from drld.capture.nfqueue.packet_queue import QUEUE_PACKETS, TURN, PacketQueue
from drld.capture.nfqueue.rule_news import RuleNews
from drld.capture.queue_hooks import Hook, plan
from drld.ebpf.attachment import Attachment, attachment
from drld.ebpf.cleaning import cleaning_up
from drld.ebpf.other_limiters import BOTH, ONE, OtherLimiters
from drld.errors import DatapathError
from drld.log_event import event
from drld.model import Enforcement, FlowId, FlowKey, Measurement
from drld.mypyc import mypyc_attr
from drld.police.direction import Direction
from drld.police.policer import Policer
from drld.spec import LimitSpec

log = logging.getLogger(__name__)

T = TypeVar("T")

_IN, _OUT = Direction.IN, Direction.OUT
_HOOKS_IN = (0, 1)  # prerouting, local input; at the other hooks a packet has an outgoing interface
_GONE = (errno.ENXIO, errno.ENODEV)
_NAMES_LIVE_NS = 1_000_000_000
_LOOK_NS = 1_000_000_000
_INSTALL_POLL_S = 0.005


@dataclass(frozen=True, slots=True)
class _Session:
    """The resources held from attach to detach."""

    firewall: Firewall
    queue: PacketQueue
    reason: str
    news: RuleNews | None
    """None: the kernel does not report removed rules."""


@mypyc_attr(allow_interpreted_subclasses=True)
class NfqueueDatapath:
    """Counts and polices in this process, packet by packet (`drld.police.datapath.Datapath`)."""

    name = "nfqueue"

    def __init__(
        self,
        limiter_name: str,
        firewall: str,
        queue: int | None,
        rng: Random,
        clock: Callable[[], int],
        *,
        timestamps: str = "auto",
        wall: Callable[[], int] = time.time_ns,
        attachment: Callable[[str], Attachment] = attachment,
    ) -> None:
        """Prepare; `attach` is the first call that changes the host.

        Args:
            limiter_name: part of the rules' names.
            firewall: `auto`, `nft`, `iptables` or `none`.
            queue: NFQUEUE number; None picks a free one.
            rng: decides random drops.
            clock: the clock of all `now_ns`: monotonic time in nanoseconds.
            timestamps: source of arrival times: `auto`, `ebpf`, `kernel` or `read`.
            wall: the clock of the kernel's timestamps: time of day in nanoseconds.
            attachment: makes the object that attaches the program bpf/arrival.c.
        """
        self._limiter_name = limiter_name
        self._firewall_wanted = firewall
        self._queue_wanted = queue
        self._rng = rng
        self._clock = clock
        self._arrival = Arrival(limiter_name, timestamps, clock, wall, attachment)
        self._gate = Gate(rng)
        self._session: _Session | None = None
        self._limits: Sequence[LimitSpec] = ()
        self._errors = 0
        self._overflow = 0
        self._reattached = 0
        self._suspected = self._unlimited = False
        """Whether rules may be missing; whether they are, and could not be put back."""
        self._look_ns = 0
        self._interfaces: dict[int, str] = {}
        self._earlier: dict[int, str] = {}
        """The names before the last refresh, for a host without free descriptors."""
        self._interfaces_until_ns = 0

    # What every datapath does

    def attach(self, limits: Iterable[tuple[LimitSpec, Enforcement]], now_ns: int) -> None:
        """See `Datapath.attach`."""
        pairs = list(limits)
        specs = [limit for limit, _ in pairs]
        if self._session is None:
            self._session = self._start(specs)
        else:
            self._reinstall(self._session, specs)
            now_ns = self._settled_ns(now_ns)
        self._gate.replace(pairs, now_ns)
        self._limits = specs
        if not self._gate.marks:
            # Short copies only save time, so a refusal must not fail the reload.
            with contextlib.suppress(DatapathError):
                self._session.queue.copy(whole=False)

    def had_traffic(self, among: Collection[int]) -> Collection[int]:
        """See `Datapath.had_traffic`."""
        return self._gate.had_traffic(among)

    def read(self, limit_id: int, now_ns: int) -> Measurement:
        """See `Datapath.read`."""
        return self._gate.read(limit_id, now_ns)

    def program(
        self, limit_id: int, enforcement: Enforcement, evict: Iterable[FlowId], now_ns: int
    ) -> None:
        """See `Datapath.program`; takes effect at once, also for packets that wait."""
        self._gate.program(limit_id, enforcement, evict, self._settled_ns(now_ns))

    def snapshot(self, limit_id: int, flow: FlowKey) -> Policer:  # noqa: ARG002 -- it has all flows
        """See `Datapath.snapshot`."""
        return self._gate.copy_of(limit_id)

    def set_share(self, limit_id: int, share: Enforcement) -> None:
        """See `Datapath.set_share`; does nothing, as no share is enforced without the daemon."""

    def flush(self, now_ns: int) -> None:
        """See `Datapath.flush`; the records are in force since `program`."""
        self._settled_ns(now_ns)
        self._arrival.follow(now_ns)
        self._watch_rules(self._attached(), now_ns)

    def counters(self) -> Mapping[str, int]:
        """See `Datapath.counters`.

        The names are those of `gate.Counts`, `overflow`, `errors`, `reattached`, and those of
        `Arrival.counters`.
        """
        if self._session is not None:
            self._overflow = self._session.queue.dropped()
        return {
            **asdict(self._gate.counts),
            "overflow": self._overflow,
            "errors": self._errors,
            "reattached": self._reattached,
            **self._arrival.counters(),
        }

    def detach(self) -> None:
        """See `Datapath.detach`; packets that wait in the queue get their verdicts first."""
        if self._session is None:
            return
        session = self._session
        try:
            session.firewall.release()
            for _ in range(QUEUE_PACKETS // TURN + 1):
                if not self._turn(session.queue):
                    break
            session.firewall.remove()
        finally:
            self._arrival.stop()
            self._overflow = session.queue.dropped()
            self._session = None
            session.queue.close()
            if session.news is not None:
                session.news.close()

    # What only this datapath does

    def fileno(self) -> int:
        """The descriptor that is readable when packets wait."""
        return self._attached().queue.fileno()

    @property
    def queue(self) -> int:
        """The number of the queue."""
        return self._attached().queue.number

    @property
    def firewall(self) -> str:
        """The tool of the rules: `nft`, `iptables` or `none`."""
        return self._attached().firewall.name

    @property
    def reason(self) -> str:
        """One sentence for an operator: queue, firewall and source of times, with the reasons."""
        session = self._attached()
        return (
            f"nfqueue {session.queue.number}, firewall {self.firewall} ({session.reason}), "
            f"{self._arrival.reason}"
        )

    def drain(self) -> int:
        """Give verdicts on at most `TURN` waiting packets; return their number."""
        session = self._attached()
        now_ns = self._clock()
        if now_ns >= self._interfaces_until_ns:
            # An index may be reused, and an interface may be renamed.
            self._earlier, self._interfaces = self._interfaces, {}
            self._interfaces_until_ns = now_ns + _NAMES_LIVE_NS
        return self._turn(session.queue)

    def _attached(self) -> _Session:
        if self._session is None:
            raise DatapathError("the nfqueue datapath is not attached")
        return self._session

    def _start(self, limits: Sequence[LimitSpec]) -> _Session:
        plan(limits)  # raises for limits with mistakes, before any change of the host
        firewall, reason = choose(self._firewall_wanted, self._limiter_name)
        self._gate = Gate(self._rng)
        self._errors = self._overflow = 0
        with contextlib.ExitStack() as undo:
            # The queue first: if a live daemon of this name holds it, its rules must stay.
            queue = PacketQueue(self._queue_wanted, self._limiter_name, self._verdict)
            undo.callback(queue.close)
            undo.callback(self._arrival.stop)
            news = self._rule_news(firewall)
            if news is not None:
                undo.callback(news.close)
            _copy_for(queue, limits)
            self._arrival.start()
            self._arrival.install(limits, lambda hooks: firewall.install(hooks, queue.number))
            undo.pop_all()
        remove_leftovers(firewall, self._limiter_name)
        with cleaning_up():
            effect = ONE if firewall.name == "iptables" else BOTH
            OtherLimiters().log(others_on(limits, firewall.others()), effect)
        return _Session(firewall, queue, reason, news)

    def _reinstall(self, session: _Session, limits: Sequence[LimitSpec]) -> None:
        plan(limits)  # as in `_start`
        _copy_for(session.queue, limits)
        self._arrival.install(limits, partial(self._install, session))

    def _install(self, session: _Session, hooks: Sequence[Hook]) -> None:
        """Exchange the rules. The new limits hold from `Gate.replace` on, for every packet judged
        after it."""
        self._meanwhile(
            session.queue, partial(session.firewall.install, hooks, session.queue.number)
        )

    def _meanwhile(self, queue: PacketQueue, run: Callable[[], T]) -> T:
        """Run the tools in a thread, and judge packets meanwhile by the limits in force.

        With thousands of prefixes the tools take longer than the queue can wait.
        """
        with ThreadPoolExecutor(1, thread_name_prefix="firewall") as executor:
            running = executor.submit(run)
            while not running.done():
                if queue.waiting(_INSTALL_POLL_S):
                    self._turn(queue)
        return running.result()

    def _rule_news(self, firewall: Firewall) -> RuleNews | None:
        if firewall.name == "none":
            return None  # the rules are the operator's
        with contextlib.suppress(DatapathError):  # a kernel without nf_tables
            return RuleNews(self._limiter_name)
        return None

    def _watch_rules(self, session: _Session, now_ns: int) -> None:
        """Put rules back that another program has removed."""
        if session.news is not None and session.news.removed():
            self._suspected = True
        if not self._suspected or now_ns < self._look_ns:
            return
        self._look_ns = now_ns + _LOOK_NS
        try:
            if not self._meanwhile(
                session.queue, partial(session.firewall.complete, self._arrival.hooks)
            ):
                self._reinstall(session, self._limits)
                self._reattached += 1
                log.warning(
                    "firewall rules were flushed, and are there again",
                    extra=event("firewall.reattached"),
                )
        except DatapathError as error:
            if not self._unlimited:
                log.error(
                    "firewall rules may be missing, and cannot be put back: %s; drld keeps trying",
                    error,
                    extra=event("firewall.unlimited", reason=str(error)),
                )
            self._unlimited = True
        else:
            self._suspected = self._unlimited = False

    def _turn(self, queue: PacketQueue) -> int:
        now_ns = self._clock()
        self._arrival.turn(now_ns)
        judged = queue.drain()
        self._arrival.turned(now_ns, judged, judged < TURN)
        return judged

    def _settled_ns(self, now_ns: int) -> int:
        return self._arrival.settled_ns(now_ns, self._attached().queue.waiting)

    # Packets

    def _verdict(self, packet: netfilterqueue.Packet) -> int:
        try:
            return self._judge(packet)
        except Exception:
            # Any error: a packet without a verdict would block a place in the queue forever.
            self._errors += 1
            if self._errors & (self._errors - 1) == 0:  # the 1st, 2nd, 4th, 8th ...
                log.exception(
                    "error %d in judging a packet",
                    self._errors,
                    extra=event("datapath.error", count=self._errors),
                )
            return self._gate.fail_open

    def _judge(self, packet: netfilterqueue.Packet) -> int:
        if packet.hook in _HOOKS_IN:
            direction, index = _IN, packet.indev
        else:
            direction, index = _OUT, packet.outdev
        interface = self._interfaces.get(index) or self._resolve(index)
        times = self._arrival.times
        now_ns = times.arrival_ns(packet.get_timestamp()) if times else self._clock()
        return self._gate.judge(packet.get_payload(), interface, direction, packet.mark, now_ns)

    def _resolve(self, index: int) -> str:
        try:
            name = socket.if_indextoname(index)
        except OSError as error:
            if error.errno in _GONE:
                return ""  # the interface is gone, and the kernel has dropped the packet
            # No free descriptor for the lookup: without an interface the packet had no limit.
            if index not in self._earlier:
                raise
            name = self._earlier[index]
        self._interfaces[index] = name
        return name


def _copy_for(queue: PacketQueue, limits: Iterable[LimitSpec]) -> None:
    """Have packets copied whole if any limit marks, before anything changes: it may be refused."""
    if marks(limits):
        queue.copy(whole=True)
