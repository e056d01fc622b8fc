"""A loop of the netfilterqueue library that accepts every packet, and nothing else."""

from __future__ import annotations

import sys

from netfilterqueue import COPY_PACKET, NetfilterQueue, Packet

from testbed import child


def _accept(packet: Packet) -> None:
    packet.accept()


def work() -> None:
    """Queue, packets that may wait, bytes that are copied: the arguments."""
    number, waiting, copied = map(int, sys.argv[1:])
    queue = NetfilterQueue()
    queue.bind(number, _accept, waiting, COPY_PACKET, copied)
    child.send(ready=True)
    queue.run()


if __name__ == "__main__":
    child.main(work)
