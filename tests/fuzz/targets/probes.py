"""Probes and a hostile peer with the key: few messages answer its messages, and nothing breaks.

An input is a script of `Control` messages as they are on the wire, each with its sender, of new
sessions, and of passing time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

from drld.errors import WireError
from drld.gossip.health.broadcast_queue import subject
from drld.gossip.health.config_digest import MAX_FOUND, ConfigDigest, Selector
from drld.gossip.health.probe_times import ProbeTimes
from drld.gossip.health.probes import MAX_ANSWERS, MAX_ERRANDS, Probes
from drld.gossip.wire.control_codec import (
    MAX_RUMOURS,
    Control,
    Kind,
    Rumour,
    State,
)
from drld.model import NS_PER_S
from drld.shared_settings import shared_settings
from drld.spec import ProbeSpec
from tests.factories import gossip_spec, policy
from tests.fuzz.targets.base import Target
from tests.wire import decode_control_untrusted, encode_control

_ME, _PEERS = "a", ("b", "c", "d", "e")
_TICK_NS = NS_PER_S // 20
_TIMES = ProbeTimes.of(ProbeSpec(), len(_PEERS) + 1, _TICK_NS, _TICK_NS)
_LIMITS = [policy(id=number) for number in (1, 2, 65535)]
_MOST_STEPS = 64
_OWN_IN_A_TICK = 3 * (len(_PEERS) + 4)
"""Messages that a limiter may have to send of itself: probes that are due, their repetition, those
that helpers are asked for, a question."""
SAY, MEET, STIR, TICK, WAIT, COMPARE = range(6)


class _World:
    def __init__(self) -> None:
        config_digest = ConfigDigest(shared_settings(_LIMITS, gossip_spec()), NS_PER_S)
        self.probes = Probes(_ME, 1, _PEERS, _TIMES, config_digest)
        self._rng = Random(1)
        self._now_ns = 0
        self._heard: Counter[str] = Counter()
        """Since the last tick."""
        self._met = 0

    def say(self, peer: str, message: Control) -> None:
        self._heard[peer] += 1
        self.probes.receive(peer, message, self._now_ns)

    def meet(self, peer: str, life: int) -> None:
        self._met += 1
        self.probes.meet(peer, life, self._now_ns)

    def tick(self, ticks: int) -> None:
        self._now_ns += ticks * _TICK_NS
        said = self.probes.tick(self._now_ns, self._rng)
        for _, message in said:
            assert decode_control_untrusted(encode_control(message, 1))[0] == message
        asked = sum(min(count, MAX_ANSWERS) for count in self._heard.values())
        # A request is answered and run, and the errand comes home; a meeting repeats what waits.
        pending = MAX_ERRANDS + _OWN_IN_A_TICK
        assert len(said) <= 2 * asked + sum(self._heard.values()) + pending * (1 + self._met)
        assert len(self.probes._pending) <= pending * (_TIMES.patience + 1)
        assert 0 <= self.probes.awareness <= _TIMES.patience
        assert 0 <= self.probes.counter < 1 << 32
        assert len(self.probes._broadcasts._queue) <= len(_PEERS) + 1
        found = self.probes.config_digest.disagreements()
        assert all(len(limits) <= MAX_FOUND + 1 for limits in found.values())
        self._heard.clear()
        self._met = 0


def check(data: bytes) -> bool:
    """Play a script; whether a message was taken in."""
    world = _World()
    script = iter(data)
    taken = False
    for step, _ in zip(script, range(_MOST_STEPS), strict=False):
        action, peer, argument = step & 7, _PEERS[step >> 3 & 3], step >> 5
        if action == SAY:
            size = next(script, 0) % 64 + 5 * next(script, 0)
            raw = bytes(byte for byte, _ in zip(script, range(size), strict=False))
            try:
                message, _ = decode_control_untrusted(raw)
            except WireError:
                continue
            if isinstance(message, Control):
                taken = True
                for _ in range(1 + 4 * argument):
                    world.say(peer, message)
        elif action == MEET:
            world.meet(peer, 1 + argument)
        elif action == STIR:
            world.probes.gossip_came(peer)
        elif action == TICK:
            world.tick(1)
        elif action == WAIT:
            world.tick(20 * argument)
        elif action == COMPARE:
            selector = Selector.of(_number(script))
            world.probes.config_digest.compare(peer, selector, next(script, 0))
    world.tick(1)
    return taken


def _number(script: Iterator[int]) -> int:
    return int.from_bytes([next(script, 0) for _ in range(4)], "big")


def seeds() -> list[bytes]:
    """All peers are met, ask and answer, and spread rumours about others and this limiter."""
    met = bytes(MEET | peer << 3 | 1 << 5 for peer in range(len(_PEERS)))
    said = []
    for kind in (Kind.PROBE, Kind.ACK, Kind.PROBE_REQUEST):
        for about in (_ME, "b", "c"):
            for state, accusers in ((State.SUSPECT, 5), (State.DEAD, 0), (State.LEFT, 0)):
                counter = 2**32 - 1 if state is State.DEAD else 0
                rumour = Rumour(subject(about), 2, counter, state, accusers)
                message = Control(kind, 1 << 21, subject(_ME), 3, (rumour,) * MAX_RUMOURS)
                said.append(encode_control(message))
    return [
        met + bytes([SAY | 1 << 3, len(each) % 5, len(each) // 5]) + each + bytes([TICK, WAIT | 64])
        for each in said
    ]


TARGET = Target(check, seeds, max_bytes=1200)
