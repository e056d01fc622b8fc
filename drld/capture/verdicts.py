"""Netlink messages to the kernel's packet queue: verdicts in batches, and the bytes to copy.

Most of the cost of NFQUEUE is two system calls per packet: one reads the packet, one sends its
verdict. Batches save the second. A batch verdict (NFQNL_MSG_VERDICT_BATCH, Linux 3.1) holds for
every waiting packet up to an id. One `send` may carry several messages, which the kernel executes
in order. The kernel delivers packets in the order of their ids. So a run of equal verdicts is one
message, and any mixture is one `send`. A rewritten packet has a message of its own, with its new
bytes.
"""

from __future__ import annotations

from struct import Struct

_ACCEPT, _DROP = 1, 0  # NF_ACCEPT, NF_DROP
_UNSPECIFIED_FAMILY = 0  # AF_UNSPEC
_BATCH_VERDICT = 3 << 8 | 3  # NFNL_SUBSYS_QUEUE, NFQNL_MSG_VERDICT_BATCH
_VERDICT_ONE = 3 << 8 | 1  # NFQNL_MSG_VERDICT
_CONFIGURE = 3 << 8 | 2  # NFQNL_MSG_CONFIG
_REQUEST = 1  # NLM_F_REQUEST
_VERDICT_HEADER, _PAYLOAD = 2, 10  # NFQA_VERDICT_HDR, NFQA_PAYLOAD
_PARAMETERS = 2  # NFQA_CFG_PARAMS
_COPY_PACKET = 2  # NFQNL_COPY_PACKET

_MESSAGE = Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence number, port
_FAMILY = Struct("!BBH")  # nfgenmsg: family, version, number of the queue
_ATTRIBUTE = Struct("=HH")  # nlattr: length, type
_VERDICT = Struct("!II")  # nfqnl_msg_verdict_hdr: verdict, id
_COPYING = Struct("!IB")  # nfqnl_msg_config_params: bytes, mode


def _attribute(kind: int, content: bytes) -> bytes:
    header = _ATTRIBUTE.pack(_ATTRIBUTE.size + len(content), kind)
    return header + content + bytes(-len(content) % 4)


def _message(kind: int, queue: int, attributes: bytes) -> bytes:
    size = _MESSAGE.size + _FAMILY.size + len(attributes)
    header = _MESSAGE.pack(size, kind, _REQUEST, 0, 0)
    return header + _FAMILY.pack(_UNSPECIFIED_FAMILY, 0, queue) + attributes


def copying(queue: int, size: int) -> bytes:
    """The message that sets the bytes to copy of each packet, from now on."""
    return _message(_CONFIGURE, queue, _attribute(_PARAMETERS, _COPYING.pack(size, _COPY_PACKET)))


class Verdicts:
    """Verdicts on the packets of one queue that have not been sent yet."""

    def __init__(self, queue: int) -> None:
        """`queue`: the queue's number."""
        self._queue = queue
        placeholder = _attribute(_VERDICT_HEADER, bytes(_VERDICT.size))
        self._headers = _message(_BATCH_VERDICT, queue, placeholder)[: -_VERDICT.size]
        self._messages: list[bytes] = []
        self._forward: int | None = None
        """Verdict of the open run; None if there is none."""
        self._last = 0
        """Id of the last packet of the open run."""

    def give(self, packet_id: int, forward: int) -> None:
        """Add the verdict on the next packet, in the order of delivery."""
        if forward != self._forward:
            self._close_run()
            self._forward = forward
        self._last = packet_id

    def rewrite(self, packet_id: int, content: bytes) -> None:
        """Forward the next packet with these bytes in place of its own."""
        self._close_run()
        self._forward = None
        header = _attribute(_VERDICT_HEADER, _VERDICT.pack(_ACCEPT, packet_id))
        self._messages.append(
            _message(_VERDICT_ONE, self._queue, header + _attribute(_PAYLOAD, content))
        )

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
