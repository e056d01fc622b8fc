"""Which limiter leads, and when it tells the floors of keys (`ledger_floor`).

Of the limiters in contact, the one whose name comes first leads. Limiters that see other peers may
follow different leaders for a time: a key's level is then that of the leader last heard.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from drld.requests.buckets.bucket import Bucket, Key, News

ROUNDS = 200
"""The rounds in which the leader tells the floors of all keys in use. A limiter that begins to lead
waits for as many rounds, in which its peers tell it what it lacks. Clocks that differ by 100 parts
of a million move floors apart by 1 ms in 10 s, which a delay does as well."""
MOST_CELLS = 8000
"""The most cells that the floors of a round have, for all peers together: some 10 ms of work. With
a floor come up to as many cells as there are limiters. Where floors have more, a turn takes more
rounds."""


class Leading:
    """The turns of one limiter's keys, while it leads."""

    def __init__(self, name: str | None, peers: Collection[str]) -> None:
        """`name` is the limiter's name among those of its peers; None: no limiter leads."""
        self._name = name
        self._keys: list[Key] = []
        """The keys that remain for these rounds."""
        self._rounds = ROUNDS
        """The rounds that remain for them."""
        self.meet(peers)

    def meet(self, peers: Collection[str]) -> None:
        """Note the peers in contact from now on."""
        self.leader = None if self._name is None else min((self._name, *peers))
        """The name of the limiter that leads."""
        self._most = max(MOST_CELLS // ((len(peers) + 1) * max(len(peers), 1)), 1)
        """The most floors of a round."""

    def next_floors(self, rows: Mapping[Key, Bucket]) -> list[tuple[Key, News]]:
        """Return the keys whose floors this limiter tells in this round, and the news of these.

        `rows` are those in use now. It lists their keys once in `ROUNDS`, or when all are told.
        """
        if self._name is None or self.leader != self._name:
            self._keys, self._rounds = [], ROUNDS
            return []
        count = min(-(-len(self._keys) // self._rounds), self._most)
        turn, self._keys = self._keys[:count], self._keys[count:]
        self._rounds = max(self._rounds - 1, 1 if self._keys else 0)
        if not self._rounds:
            self._keys, self._rounds = [*rows], ROUNDS
        return [(key, floor) for key in turn if key in rows and (floor := rows[key].floor())]
