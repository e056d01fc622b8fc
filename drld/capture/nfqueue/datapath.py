"""The datapath that asks user space about each packet: NFQUEUE, through NetfilterQueue.

The firewall (`drld.capture.rules`) leads packets to one queue; the kernel copies their headers
to a netlink socket, whose descriptor the daemon waits for; `drain` then gives a verdict for each
and leaves no mark or other trace on it. Verdicts are collected for `BATCH` packets and go back in
one system call (docs/performance.md). GSO packets are segmented by the kernel before, so every
packet here has its size on the wire. A packet that gets a congestion mark goes back rewritten, so
packets are copied whole while a limit marks. A packet is charged when it arrived, as far as that is
known (`nfqueue.arrival`): a daemon that runs late takes nothing for a burst that was none.

What can go wrong:

- The queue or its socket is full: the kernel drops the packet, as any overloaded router does,
  whatever `on_failure` says. Counted as `overflow`.
- Judging a packet raises: it passes if every limit says `on_failure = "open"`, else it is dropped,
  which is what would happen to it if the daemon were dead. Counted as `errors`.
- The daemon dies: its queue is gone with it, and the rules that it leaves behind say what happens
  (`drld.capture.rules`) until the next daemon of this name attaches. One that the firewall refuses
  leaves them as they are.
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

import netfilterqueue

from drld.capture.gate import Gate
from drld.capture.nfqueue.arrival import Arrival
from drld.capture.nfqueue.firewall import Firewall, choose, remove_leftovers
from drld.capture.nfqueue.packet_queue import QUEUE_PACKETS, TURN, PacketQueue
from drld.capture.rules import Hook, plan
from drld.ebpf.attachment import Attachment, attachment
from drld.errors import DatapathError
from drld.model import Enforcement, FlowId, Measurement
from drld.spec import Direction, LimitSpec

log = logging.getLogger(__name__)

_IN, _OUT = Direction.IN, Direction.OUT
_HOOKS_IN = (0, 1)  # prerouting, local input; at the others it is known where a packet goes out
_GONE = (errno.ENXIO, errno.ENODEV)
_NAMES_LIVE_NS = 1_000_000_000
_INSTALL_POLL_S = 0.005


@dataclass(frozen=True, slots=True)
class _Session:
    """What is there between attach and detach."""

    firewall: Firewall
    queue: PacketQueue
    reason: str


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
        """Touch nothing before `attach`.

        Args:
            limiter_name: what rules are named after.
            firewall: `auto`, `nft`, `iptables` or `none`.
            queue: NFQUEUE number; None picks one that is free.
            rng: decides random drops.
            clock: monotonic time in nanoseconds, the one that the methods' `now_ns` come from.
            timestamps: when a packet arrived: `auto`, `ebpf`, `kernel` or `read`.
            wall: time of day in nanoseconds, the kernel's timestamps'.
            attachment: how the program that stamps is attached.
        """
        self._limiter_name = limiter_name
        self._firewall_wanted = firewall
        self._queue_wanted = queue
        self._rng = rng
        self._clock = clock
        self._arrival = Arrival(limiter_name, timestamps, clock, wall, attachment)
        self._gate = Gate(rng)
        self._session: _Session | None = None
        self._errors = 0
        self._overflow = 0
        self._interfaces: dict[int, str] = {}
        self._earlier: dict[int, str] = {}
        """As it was before they were last looked up anew."""
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
        self._attached().queue.copy(whole=self._gate.marks)

    def had_traffic(self) -> Collection[int]:
        """See `Datapath.had_traffic`."""
        return self._gate.had_traffic()

    def read(self, limit_id: int, now_ns: int) -> Measurement:
        """See `Datapath.read`."""
        return self._gate.read(limit_id, now_ns)

    def program(
        self, limit_id: int, enforcement: Enforcement, evict: Iterable[FlowId], now_ns: int
    ) -> None:
        """See `Datapath.program`; takes effect at once, for packets that wait already too."""
        self._gate.program(limit_id, enforcement, evict, self._settled_ns(now_ns))

    def set_share(self, limit_id: int, share: Enforcement) -> None:
        """See `Datapath.set_share`; nobody enforces anything when this process is dead."""

    def flush(self, now_ns: int) -> None:
        """See `Datapath.flush`; `program` has done it."""
        self._settled_ns(now_ns)
        self._arrival.follow(now_ns)

    def counters(self) -> Mapping[str, int]:
        """See `Datapath.counters`.

        The names are those of `gate.Counts`, `overflow`, `errors`, and how many packets were
        charged at the time that eBPF or the kernel stamped, or when they were read.
        """
        if self._session is not None:
            self._overflow = self._session.queue.dropped()
        return {
            **asdict(self._gate.counts),
            "overflow": self._overflow,
            "errors": self._errors,
            **self._arrival.counters(),
        }

    def detach(self) -> None:
        """See `Datapath.detach`; what still waits in the queue gets its verdict first."""
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

    # What only this one does

    def fileno(self) -> int:
        """The descriptor that is readable when packets wait."""
        return self._attached().queue.fileno()

    @property
    def queue(self) -> int:
        """The number of the queue."""
        return self._attached().queue.number

    @property
    def firewall(self) -> str:
        """What holds the rules: `nft`, `iptables` or `none`."""
        return self._attached().firewall.name

    @property
    def reason(self) -> str:
        """One sentence for an operator: which queue and firewall, and why these."""
        session = self._attached()
        return (
            f"nfqueue {session.queue.number}, firewall {self.firewall} ({session.reason}), "
            f"{self._arrival.reason}"
        )

    def drain(self) -> int:
        """Give a verdict for the packets that wait, `TURN` at most, and return how many."""
        session = self._attached()
        now_ns = self._clock()
        if now_ns >= self._interfaces_until_ns:
            # An index may come to mean another interface, or an interface get another name.
            self._earlier, self._interfaces = self._interfaces, {}
            self._interfaces_until_ns = now_ns + _NAMES_LIVE_NS
        return self._turn(session.queue)

    def _attached(self) -> _Session:
        if self._session is None:
            raise DatapathError("the nfqueue datapath is not attached")
        return self._session

    def _start(self, limits: Sequence[LimitSpec]) -> _Session:
        plan(limits)  # refuses what is wrong with them, before anything is touched
        firewall, reason = choose(self._firewall_wanted, self._limiter_name)
        self._gate = Gate(self._rng)
        self._errors = self._overflow = 0
        with contextlib.ExitStack() as undo:
            # The queue first: if a live daemon of this name holds it, its rules must stay.
            queue = PacketQueue(self._queue_wanted, self._limiter_name, self._verdict)
            undo.callback(queue.close)
            undo.callback(self._arrival.stop)
            self._arrival.start()
            self._arrival.install(limits, lambda hooks: firewall.install(hooks, queue.number))
            undo.pop_all()
        remove_leftovers(firewall, self._limiter_name)
        return _Session(firewall, queue, reason)

    def _reinstall(self, session: _Session, limits: Sequence[LimitSpec]) -> None:
        plan(limits)  # as in `_start`
        self._arrival.install(limits, partial(self._install, session))

    def _install(self, session: _Session, hooks: Sequence[Hook]) -> None:
        """Exchange the rules, and judge packets meanwhile by the old limits.

        The tools take their time: with thousands of prefixes longer than the queue can wait. The
        new limits hold from `Gate.replace` on, for every packet judged from then on.
        """
        queue = session.queue
        with ThreadPoolExecutor(1, thread_name_prefix="firewall") as executor:
            installed = executor.submit(session.firewall.install, hooks, queue.number)
            while not installed.done():
                if queue.waiting(_INSTALL_POLL_S):
                    self._turn(queue)
        installed.result()

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
            # Whatever it is, a packet without verdict would block a place in the queue for good.
            self._errors += 1
            if self._errors & (self._errors - 1) == 0:  # the 1st, 2nd, 4th, 8th ...
                log.exception("error %d in judging a packet", self._errors)
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
                return ""  # and the kernel has dropped the packet with it
            # No descriptor is left to ask with: a packet of no interface would be of no limit.
            if index not in self._earlier:
                raise
            name = self._earlier[index]
        self._interfaces[index] = name
        return name
