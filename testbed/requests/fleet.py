"""A fleet of replicas under virtual time, over the simulated network of `testbed.sim`.

Each limiter has a clock of its own, which may be wrong by an offset, and run too fast. Rounds begin
at random phases. A message costs the bytes of its datagrams by the real codec, with IP and UDP
headers. In instant paths (the thesis') a message arrives before the next request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import NamedTuple, TypeAlias

from drld.gossip.wire.message import HEADER, LONG_TAG_SIZE
from drld.requests.buckets.bucket import Bucket
from drld.requests.buckets.delta_codec import KIND, DeltaCodec, Form, parts
from drld.requests.buckets.replica import Message, Replica
from testbed.requests.erlang_terms import term_bytes
from testbed.requests.knowledge import Knowledge
from testbed.sim.network import Conditions, Network
from testbed.tcp.clock import Clock

MS = 1_000_000
START_NS = 1_000_000 * MS
"""Time of the first request by a right clock: no bucket begins at zero."""
_HEADERS = 20 + 8
"""Bytes of the IP and UDP headers."""
_CODEC = DeltaCodec(KIND)

Make: TypeAlias = Callable[[int, list[str]], Replica]
"""Makes a limiter's replica; the arguments are its origin (incarnation) and its peers."""


class Wrong(NamedTuple):
    """How a limiter's clock is wrong."""

    offset_ns: int = 0
    """What it is ahead."""
    drift_ppm: int = 0
    """How much too fast it runs."""


_RIGHT = Wrong()


class Fleet:
    """Limiters `l0`, `l1`, ..., their clocks and their network."""

    def __init__(
        self,
        nodes: int,
        make: Make,
        form: Form,
        interval_ns: int,
        conditions: Conditions,
        *,
        seed: int,
        wrong: Mapping[int, Wrong] | None = None,
        knowledge: Knowledge | None = None,
    ) -> None:
        """`wrong`: the clocks that are; `knowledge` records what limiters are told."""
        self.clock = Clock(START_NS)
        self.network: Network[Message] = Network(seed, conditions)
        self.names = [f"l{number}" for number in range(nodes)]
        self.bytes_sent = 0
        self.payload_sent = 0
        """The bytes without the headers and tags of datagrams."""
        self.term_bytes = 0
        """The bytes of all deltas as Erlang terms."""
        self.messages = 0
        self.last_sent_ns = START_NS
        """Time of the last message, after which no limiter has news to tell."""
        self.log: list[tuple[int, int]] = []
        """Time, ns, and bytes of each message."""
        self._make = make
        self._form = form
        self._interval_ns = interval_ns
        self._wrong = dict(wrong or {})
        self._knowledge = knowledge
        # Streams of their own: what one limiter does is no chance for another.
        self._rngs = [Random(f"rounds {seed} {number}") for number in range(nodes)]
        self._lives = [0] * nodes
        self._index = {name: number for number, name in enumerate(self.names)}
        self.replicas = [self._replica(number) for number in range(nodes)]
        self.down: set[int] = set()
        """Limiters that are dead."""
        for number in range(nodes):
            phase_ns = self._rngs[number].randrange(interval_ns)
            self.clock.at(START_NS + phase_ns, self._round, number)

    def _replica(self, number: int) -> Replica:
        peers = [name for name in self.names if name != self.names[number]]
        return self._make(self.origin(number), peers)

    def origin(self, number: int) -> int:
        """The incarnation of a limiter's present life."""
        return number + 1 + 1000 * self._lives[number]

    def local_ns(self, number: int) -> int:
        """The time by a limiter's own clock."""
        offset_ns, drift_ppm = self._wrong.get(number, _RIGHT)
        passed_ns = self.clock.now_ns - START_NS
        return self.clock.now_ns + offset_ns + passed_ns * drift_ppm // 1_000_000

    def take(self, number: int, user: int) -> bool:
        """A request of one token reaches a limiter; return whether it is admitted."""
        decision, messages = self.replicas[number].take(user, self.local_ns(number))
        for peer, message in messages:
            self._send(number, peer, message)
        return decision.admitted

    def restart(self, number: int, *, copies: bool = True) -> None:
        """A limiter begins another life, without knowledge; its peers send all they know.

        Without `copies` they do not notice, as in the thesis.
        """
        self._lives[number] += 1
        self.replicas[number] = self._replica(number)
        self.down.discard(number)
        if self._knowledge is not None:
            self._knowledge.forgets(number)
        if not copies:
            return
        for other, replica in enumerate(self.replicas):
            if other != number:
                replica.returned(self.names[number])

    def _round(self, number: int) -> None:
        drift_ppm = self._wrong.get(number, _RIGHT).drift_ppm
        interval_ns = self._interval_ns - self._interval_ns * drift_ppm // 1_000_000
        self.clock.at(self.clock.now_ns + interval_ns, self._round, number)
        if number not in self.down:
            rng = self._rngs[number]
            for peer, message in self.replicas[number].round(self.local_ns(number), rng):
                self._send(number, peer, message)

    def _send(self, number: int, peer: str, message: Message) -> None:
        now_ns = self.clock.now_ns
        sizes = [
            len(_CODEC.encode(part, 0, message.number))
            for part in parts(message, self._form, 1, self.origin(number))
        ]
        size = sum(sizes) + len(sizes) * (LONG_TAG_SIZE + _HEADERS)
        self.payload_sent += sum(sizes) - len(sizes) * HEADER.size
        self.bytes_sent += size
        self.term_bytes += term_bytes(message.deltas, self._form)
        self.messages += 1
        self.log.append((now_ns, size))
        if message.deltas:
            self.last_sent_ns = now_ns
        name = self.names[number]
        self.network.send(name, peer, message, now_ns)
        self._arrive(self._index[peer])

    def _arrive(self, number: int) -> None:
        """Deliver what has arrived, and come back for what is under way."""
        name, now_ns = self.names[number], self.clock.now_ns
        for sender, message in self.network.receive(name, now_ns):
            if number not in self.down:
                if self._knowledge is not None:
                    for user, delta in message.deltas.items():
                        self._knowledge.told(number, user, delta)
                local_ns = self.local_ns(number)
                for peer, answer in self.replicas[number].receive(sender, message, local_ns):
                    self._send(number, peer, answer)
        next_ns = self.network.next_ns(name)
        if next_ns is not None:
            self.clock.at(next_ns, self._arrive, number)

    @property
    def settled(self) -> bool:
        """Whether no limiter has news to tell."""
        return all(replica.settled for replica in self.replicas)

    def buckets(self, user: int) -> list[Bucket]:
        """The replicas of a user's bucket."""
        return [replica.buckets[user] for replica in self.replicas if user in replica.buckets]
