"""One limiter with probes, and peers that answer as a test says."""

from __future__ import annotations

from random import Random

from drld.gossip.health.broadcast_queue import subject
from drld.gossip.health.config_digest import ConfigDigest, Selector
from drld.gossip.health.probe_times import ProbeTimes
from drld.gossip.health.probes import Probes
from drld.gossip.wire.control_codec import Control, Kind, Rumour, State
from drld.model import NS_PER_S
from drld.spec import ProbeSpec

TICK = NS_PER_S // 20
TIMES = ProbeTimes.of(ProbeSpec(), 4, TICK, TICK)
PEERS = ("b", "c", "d")
LIVES = {"b": 2, "c": 3, "d": 4}


def config_digest(*ids: int) -> ConfigDigest:
    return ConfigDigest(dict.fromkeys(ids, b""), NS_PER_S)


class Bench:
    """Limiter `a` and its messages; it has met the peers `met`, of which `answering` answer."""

    def __init__(self, met: tuple[str, ...] = PEERS, peers: tuple[str, ...] = PEERS) -> None:
        self.probes = Probes("a", 1, peers, TIMES, config_digest(1))
        self.rng = Random(1)
        self.now = 0
        self.said: list[tuple[str, Control]] = []
        self.answering: set[str] = set()
        for peer in met:
            self.probes.meet(peer, LIVES[peer], 0)

    def tick(self, ns: int = TICK) -> list[tuple[str, Control]]:
        self.now += ns
        said = self.probes.tick(self.now, self.rng)
        self.said += said
        for peer, message in said:
            if peer in self.answering and message.kind is not Kind.ACK:
                self.answer(peer, message)
        return said

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds * NS_PER_S / TICK)):
            self.tick()

    def until(self, kind: Kind) -> tuple[str, Control]:
        for _ in range(1000):
            for said in self.tick():
                if said[1].kind is kind:
                    return said
        raise AssertionError(kind)

    def hear(self, peer: str, kind: Kind, sequence: int, target: str, *rumours: Rumour) -> None:
        digest = self.probes.config_digest.digest(Selector.of(sequence))
        message = Control(kind, sequence, subject(target), digest, rumours)
        self.probes.receive(peer, message, self.now)

    def answer(self, peer: str, message: Control, *rumours: Rumour) -> None:
        self.hear(peer, Kind.ACK, message.sequence, peer, *rumours)


def answered() -> Bench:
    """A limiter whose peers have all answered for three seconds, and still answer."""
    bench = Bench()
    bench.answering = set(PEERS)
    bench.run(3)
    return bench


def suspecting_d() -> Bench:
    """A limiter whose peer `d` falls silent and is accused by all, at this moment."""
    bench = answered()
    bench.answering = {"b", "c"}
    bench.probes.peer_states.accuse("d", 63, bench.now)
    return bench


def alive(name: str, counter: int = 0) -> Rumour:
    return Rumour(subject(name), LIVES.get(name, 1), counter, State.ALIVE)
