"""A loop of the netfilterqueue library that only accepts every packet."""

from __future__ import annotations

import sys

from netfilterqueue import COPY_PACKET, NetfilterQueue, Packet

from testbed import child


def _accept(packet: Packet) -> None:
    packet.accept()


def work() -> None:
    """Arguments: queue, its length in packets, bytes copied of each packet."""
    number, waiting, copied = map(int, sys.argv[1:])
    queue = NetfilterQueue()
    queue.bind(number, _accept, waiting, COPY_PACKET, copied)
    child.send(ready=True)
    queue.run()


if __name__ == "__main__":
    child.main(work)
