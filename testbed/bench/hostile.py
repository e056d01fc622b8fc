"""The cost of a hostile datagram: forged, replayed, or from an unknown address.

The engine has its real gossip socket on loopback and a datapath in memory. It gets `PER_TICK`
datagrams of a kind before each tick. The figure is the processor time of the tick, with the
kernel's for receiving, less that of a tick without datagrams. It is also given relative to true
updates of the same round, as times depend on the host and its load.

An attacker who can send from a peer's address needs no key for this, only recorded datagrams for
replays. In a fleet without keys, the attacker can also forge HELLOs.
"""

from __future__ import annotations

import socket
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from random import Random

from drld import config
from drld.capture.plane import packets
from drld.engine import Engine
from drld.errors import WireError
from drld.gossip.fabrics.tree_ranks import Role
from drld.gossip.fabrics.tree_update import TREE, TreeUpdate
from drld.gossip.transport import Transport
from drld.gossip.wire.channel import Channel
from drld.gossip.wire.control_codec import NO_END, Control, End, Hello, Kind
from drld.gossip.wire.datagram_tag import HELLO, Tagger, session_secret
from drld.gossip.wire.keyring import KeyRing
from drld.gossip.wire.message import LONG_TAG_SIZE, MAX_DATAGRAM, codec_of
from drld.gossip.wire.session import Session
from drld.gossip.wire.update_codec import TAG_SIZE
from drld.model import Quantity
from testbed.bench.lanes import Setting
from testbed.bench.summary import Outcome, Row
from testbed.errors import MeasurementError
from testbed.sim.datapath import MemoryDatapath

RATIO, TIME = ("ratio to a true update", ""), ("processor time", "us a datagram")
PER_TICK = 500
"""10,000 a second, at 50 ms."""
_TICK_NS = 50_000_000
_HOST, _VICTIM, _PEER = "127.0.0.1", "victim", "peer"
_FABRIC = "tree"
_KEY = bytes(range(16))
_RING = KeyRing({1: _KEY}, use=1)
_CONFIG = f"""
[limiter]
name = "{_VICTIM}"
listen = "{_HOST}:1"
[gossip]
fabric = "{_FABRIC}"
[[peer]]
name = "{_PEER}"
address = "{_HOST}:2"
[[limit]]
id = 1
name = "all"
rate = "10mbit"
burst = "75kB"
match = {{ out = "eth0" }}
"""
_PATIENCE_S = 5.0
_TRUE, _FOREIGN = "a true update", "from an address of no peer"
"""The kinds of datagrams to compare with, and of a stranger."""


def _update(sequence: int) -> TreeUpdate:
    """An update that the victim counts."""
    return TreeUpdate(1, sequence, Quantity.WEIGHT, True, 1.0, Role.PARENT, members=1)


class _Scene:
    """A limiter, a sender at its peer's address, and a stranger."""

    def __init__(self, victim: Transport, peer: socket.socket, stranger: socket.socket) -> None:
        self.victim = victim
        self._peer = peer
        self._stranger = stranger
        self._rng = Random(1)
        self._now_ns = 0
        self._sequence = 0
        victim.update_peers({_PEER: peer.getsockname()})
        spec = config.parse(_CONFIG, "hostile")
        self._engine = Engine(spec, [packets(MemoryDatapath())], victim, Random(1))
        self._engine.start(0)
        self._channel = Channel(_PEER, _VICTIM, Session(End(1, 1), b"peer"), _RING)
        self._tagger = Tagger(session_secret(_KEY, _PEER, _VICTIM), HELLO, LONG_TAG_SIZE)
        self._meet()
        self._old = self._updates()
        probe = Control(Kind.PROBE, 0, 0, 0)
        self._probes = [self._channel.seal(Kind.PROBE, probe) for _ in range(60)]
        self._hello = self._channel.greet(-2)
        self.tick_s([*self._old, *self._probes])

    def _meet(self) -> None:
        """Make a session, as two limiters do."""
        answer = self._channel.greet(0)
        while not (self._channel.session.open and self.victim.met):
            self.tick_s([answer])
            try:
                opened = self._channel.open_untrusted(self._peer.recv(MAX_DATAGRAM), 0)
            except WireError:
                continue
            answer = opened.answer

    def kinds(self) -> dict[str, Callable[[], Sequence[bytes | None]]]:
        """Makers of the datagrams of each kind, true updates first."""
        body = TREE.encode([_update(7)], 1)
        each, random = range(PER_TICK), self._rng.randbytes
        return {
            _TRUE: self._updates,
            "a forged update": lambda: [body + random(TAG_SIZE) for _ in each],
            "a replayed update": lambda: self._old,
            "a replayed probe": lambda: [self._probes[index % 60] for index in each],
            "a forged HELLO": lambda: [self._made_up()[:-1] + random(1) for _ in each],
            "a replayed HELLO": lambda: [self._hello] * PER_TICK,
            "a made-up HELLO, where there are no keys": lambda: [self._made_up() for _ in each],
            _FOREIGN: self._updates,
        }

    def _updates(self) -> list[bytes | None]:
        """The sealed updates of a true peer for one tick."""
        first, self._sequence = self._sequence, self._sequence + PER_TICK
        return [
            self._channel.seal(TREE.kind, [_update(number)])
            for number in range(first, self._sequence)
        ]

    def _made_up(self) -> bytes:
        """A HELLO of an invented life with a valid tag, as in a fleet without keys."""
        bits = self._rng.getrandbits
        hello = Hello(End(bits(64) | 1, 1), NO_END, bits(64) | 1, 0)
        return self._tagger.seal(codec_of(Kind.HELLO).encode(hello, 1, 0))

    def tick_s(self, datagrams: Sequence[bytes | None], kind: str = "") -> float:
        """Processor time of a tick with these datagrams."""
        sender = self._stranger if kind == _FOREIGN else self._peer
        for datagram in datagrams:
            if datagram is not None:
                sender.sendto(datagram, self.victim.address)
        self._now_ns += _TICK_NS
        began_s = time.process_time()
        self._engine.tick(self._now_ns)
        return time.process_time() - began_s


async def measure(setting: Setting) -> Outcome:
    """Measure all kinds of datagrams in turn, round by round."""
    times: dict[str, list[float]] = {}
    with (
        closing(Transport((_HOST, 0), _VICTIM, {}, _RING)) as victim,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger,
    ):
        for made in (peer, stranger):
            made.bind((_HOST, 0))
            made.settimeout(_PATIENCE_S)
        scene = _Scene(victim, peer, stranger)
        for _ in range(setting.choose(40, 8)):
            nothing_s = statistics.median(scene.tick_s([]) for _ in range(5))
            for kind, make in scene.kinds().items():
                taken_s = scene.tick_s(make(), kind) - nothing_s
                times.setdefault(kind, []).append(taken_s / PER_TICK)
        rejected, floods = victim.rejected, victim.floods
    if floods or min(rejected[reason] for reason in ("tag", "replayed", "address")) < PER_TICK:
        raise MeasurementError(f"not all came: {rejected}, {floods} floods")
    rows = []
    for kind, taken in times.items():
        ratios = [mine / theirs for mine, theirs in zip(taken, times[_TRUE], strict=True)]
        rows += [Row("", kind, *RATIO, ratios), Row("", kind, *TIME, [1e6 * it for it in taken])]
    return Outcome(rows, RATIO[0])
