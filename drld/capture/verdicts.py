"""Messages to the kernel's packet queue: verdicts, many in one system call, and how much to copy.

Most of what NFQUEUE costs is two system calls a packet: one that fetches it, one that gives its
verdict. The second need not be: a batch verdict (NFQNL_MSG_VERDICT_BATCH, Linux 3.1) holds for
every waiting packet up to an id, and one `send` may carry several messages, which the kernel
carries out in their order. The kernel numbers packets and hands them out in one order, so a run
of equal verdicts is one message, and any mixture of them is one `send`. A packet that was
rewritten has a message of its own among them, with its new bytes.
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
_COPYING = Struct("!IB")  # nfqnl_msg_config_params: bytes, what


def _attribute(kind: int, content: bytes) -> bytes:
    header = _ATTRIBUTE.pack(_ATTRIBUTE.size + len(content), kind)
    return header + content + bytes(-len(content) % 4)


def _message(kind: int, queue: int, attributes: bytes) -> bytes:
    size = _MESSAGE.size + _FAMILY.size + len(attributes)
    header = _MESSAGE.pack(size, kind, _REQUEST, 0, 0)
    return header + _FAMILY.pack(_UNSPECIFIED_FAMILY, 0, queue) + attributes


def copying(queue: int, size: int) -> bytes:
    """A message: copy so many bytes of each packet from now on."""
    return _message(_CONFIGURE, queue, _attribute(_PARAMETERS, _COPYING.pack(size, _COPY_PACKET)))


class Verdicts:
    """What was decided about the packets of one queue and not yet sent."""

    def __init__(self, queue: int) -> None:
        """`queue`: its number."""
        self._queue = queue
        placeholder = _attribute(_VERDICT_HEADER, bytes(_VERDICT.size))
        self._headers = _message(_BATCH_VERDICT, queue, placeholder)[: -_VERDICT.size]
        self._messages: list[bytes] = []
        self._forward: int | None = None
        """Verdict of the run that is not closed yet; None where there is none."""
        self._last = 0
        """Id of that run's last packet."""

    def give(self, packet_id: int, forward: int) -> None:
        """Decide about the next packet, in the order in which the kernel handed them out.

        `forward`: a truth value.
        """
        if forward != self._forward:
            self._close_run()
            self._forward = forward
        self._last = packet_id

    def rewrite(self, packet_id: int, content: bytes) -> None:
        """Forward the next packet with these bytes in the place of all that it has."""
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
