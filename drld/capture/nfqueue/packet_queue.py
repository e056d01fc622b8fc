"""One bound NFQUEUE: packets in turns, verdicts in batches."""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import socket
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import netfilterqueue

from drld.capture.packet import COPY_BYTES, marked
from drld.capture.verdicts import Verdicts, copying
from drld.errors import DatapathError
from drld.police.policer import DROP, MARK

TURN = 256
"""Packets handled in one `drain`: a few milliseconds, so that ticks are not late."""

BATCH = 32
"""Packets whose verdicts are sent together. The first verdict waits for the last: 0.2 ms at most,
and only while more packets wait in the queue."""

QUEUE_PACKETS = 4096
"""Packets that may wait for a verdict. They bridge a pause of the daemon of 80 ms at 50,000
packets/s, and bound the delay of an overloaded daemon to the same time."""

SOCKET_BYTES = 4 << 20
"""Receive buffer. The kernel doubles it to 8 MiB, of which a full queue takes 5."""

WHOLE_BYTES = 3800
"""Bytes copied of a whole packet: the library reads messages of 4,096 bytes, of which other fields
take some 200."""

WHOLE_SOCKET_BYTES = 12 << 20
"""Receive buffer for whole packets. The kernel doubles it to 24 MiB. A full queue takes 18 of
these with packets of 1,500 bytes."""

_QUEUES = Path("/proc/thread-self/net/netfilter/nfnetlink_queue")
_FIRST_QUEUE, _QUEUE_NUMBERS, _QUEUE_ATTEMPTS = 1024, 64512, 64
_SOL_NETLINK, _NETLINK_NO_ENOBUFS = 270, 5
_SO_RCVBUFFORCE = 33


class _TurnOver(Exception):  # noqa: N818 -- it ends a turn; nothing failed
    """Ends a `drain` after `TURN` packets."""


class PacketQueue:
    """One bound NFQUEUE."""

    def __init__(
        self,
        wanted: int | None,
        limiter_name: str,
        judge: Callable[[netfilterqueue.Packet], int],
    ) -> None:
        """Bind a queue.

        Args:
            wanted: the queue's number; None picks a free one.
            limiter_name: decides where the search for a free number begins.
            judge: returns a verdict of `drld.police.policer`, and does not raise.

        Raises:
            DatapathError: the kernel refuses, or another process holds the queue.
        """
        self._judge = judge
        self._left = 0
        self._whole = False
        self._verdicts: Verdicts | None = None
        """None while the library binds the queue. Packets of a killed run's rules may come then."""
        try:
            self._queue = netfilterqueue.NetfilterQueue()
            self.number = self._bind(wanted, limiter_name)
            self._verdicts = Verdicts(self.number)
            try:
                self._socket = socket.socket(fileno=os.dup(self._queue.get_fd()))
                # Otherwise the kernel drops all packets after the first drop, until it is empty.
                self._socket.setsockopt(_SOL_NETLINK, _NETLINK_NO_ENOBUFS, 1)
            except OSError:
                self._queue.unbind()
                raise
        except OSError as error:
            raise DatapathError(f"NFQUEUE: {error}") from error

    def _bind(self, wanted: int | None, limiter_name: str) -> int:
        failure: OSError | None = None
        for number in (wanted,) if wanted is not None else candidates(limiter_name):
            try:
                with warnings.catch_warnings():
                    # In a container the socket's buffer may be smaller; `overflow` shows that.
                    warnings.simplefilter("ignore", RuntimeWarning)
                    self._queue.bind(
                        number,
                        self._on_packet,
                        max_len=QUEUE_PACKETS,
                        mode=netfilterqueue.COPY_PACKET,
                        range=COPY_BYTES,
                        sock_len=SOCKET_BYTES,
                    )
            except OSError as error:
                failure = error
            else:
                return number
        if wanted is not None:
            reason = str(failure).rstrip(".")
            raise DatapathError(
                f"NFQUEUE {wanted}: cannot bind ({reason}): another process may hold it"
            )
        raise DatapathError(f"NFQUEUE: no free queue in {_QUEUE_ATTEMPTS} attempts: {failure}")

    def fileno(self) -> int:
        """The descriptor that is readable when packets wait."""
        return self._socket.fileno()

    def copy(self, *, whole: bool) -> None:
        """Copy later packets whole, up to `WHOLE_BYTES`, or only their first `COPY_BYTES`.

        Raises:
            DatapathError: the kernel refuses.
        """
        if whole == self._whole:
            return
        try:
            if whole:
                try:
                    self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, WHOLE_SOCKET_BYTES)
                except PermissionError:
                    # In a container, up to the host's maximum; `overflow` shows if it is too small.
                    self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, WHOLE_SOCKET_BYTES)
            self._socket.send(copying(self.number, WHOLE_BYTES if whole else COPY_BYTES))
        except OSError as error:
            raise DatapathError(f"NFQUEUE {self.number}: {error}") from error
        self._whole = whole

    def waiting(self, patience_s: float = 0.0) -> bool:
        """Whether packets wait, or arrive within this time."""
        return bool(select.select([self._socket], [], [], patience_s)[0])

    def drain(self) -> int:
        """Give verdicts on at most `TURN` waiting packets; return their number."""
        self._left = TURN
        try:
            with contextlib.suppress(_TurnOver):
                self._queue.run(block=False)
            self._send_verdicts()
        except OSError as error:
            raise DatapathError(f"NFQUEUE {self.number}: {error}") from error
        return TURN - self._left

    def _on_packet(self, packet: netfilterqueue.Packet) -> None:
        verdict = self._judge(packet)
        if self._verdicts is None:
            (packet.drop if verdict == DROP else packet.accept)()
            return
        if verdict == MARK:
            self._verdicts.rewrite(packet.id, marked(packet.get_payload()))
        else:
            self._verdicts.give(packet.id, verdict)
        self._left -= 1
        if not self._left % BATCH:
            self._send_verdicts()
            if not self._left:
                raise _TurnOver  # the library passes it on to the caller of `run`

    def _send_verdicts(self) -> None:
        if self._verdicts is not None and (verdicts := self._verdicts.take()):
            self._socket.send(verdicts)

    def dropped(self) -> int:
        """The number of packets that the kernel dropped at a full queue or socket."""
        return sum(listed().get(self.number, (0, 0)))

    def close(self) -> None:
        """Unbind the queue; the kernel drops packets that wait in it."""
        self._queue.unbind()
        self._socket.close()


def listed() -> dict[int, tuple[int, int]]:
    """All bound queues, by number: packets dropped at a full queue, and at a full socket."""
    try:
        rows = _QUEUES.read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        return {}  # the module loads when the first queue is bound
    fields = (row.split() for row in rows)
    return {int(row[0]): (int(row[5]), int(row[6])) for row in fields}


def candidates(limiter_name: str) -> Iterator[int]:
    """Unbound queue numbers to try.

    The first depends on the limiter's name. So the rules of a killed run lead to the next run's
    queue, and not to another limiter's.
    """
    taken = listed()
    digest = hashlib.blake2s(limiter_name.encode("utf-8", "surrogatepass"), digest_size=4).digest()
    start = int.from_bytes(digest, "big")
    numbers = (_FIRST_QUEUE + (start + step) % _QUEUE_NUMBERS for step in range(_QUEUE_ATTEMPTS))
    return (number for number in numbers if number not in taken)
