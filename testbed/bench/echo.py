"""Stand-ins for the peers of a daemon: they send its updates back.

So each peer is connected, and a daemon gets as many updates as it sends, as in a real fleet, at a
small part of the cost. In a mesh each peer seems to have the daemon's demand. In push-sum an echo
returns the mass.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from dataclasses import replace
from typing import Any

from drld.gossip.fabrics import FABRICS
from drld.gossip.transport import Transport
from drld.gossip.wire.session import Met
from drld.gossip.wire.update_codec import MAX_UPDATES
from drld.model import Update
from testbed import child

PORT = 7946
_ROUND_S = 0.02
"""Time between a peer's answers. Real peers send at intervals, too, and waking up for every
datagram would take processor time from the daemon."""


class _Peer:
    """A stand-in for one peer of the daemon."""

    def __init__(self, name: str, address: str, daemon: tuple[str, str], fabric: str) -> None:
        self._daemon, host = daemon
        self._transport = Transport((address, PORT), name, {self._daemon: (host, PORT)})
        self._kind = FABRICS[fabric].kind
        self._answers: list[Update] = []
        self._sequence: dict[int, itertools.count[int]] = defaultdict(itertools.count)

    def answer(self) -> None:
        """Send all received updates back."""
        self._transport.receive(self._take)
        answers, self._answers = self._answers, []
        for start in range(0, len(answers), MAX_UPDATES):
            self._transport.send(self._daemon, self._kind, answers[start : start + MAX_UPDATES])

    def _take(self, _: str, kind: int, body: Any) -> None:
        if isinstance(body, Met):
            self._sequence.clear()
        elif kind == self._kind:
            for update in body:
                number = next(self._sequence[update.limit_id])
                self._answers.append(replace(update, hears=True, sequence=number))


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
