"""Sources of the arrival times of the nfqueue datapath's packets.

`ebpf`: the program bpf/arrival.c stamps packets at the ingress of interfaces. For limits on
incoming packets these are their interfaces. If any limit is on outgoing packets, they are all
interfaces but loopback. A forwarded packet may come from any of them, even from the one that it
leaves by. The next daemon of the same name finds the program by name (`drld.ebpf.attachment`). A
killed daemon's program stamps until that daemon has installed its rules, and harms no packet. The
programs of a killed daemon on the kernel datapath limit packets until then, too.

`kernel`: the kernel stamps every received packet while any process has a socket with timestamps,
and the daemon opens one. These stamps are of the wall clock.

`read`: the time at which the daemon reads a packet.

`drld.police.arrival_time` checks the stamps of every source.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Callable, Collection, Mapping, Sequence

from drld.capture.patterns import covers
from drld.capture.queue_hooks import Hook, plan
from drld.ebpf.attachment import Attachment, attachment
from drld.ebpf.bpf import Program
from drld.ebpf.cleaning import cleaning_up
from drld.ebpf.compiler import compiled
from drld.errors import DatapathError
from drld.log_event import event
from drld.model import NS_PER_S
from drld.police.arrival_time import ArrivalTimes
from drld.police.direction import Direction
from drld.spec import LimitSpec

log = logging.getLogger(__name__)

EBPF, KERNEL, READ = "ebpf", "kernel", "read"

_LOOK_NS = NS_PER_S
_LOOPBACK = "lo"
_NOTE = "arrival"
_SO_TIMESTAMPNS = 35
_NAMES_SHOWN = 8


class Arrival:
    """The source of arrival times, in use from `start` to `stop`."""

    def __init__(
        self,
        limiter_name: str,
        wanted: str,
        clock: Callable[[], int],
        wall: Callable[[], int],
        attachment: Callable[[str], Attachment] = attachment,
    ) -> None:
        """Prepare; `start` is the first call that changes the host.

        Args:
            limiter_name: part of the programs' names.
            wanted: `ebpf`, `kernel`, `read`, or `auto`: the first of them that works.
            clock: monotonic time, ns.
            wall: time of day, ns.
            attachment: makes the object that attaches programs.
        """
        self.source = READ
        """The source in use: `ebpf`, `kernel` or `read`."""
        self.times: ArrivalTimes | None = None
        """The recorded arrival times; None: packets are charged when the daemon reads them."""
        self._limiter_name = limiter_name
        self._wanted = wanted
        self._clock = clock
        self._wall = wall
        self._attach = attachment
        self._read = 0
        self._looked_ns = 0
        self._refusal = ""
        self._late = ""
        self._program: Program | None = None
        self._attachment: Attachment | None = None
        self._socket: socket.socket | None = None
        self.hooks: Sequence[Hook] = ()
        """The hooks with installed rules."""
        self._in_force = False
        """Whether rules are installed. Before that, a dead daemon's programs must stay."""
        self._stamping: dict[int, str] = {}
        self._refused: dict[int, str] = {}
        self._look_ns = 0

    def start(self) -> None:
        """Choose the source; a killed daemon's programs stay until `install` has succeeded.

        Raises:
            DatapathError: the wanted source does not work.
        """
        self._in_force = False
        self._refusal = self._late = ""
        self._read = 0
        self.source = self._choose()
        self.times = None if self.source == READ else ArrivalTimes(self._clock, self._wall)

    def _choose(self) -> str:
        if self._wanted in ("auto", EBPF):
            try:
                code = compiled("arrival")["stamp"]
                self._attachment = self._attach(self._limiter_name)
                self._program = Program.load(self._attachment.program_name("stamp"), code, {})
            except DatapathError as error:
                self.stop()
                if self._wanted == EBPF:
                    raise
                self._refusal = f" (no eBPF: {error})"
                log.warning(
                    "no eBPF arrival timestamps, the kernel's instead: %s",
                    error,
                    extra=event("timestamps.fallback", reason=str(error)),
                )
            else:
                return EBPF
        if self._wanted == READ:
            return READ
        try:
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        except OSError as error:
            raise DatapathError(f"timestamps: {error}") from error
        return KERNEL

    def install(
        self, limits: Sequence[LimitSpec], install: Callable[[Sequence[Hook]], None]
    ) -> Sequence[Hook]:
        """Install the limits' rules, and stamp packets on the interfaces that these need.

        If the firewall refuses the rules that queue outgoing packets early, these packets are
        charged when the daemon reads them.

        Returns:
            The hooks with installed rules.

        Raises:
            DatapathError: the firewall refuses; with `auto`, it refuses the plain rules, too.
        """
        hooks = plan(limits, stamped=self.source != READ and not self._late)
        try:
            install(hooks)
        except DatapathError as error:
            if self._wanted != "auto" or not any(hook.stamped for hook in hooks):
                raise
            hooks = plan(limits)
            install(hooks)
            self._late = f" (the firewall refuses to take them earlier: {error})"
            log.warning(
                "outgoing packets are charged when the daemon reads them: %s",
                error,
                extra=event("timestamps.fallback", reason=str(error)),
            )
        self.hooks = hooks
        self._follow_interfaces()
        if not self._in_force:
            self._in_force = True
            with cleaning_up():
                self._remove_programs(self._stamping)
        return hooks

    def follow(self, now_ns: int) -> None:
        """Once a second, start to stamp on new interfaces."""
        if now_ns >= self._look_ns:
            self._look_ns = now_ns + _LOOK_NS
            self._follow_interfaces()

    def stop(self) -> None:
        """Stop stamping; safe to call twice."""
        if self._attachment is not None:
            if self._in_force:
                with cleaning_up():
                    self._remove_programs()
            self._attachment.close()
            self._attachment = None
        if self._program is not None:
            self._program.close()
            self._program = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._stamping = {}
        self._refused = {}

    # Time

    def turn(self, now_ns: int) -> None:
        """Begin a turn, in which the datapath reads packets."""
        if self.times is not None:
            self.times.turn(now_ns)

    def turned(self, began_ns: int, judged: int, emptied: bool) -> None:
        """End a turn: `judged` packets since `began_ns`; `emptied`: the queue is empty."""
        if self.times is None:
            self._read += judged
        elif emptied:
            self.times.emptied(began_ns)

    def settled_ns(self, now_ns: int, waiting: Callable[[], bool]) -> int:
        """The time up to which buckets are settled; packets in the queue are not charged yet.

        Args:
            now_ns: the tick's time.
            waiting: says whether packets wait in the queue; called once a tick.
        """
        if self.times is None:
            return now_ns
        if now_ns != self._looked_ns:
            self._looked_ns = now_ns
            if not waiting():
                self.times.emptied(now_ns)
        return min(self.times.settled_ns(), now_ns)

    def counters(self) -> Mapping[str, int]:
        """Numbers of packets by the source of the time at which they were charged."""
        times = self.times
        return {
            "stamped_ebpf": times.ebpf if times else 0,
            "stamped_kernel": times.kernel if times else 0,
            "unstamped": times.read if times else self._read,
        }

    @property
    def reason(self) -> str:
        """A phrase for an operator: the time at which packets are charged, and the reason."""
        late = [
            hook.interface
            for hook in self.hooks
            if hook.direction is Direction.OUT and not hook.stamped
        ]
        if self.source == READ:
            return f"packets charged when read{self._refusal}"
        if self.source == EBPF:
            said = f"packets charged when they arrived, by eBPF on {_listed(self._stamping)}"
        else:
            said = f"packets charged when they arrived, by the kernel's timestamps{self._refusal}"
        return said + (f"; those out on {', '.join(late)} when read{self._late}" if late else "")

    def _follow_interfaces(self) -> None:
        """Stamp at all wanted interfaces that there are, and at no other.

        An interface that refuses the program is asked again once it has another name or index.
        """
        attachment, program = self._attachment, self._program
        if attachment is None or program is None:
            return
        try:
            there = socket.if_nameindex()
        except OSError:
            return  # perhaps no descriptor is free; the next call tries again
        coming_in = {hook.interface for hook in self.hooks if hook.direction is Direction.IN}
        anywhere = any(hook.stamped for hook in self.hooks)
        wanted = {
            index: name
            for index, name in there
            if any(covers(each, name) for each in coming_in) or (anywhere and name != _LOOPBACK)
        }
        for index in self._stamping.keys() - wanted.keys():
            with cleaning_up():
                attachment.remove(index, Direction.IN)
            del self._stamping[index]
        self._refused = {
            index: name for index, name in self._refused.items() if wanted.get(index) == name
        }
        for index, name in wanted.items():
            if index in self._refused:
                continue
            try:
                if index not in self._stamping:
                    attachment.put(index, Direction.IN, program, _NOTE)
                self._stamping[index] = name
            except DatapathError as error:
                self._refused[index] = name
                log.warning(
                    "%s: incoming packets get no eBPF timestamp: %s",
                    *(name, error),
                    extra=event("timestamps.fallback", name, interface=name, reason=str(error)),
                )

    def _remove_programs(self, kept: Collection[int] = ()) -> None:
        """Remove this limiter's programs except at the ingress of the interfaces `kept`."""
        with contextlib.closing(self._attach(self._limiter_name)) as attachment:
            for found in attachment.found():
                if found.direction is not Direction.IN or found.index not in kept:
                    attachment.remove(found.index, found.direction)


def _listed(interfaces: Mapping[int, str]) -> str:
    names = sorted(interfaces.values())
    more = len(names) - _NAMES_SHOWN
    text = ", ".join(names[:_NAMES_SHOWN]) or "no interface"
    return f"{text} and {more} more" if more > 0 else text
