"""The order in which a limiter probes its peers: SWIM's shuffled round robin.

Every present peer has its turn before any of them has another one. Absent peers have an order of
their own. A peer is *absent* if it is dead, has left, or was never heard of and did not answer.
"""

from __future__ import annotations

from collections.abc import Collection
from random import Random

from drld.gossip.health.peer_states import PeerStates
from drld.gossip.wire.control_codec import State

_PRESENT = (State.ALIVE, State.SUSPECT)


class ProbeTurns:
    """The turns of all peers."""

    def __init__(self, peer_states: PeerStates) -> None:
        self._peer_states = peer_states
        self._peers: tuple[str, ...] = ()
        self._present: list[str] = []
        """Peers without a turn yet in this order of the present ones; the next one is the last."""
        self._absent: list[str] = []
        """Peers without a turn yet in this order of the absent ones; the next one is the last."""
        self._silent: set[str] = set()
        """Peers that were never heard of, and did not answer a probe."""

    def set_peers(self, peers: Collection[str]) -> None:
        """Replace the peers; new ones have their turn in the present order, if there is one."""
        kept = set(peers) & set(self._peers)
        self._peers = tuple(sorted(peers))
        new = [peer for peer in self._peers if peer not in kept]
        self._present = new + [peer for peer in self._present if peer in kept] if kept else []
        self._absent = [peer for peer in self._absent if peer in kept]
        self._silent &= kept

    def hear(self, peer: str) -> None:
        """A message or a handshake came from a peer."""
        self._silent.discard(peer)

    def miss(self, peer: str) -> None:
        """A peer that was never heard of did not answer a probe."""
        self._silent.add(peer)

    def is_present(self, peer: str) -> bool:
        """Whether a peer is present."""
        state = self._peer_states.state(peer)
        return state in _PRESENT or (state is None and peer not in self._silent)

    def next_present(self, rng: Random) -> str | None:
        """The present peer whose turn it is; None: there is none."""
        return self._next(self._present, True, rng)

    def next_absent(self, rng: Random) -> str | None:
        """The absent peer whose turn it is; None: there is none."""
        return self._next(self._absent, False, rng)

    def _next(self, order: list[str], present: bool, rng: Random) -> str | None:
        for _ in range(2):
            while order:
                peer = order.pop()
                if self.is_present(peer) is present:
                    return peer
            order += [peer for peer in self._peers if self.is_present(peer) is present]
            rng.shuffle(order)
        return None
