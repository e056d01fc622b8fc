"""Where the arrival times of the nfqueue datapath's packets come from.

`ebpf`: bpf/arrival.c, at the ingress of the interfaces on which limited packets can come in: those
of the limits on packets coming in, and, where a limit is on packets going out, every interface but
loopback, for a forwarded packet may come from anywhere (a hairpin's from where it goes). It is
found again by name, like those of the kernel datapath (`drld.ebpf.attachment`): a killed
daemon's goes on stamping, which harms nobody, until a daemon of that name has installed its rules.
What a killed daemon on the kernel datapath left goes then, too, and limits up to there.

`kernel`: the kernel stamps every received packet while anybody holds a socket that wants
timestamps; this is one. The stamps are of the wall clock.

`read`: the time when the daemon reads a packet.

`drld.police.arrival_time` decides what a stamp is worth, from any source.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Callable, Collection, Mapping, Sequence

from drld.capture.rules import Hook, plan
from drld.ebpf.attachment import Attachment, attachment
from drld.ebpf.bpf import Program
from drld.ebpf.cleaning import cleaning_up
from drld.ebpf.compiler import compiled
from drld.errors import DatapathError
from drld.model import NS_PER_S
from drld.police.arrival_time import ArrivalTimes
from drld.spec import Direction, LimitSpec

log = logging.getLogger(__name__)

EBPF, KERNEL, READ = "ebpf", "kernel", "read"

_LOOK_NS = NS_PER_S
_LOOPBACK = "lo"
_NOTE = "arrival"
_SO_TIMESTAMPNS = 35
_NAMES_SHOWN = 8


class Arrival:
    """What has packets stamped, from `start` to `stop`."""

    def __init__(
        self,
        limiter_name: str,
        wanted: str,
        clock: Callable[[], int],
        wall: Callable[[], int],
        attachment: Callable[[str], Attachment] = attachment,
    ) -> None:
        """Touch nothing before `start`.

        Args:
            limiter_name: what programs are named after.
            wanted: `auto` (the first of the others that can be had), `ebpf`, `kernel` or `read`.
            clock: monotonic time, ns.
            wall: time of day, ns.
            attachment: how programs are attached.
        """
        self.source = READ
        """Which of the three it is."""
        self.times: ArrivalTimes | None = None
        """None: packets are charged when they are read."""
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
        self._hooks: Sequence[Hook] = ()
        self._in_force = False
        """Rules were installed: until then programs of a dead daemon are not ours to remove."""
        self._stamping: dict[int, str] = {}
        self._refused: dict[int, str] = {}
        self._look_ns = 0

    def start(self) -> None:
        """Choose the source; what a killed daemon left stays until `install` has succeeded.

        Raises:
            DatapathError: the source that is wanted cannot be had.
        """
        self._in_force = False
        self._refusal = self._late = ""
        self._read = 0
        self.source = self._choose()
        self.times = None if self.source == READ else ArrivalTimes(self._clock, self._wall)

    def _choose(self) -> str:
        if self._wanted in ("auto", EBPF):
            try:
                code = compiled(source="arrival")["stamp"]
                self._attachment = self._attach(self._limiter_name)
                self._program = Program.load(self._attachment.program_name("stamp"), code, {})
            except DatapathError as error:
                self.stop()
                if self._wanted == EBPF:
                    raise
                self._refusal = f" (no eBPF: {error})"
                log.warning("no eBPF arrival timestamps, the kernel's instead: %s", error)
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
        """Install the rules for limits, and have the packets stamped that can come to them.

        Where the firewall cannot take packets going out early, they are charged when read. The
        hooks are those whose rules were installed.

        Raises:
            DatapathError: the firewall refuses; of `auto`, those rules too.
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
            log.warning("outgoing packets are charged when the daemon reads them: %s", error)
        self._hooks = hooks
        self._follow_interfaces()
        if not self._in_force:
            self._in_force = True
            with cleaning_up():
                self._remove_programs(self._stamping)
        return hooks

    def follow(self, now_ns: int) -> None:
        """Look once a second whether interfaces came or went."""
        if now_ns >= self._look_ns:
            self._look_ns = now_ns + _LOOK_NS
            self._follow_interfaces()

    def stop(self) -> None:
        """Stamp no more; safe to call twice."""
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
        """Packets are judged from now on."""
        if self.times is not None:
            self.times.turn(now_ns)

    def turned(self, began_ns: int, judged: int, emptied: bool) -> None:
        """So many packets were judged since then, and the queue seen empty or not."""
        if self.times is None:
            self._read += judged
        elif emptied:
            self.times.emptied(began_ns)

    def settled_ns(self, now_ns: int, waiting: Callable[[], bool]) -> int:
        """When buckets are settled: what waits in the queue came before now, and is not charged.

        Args:
            now_ns: the tick's time.
            waiting: whether packets wait in the queue; asked once a tick.
        """
        if self.times is None:
            return now_ns
        if now_ns != self._looked_ns:
            self._looked_ns = now_ns
            if not waiting():
                self.times.emptied(now_ns)
        return min(self.times.settled_ns(), now_ns)

    def counters(self) -> Mapping[str, int]:
        """How many packets were charged at which time."""
        times = self.times
        return {
            "stamped_ebpf": times.ebpf if times else 0,
            "stamped_kernel": times.kernel if times else 0,
            "unstamped": times.read if times else self._read,
        }

    @property
    def reason(self) -> str:
        """Words for an operator: which time packets are charged at, and why that one."""
        late = [
            hook.interface
            for hook in self._hooks
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
        attachment, program = self._attachment, self._program
        if attachment is None or program is None:
            return
        try:
            there = socket.if_nameindex()
        except OSError:
            return  # no descriptor left, at worst: what is stamped stays so, and we look again
        coming_in = {hook.interface for hook in self._hooks if hook.direction is Direction.IN}
        anywhere = any(hook.stamped for hook in self._hooks)
        wanted = {
            index: name
            for index, name in there
            if name in coming_in or (anywhere and name != _LOOPBACK)
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
            if index not in self._stamping:
                try:
                    attachment.put(index, Direction.IN, program, _NOTE)
                except DatapathError as error:
                    self._refused[index] = name
                    log.warning("%s: incoming packets get no eBPF timestamp: %s", name, error)
                    continue
            self._stamping[index] = name

    def _remove_programs(self, kept: Collection[int] = ()) -> None:
        """Remove this limiter's programs, but those that stamp at these interfaces."""
        with contextlib.closing(self._attach(self._limiter_name)) as attachment:
            for found in attachment.found():
                if found.direction is not Direction.IN or found.index not in kept:
                    attachment.remove(found.index, found.direction)


def _listed(interfaces: Mapping[int, str]) -> str:
    names = sorted(interfaces.values())
    more = len(names) - _NAMES_SHOWN
    text = ", ".join(names[:_NAMES_SHOWN]) or "no interface"
    return f"{text} and {more} more" if more > 0 else text
