"""A fleet with a limit for each user, on a simulated network.

The fleet's messages are datagrams of the real codec, numbered by their sessions as the transport
numbers them.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from types import MappingProxyType
from typing import Any

from drld import config
from drld.gossip.wire.message import MAX_CONTENT, NumberedCodec, codec_of
from drld.gossip.wire.messenger import Deliver
from drld.gossip.wire.session import Met
from drld.model import NS_PER_S, Enforcement
from drld.requests.datapath import RequestDatapath
from drld.requests.keyed_limit import Terms
from drld.requests.keyed_limits import KeyedLimits
from drld.requests.model import Answer, Request
from testbed.sim.mailbox import Content, Datagram, Mailbox
from testbed.sim.network import Conditions, Network
from testbed.tcp.clock import Clock

from .good import GOOD

MS = 1_000_000
START_NS = 10**6 * NS_PER_S
SECRET = b"of a fleet"
KEYED = GOOD.replace('"api" }', '"api", per = ["user"] }').replace("100/s", "1/min")
KEYED = KEYED.replace("burst = 200", "burst = 20")


class Socket(Mailbox):
    """The second socket of a limiter; a body crosses it as its bytes."""

    def __init__(self, name: str, clock: Clock, network: Network[Datagram]) -> None:
        super().__init__(name, clock, network)
        self._number = 0
        # No peer knows it before their handshake, as in a real fleet.
        self.restart()

    @property
    def life(self) -> int:
        return incarnation(self._name, self._lives.mine)

    def send(self, peer: str, kind: int, body: Any) -> int | None:
        codec = codec_of(kind)
        assert isinstance(codec, NumberedCodec)
        self._number += 1
        content = codec.encode(body, 0, self._number)
        assert len(content) <= MAX_CONTENT
        super().send(peer, kind, codec.decode_untrusted(content))
        return self._number if self._lives.seal(peer, Content(0, None)).content else None

    def receive(self, deliver: Deliver, refused: Mapping[int, str] = MappingProxyType({})) -> None:
        def met(peer: str, kind: int, body: Any) -> None:
            whole = Met(incarnation(peer, body.life)) if isinstance(body, Met) else body
            deliver(peer, kind, whole)

        super().receive(met, refused)


def incarnation(name: str, life: int) -> int:
    return 1000 * int(name[1:]) + life


class Limiter:
    """One limiter of a fleet."""

    def __init__(self, fleet: Fleet, name: str, text: str) -> None:
        self.fleet = fleet
        self.name = name
        self.socket = Socket(name, fleet.clock, fleet.network)
        self.begin(text)
        fleet.clock.at(fleet.clock.now_ns + fleet.rng.randrange(50 * MS), self.look)

    def begin(self, text: str) -> None:
        """A daemon starts: it knows nothing."""
        terms = Terms(0, SECRET, 50 * MS, len(self.fleet.names))
        self.keyed = KeyedLimits(terms, Random(self.name))
        self.keyed.connect(self.socket, self.name)
        self.datapath = RequestDatapath(Random(self.name), b"callers", keyed=self.keyed)
        self.follow(text)

    def follow(self, text: str, peers: set[str] | None = None) -> None:
        """Take a configuration over."""
        now_ns = self.fleet.clock.now_ns
        limits = config.parse(text, "f").limits
        self.datapath.attach([(it, Enforcement()) for it in limits], now_ns)
        names = (self.fleet.names if peers is None else peers) - {self.name}
        self.socket.update_peers(dict.fromkeys(names))
        self.keyed.configure(names, 50 * MS, SECRET, now_ns)

    def look(self, _: object = None) -> None:
        """Each two milliseconds, as a daemon that is woken by its socket and by rounds."""
        clock = self.fleet.clock
        clock.at(clock.now_ns + 2 * MS, self.look)
        if self.name not in self.fleet.down:
            self.keyed.tick(clock.now_ns)

    def ask(self, user: str, cost: int = 1, **more: Any) -> Answer:
        request = Request("api", {"user": user}, cost, **more)
        return self.datapath.decide(request, self.fleet.clock.now_ns)

    def level(self, user: str) -> float:
        keyed = self.keyed.limits[1]
        return keyed.replica.level(keyed.key(user.encode()), self.fleet.clock.now_ns)


class Fleet:
    """Limiters under virtual time."""

    def __init__(self, size: int, seed: int = 1, text: str = KEYED, **conditions: Any) -> None:
        self.clock = Clock(START_NS)
        self.rng = Random(seed)
        self.network: Network[Datagram] = Network(
            seed, Conditions(**({"delay_ns": 2 * MS} | conditions))
        )
        self.names = {f"l{number}" for number in range(size)}
        self.down: set[str] = set()
        self.limiters = [Limiter(self, name, text) for name in sorted(self.names)]
        self.run(200)

    def run(self, time_ms: int) -> None:
        self.clock.run(self.clock.now_ns + time_ms * MS)

    def ask_in_turn(self, user: str, count: int, every_ms: int = 5) -> int:
        """Requests of one user at limiters in turn; return how many are admitted."""
        admitted = 0
        for number in range(count):
            admitted += self.limiters[number % len(self.limiters)].ask(user).admitted
            self.run(every_ms)
        return admitted
