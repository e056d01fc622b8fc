"""Verdicts on their way to the kernel, many in one system call.

Most of what NFQUEUE costs is two system calls a packet: one that fetches it, one that gives its
verdict. The second need not be: a batch verdict (NFQNL_MSG_VERDICT_BATCH, Linux 3.1) holds for
every waiting packet up to an id, and one `send` may carry several messages, which the kernel
carries out in their order. The kernel numbers packets and hands them out in one order, so a run
of equal verdicts is one message, and any mixture of them is one `send`.
"""

from __future__ import annotations

from struct import Struct

_ACCEPT, _DROP = 1, 0  # NF_ACCEPT, NF_DROP
_UNSPECIFIED_FAMILY = 0  # AF_UNSPEC
_BATCH_VERDICT = 3 << 8 | 3  # NFNL_SUBSYS_QUEUE, NFQNL_MSG_VERDICT_BATCH
_REQUEST = 1  # NLM_F_REQUEST
_VERDICT_HEADER = 2  # NFQA_VERDICT_HDR

_MESSAGE = Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence number, port
_FAMILY = Struct("!BBH")  # nfgenmsg: family, version, number of the queue
_ATTRIBUTE = Struct("=HH")  # nlattr: length, type
_VERDICT = Struct("!II")  # nfqnl_msg_verdict_hdr: verdict, id
_ATTRIBUTE_BYTES = _ATTRIBUTE.size + _VERDICT.size
_MESSAGE_BYTES = _MESSAGE.size + _FAMILY.size + _ATTRIBUTE_BYTES


class Verdicts:
    """What was decided about the packets of one queue and not yet sent."""

    def __init__(self, queue: int) -> None:
        """`queue`: its number."""
        self._headers = (
            _MESSAGE.pack(_MESSAGE_BYTES, _BATCH_VERDICT, _REQUEST, 0, 0)
            + _FAMILY.pack(_UNSPECIFIED_FAMILY, 0, queue)
            + _ATTRIBUTE.pack(_ATTRIBUTE_BYTES, _VERDICT_HEADER)
        )
        self._messages: list[bytes] = []
        self._forward: bool | None = None
        """Verdict of the run that is not closed yet; None where there is none."""
        self._last = 0
        """Id of that run's last packet."""

    def give(self, packet_id: int, forward: bool) -> None:
        """Decide about the next packet, in the order in which the kernel handed them out."""
        if forward is not self._forward:
            self._close_run()
            self._forward = forward
        self._last = packet_id

    def take(self) -> bytes:
        """All messages since the last take, for one `send`; empty if there are none."""
        self._close_run()
        self._forward = None
        content = b"".join(self._messages)
        self._messages.clear()
        return content

    def _close_run(self) -> None:
        if self._forward is not None:
            verdict = _ACCEPT if self._forward else _DROP
            self._messages.append(self._headers + _VERDICT.pack(verdict, self._last))
