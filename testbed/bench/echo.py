"""Stand-ins for the peers of a daemon: they send its updates back.

So each peer is connected, and a daemon gets as many updates as it sends, as in a real fleet, at a
small part of the cost. In push-sum an echo returns the mass; in a mesh each peer seems to have the
daemon's demand.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from dataclasses import replace
from typing import Any

from drld.gossip.transport import Transport
from drld.gossip.wire.session import Met
from drld.model import Update
from testbed import child

PORT = 7946
_ROUND_S = 0.02
"""Time between a peer's answers. Real peers send at intervals, too, and waking up for every
datagram would take processor time from the daemon."""
_TOKEN = 2.0**-10
"""A weight so small that it only shows that the peer is connected."""


class _Peer:
    """One stand-in."""

    def __init__(self, name: str, address: str, daemon: tuple[str, str], fabric: str) -> None:
        self._daemon, host = daemon
        self._transport = Transport((address, PORT), name, {self._daemon: (host, PORT)})
        self._transport.set_fabric(fabric)
        self._sequence: dict[int, itertools.count[int]] = defaultdict(itertools.count)

    def answer(self) -> None:
        """Send all received updates back."""
        answers = []
        for _, message in self._transport.receive():
            if isinstance(message, Met):
                self._sequence.clear()
            elif isinstance(message, Update):
                answers.append(
                    replace(
                        message,
                        sequence=next(self._sequence[message.limit_id]),
                        weight=message.weight or _TOKEN,
                    )
                )
        if answers:
            self._transport.send(self._daemon, answers)


def work() -> None:
    """Run the stand-ins of a job."""
    job: dict[str, Any] = child.receive()
    daemon = (job["daemon"], job["address"])
    peers = [_Peer(name, address, daemon, job["fabric"]) for name, address in job["peers"].items()]
    child.send(ready=True)
    while True:
        for peer in peers:
            peer.answer()
        time.sleep(_ROUND_S)


if __name__ == "__main__":
    child.main(work)
