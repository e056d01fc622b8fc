"""Two limiters with a key, and an attacker without it between them: no forgery is ever believed.

An input is a script, byte by byte. A limiter sends, a datagram is delivered again or in another
form, or a limiter begins a new life.
"""

from __future__ import annotations

from drld.errors import WireError
from drld.gossip.fabrics.mesh_update import MESH
from drld.gossip.wire.channel import Channel
from drld.gossip.wire.control_codec import Control, End, Kind
from drld.gossip.wire.keyring import KeyRing
from drld.gossip.wire.session import Session
from tests.fuzz.targets.base import Target
from tests.wire import mesh

RING = KeyRing({1: bytes(range(16))}, use=1, tag_size=16)
REASONS = {
    *("length", "version", "kind", "key", "limit", "value", "rest", "weight", "members"),
    *("reserved", "rumour", "tag", "session", "replayed", "late", "hasty"),
}
_NAMES = ("a", "b")
_MOST_STEPS = 64
UPDATE, CONTROL, GREET, AGAIN, CHANGED, RAW, TURN, NEW_LIFE = range(8)


class _World:
    def __init__(self) -> None:
        self._lives = [0, 0]
        self._turn = 0
        self.channels = [self._channel(0), self._channel(1)]
        self.said: list[tuple[int, bytes]] = []
        """The receiver and the bytes of each datagram that any end with the key has sent."""
        self._genuine: set[tuple[int, bytes]] = set()
        self._controls: set[tuple[int, int, bytes]] = set()
        self.updates = 0

    def _channel(self, side: int) -> Channel:
        self._lives[side] += 1
        session = Session(End(self._lives[side], 1), bytes([side, self._lives[side]]))
        return Channel(_NAMES[side], _NAMES[1 - side], session, RING)

    def restart(self, side: int) -> None:
        self.channels[side] = self._channel(side)

    def next_turn(self) -> None:
        self._turn += 1

    def greet(self, side: int) -> None:
        self.send(1 - side, self.channels[side].greet(self._turn))

    def send(self, to: int, datagram: bytes | None) -> None:
        """Record and deliver a datagram, and then its answers."""
        for _ in range(8):
            if datagram is None:
                return
            self.said.append((to, datagram))
            self._genuine.add((to, datagram))
            datagram, to = self.deliver(to, datagram), 1 - to
        raise AssertionError("they do not stop answering each other")

    def send_answer(self, to: int, answer: bytes | None) -> None:
        """Record and deliver the answer of `to` to a datagram of a stranger."""
        self.send(1 - to, answer)

    def deliver(self, to: int, datagram: bytes) -> bytes | None:
        """The receiver's answer; any end must have sent what the receiver believes."""
        channel = self.channels[to]
        try:
            opened = channel.open_untrusted(datagram, self._turn)
        except WireError as error:
            reason = error.reason
        else:
            assert (to, datagram) in self._genuine, datagram.hex()
            self._believe(to, opened.kind, opened.body, datagram)
            return opened.answer
        assert reason in REASONS
        return channel.answer_refused(datagram, reason, self._turn) if datagram else None

    def _believe(self, to: int, kind: int, body: object, datagram: bytes) -> None:
        if isinstance(body, Control):
            assert body.kind == kind
            once = to, self._lives[to], datagram
            assert once not in self._controls, "a control message was replayed"
            self._controls.add(once)
        self.updates += kind == MESH.kind


def check(data: bytes) -> bool:
    """Play a script; whether an update got through."""
    world = _World()
    script = iter(data)
    for step, _ in zip(script, range(_MOST_STEPS), strict=False):
        action, side, argument = step & 7, step >> 3 & 1, step >> 4
        channel = world.channels[side]
        if action == UPDATE:
            update = mesh(argument, step, float(argument))
            world.send(1 - side, channel.seal(MESH.kind, [update]) if argument else None)
        elif action == CONTROL:
            kind = (Kind.PROBE, Kind.ACK, Kind.PROBE_REQUEST)[argument % 3]
            world.send(1 - side, channel.seal(kind, Control(kind, step, 2, 3)))
        elif action == GREET:
            world.greet(side)
        elif action in (AGAIN, CHANGED) and world.said:
            to, datagram = world.said[next(script, 0) % len(world.said)]
            to = to if argument & 1 else side
            if action == CHANGED:
                place = next(script, 0) % len(datagram)
                changed = bytes([datagram[place] ^ next(script, 1)])
                datagram = datagram[:place] + changed + datagram[place + 1 :]
                datagram = datagram[: len(datagram) - argument // 2]
            world.send_answer(to, world.deliver(to, datagram))
        elif action == RAW:
            raw = bytes(byte for byte, _ in zip(script, range(16 * argument), strict=False))
            world.send_answer(side, world.deliver(side, raw))
        elif action == TURN:
            world.next_turn()
        elif action == NEW_LIFE and argument == 15:
            world.restart(side)
    return world.updates > 0


def seeds() -> list[bytes]:
    """They meet and talk; one begins a new life, and they meet and talk again."""

    def step(action: int, side: int = 0, argument: int = 0) -> bytes:
        return bytes([action | side << 3 | argument << 4])

    talk = step(UPDATE, 0, 5) + step(UPDATE, 1, 6) + step(CONTROL, 0) + step(CONTROL, 1, 1)
    meet = step(GREET) + step(TURN)
    return [
        meet + talk,
        meet + talk + step(AGAIN, 0, 1) + b"\x03" + step(CHANGED, 1, 1) + b"\x04\x02\x01",
        meet + talk + step(NEW_LIFE, 1, 15) + step(TURN) + step(UPDATE, 0, 7) + talk,
        meet + step(RAW, 0, 2) + bytes(range(32)) + talk,
    ]


TARGET = Target(check, seeds, max_bytes=300)
