"""The broadcast mesh: every limiter tells every other its own value in each round.

Paper, section 3.1: "the simplest form of communication fabric is a broadcast mesh. While fast and
robust, a full mesh is also extremely bandwidth-intensive (requiring O(N2) update messages per
estimate interval)".

Theory of operation. Each limiter keeps the newest value of each origin; the sum over the connected
ones is the remote demand. Loss and reordering only make a value older, never wrong: the next update
replaces it. A peer that is no longer connected (`drld.gossip.membership`) counts zero, and so does
one whose value was not repeated for as long: who wants nothing stops saying so after
`QUIET_ROUNDS`, and who wants something repeats it in each round.

On the wire the value is the sender's own, in the limit's quantity; the weight is 1 if the sender
hears the receiver and 0 if not; the epoch is 0 and ignored.

Invariant: without loss and delay, remote is exactly the sum of the others' values as rounded to
float32, one interval old at most.
"""

from __future__ import annotations

from collections.abc import Sequence

from drld.gossip.base import QUIET_ROUNDS, Fabric
from drld.gossip.link import Link
from drld.gossip.wire import to_float32
from drld.model import GlobalView, Update


class _Origin(Link):
    """A peer and the newest value it told."""

    __slots__ = ("value", "value_ns")

    def __init__(self) -> None:
        super().__init__()
        self.value = 0.0
        self.value_ns = 0


class Mesh(Fabric[_Origin]):
    """Every limiter to every limiter."""

    @staticmethod
    def fanout(branching: int) -> int | None:  # noqa: ARG004 - of the interface
        """Everybody."""
        return None

    def _begin(self) -> None:
        self._zeros = QUIET_ROUNDS
        """Rounds in which the own value was zero."""
        self._others_want = False
        """Whether there was a remote demand at the last view, or may be since."""

    def _new_link(self) -> _Origin:
        return _Origin()

    @property
    def quiet(self) -> bool:
        """See `Fabric.quiet`."""
        return self._zeros >= QUIET_ROUNDS and not self._others_want

    def publish(
        self, value: float, targets: Sequence[str], now_ns: int
    ) -> list[tuple[str, Update]]:
        """Tell everybody."""
        if value:
            self._zeros = 0
        elif self._zeros < QUIET_ROUNDS:
            self._zeros += 1
        else:
            return []
        rounded = to_float32(value)
        return [
            (
                peer,
                Update(
                    limit_id=self.limit_id,
                    sequence=self._link(peer).take_sequence(),
                    quantity=self.quantity,
                    epoch=0,
                    value=rounded,
                    weight=1.0 if self.membership.fresh(peer, now_ns) else 0.0,
                ),
            )
            for peer in targets
        ]

    def receive(self, peer: str, update: Update, now_ns: int) -> None:
        """Keep the value if it is the newest of its origin."""
        if update.quantity is not self.quantity or update.value < 0:
            self._reject(peer, update)
            return
        link = self._link(peer)
        if self._accept(peer, link, update, now_ns) is not None:
            link.value = update.value
            link.value_ns = now_ns
            self._others_want |= update.value > 0

    def view(self, now_ns: int) -> GlobalView:
        """The sum over the connected limiters; its age is that of the oldest value in it."""
        connected = self._connected(now_ns)
        oldest_ns = now_ns - self.membership.timeouts.silence_ns
        remote = 0.0
        age_ns: int | None = None
        for peer, link in self._links.items():
            if link.value and link.value_ns >= oldest_ns and peer in connected:
                remote += link.value
                age_ns = max(age_ns or 0, now_ns - link.value_ns)
        self._others_want = remote > 0
        if age_ns is None and connected:
            age_ns = self.membership.age_ns(now_ns)
        return GlobalView(remote=remote, connected=connected, age_ns=age_ns)
