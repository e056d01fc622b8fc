"""Deltas of an insider at a limiter with keys: no message makes it fail, or keep too much.

An input is the length of a message (2 bytes), that message, and another one, both without their
tags: what comes off the second socket after the session has accepted it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from drld import config
from drld.gossip.wire.control_codec import Kind
from drld.gossip.wire.keyring import KeyRing
from drld.gossip.wire.message import MAX_CONTENT
from drld.gossip.wire.messenger import Deliver
from drld.gossip.wire.session import Met
from drld.requests.buckets.delta_codec import KIND, DeltaCodec, Form, Part
from drld.requests.keyed_limit import Terms
from drld.requests.keyed_limits import KeyedLimits
from tests.fuzz.targets import delta
from tests.fuzz.targets.base import Target, unless_refused

MS = 1_000_000
NOW_NS = 10**15
MAX_KEYS = 4
_CODEC = DeltaCodec(KIND)
_TEXT = """
[limiter]
name = "a"
listen = "127.0.0.1:7946"
[requests]
listen = "127.0.0.1:8099"
""" + "".join(
    f"""
[[limit]]
id = {1 + form}
name = "{form.name.lower()}"
rate = "100/min"
burst = 50
max_keys = {MAX_KEYS}
bucket = "{form.name.lower()}"
match = {{ namespace = "api", per = "user" }}
"""
    for form in Form
)
_LIMITS = config.parse(_TEXT, "f").limits


class _Socket:
    """Delivers what it is given, and sees that what is sent can be written."""

    drained = True

    def __init__(self) -> None:
        self.incoming: list[tuple[int, Any]] = [(Kind.HELLO, Met(2))]
        self.rejected: Counter[str] = Counter()
        self.other_versions: dict[str, int] = {}
        self.refused_kinds: dict[str, tuple[int, str]] = {}
        self.life = 1
        self._sent = 0

    def send(self, _: str, kind: int, body: Any) -> int | None:
        assert kind == KIND
        assert len(_CODEC.encode(body, 0, self._sent)) <= MAX_CONTENT
        self._sent += 1
        return self._sent - 1

    def receive(self, deliver: Deliver, _: Mapping[int, str]) -> None:
        for kind, body in self.incoming:
            deliver("b", kind, body)
        self.incoming = []

    def refuse(self, reason: str) -> None:
        self.rejected[reason] += 1

    def update_peers(self, _: Mapping[str, Any]) -> Callable[[], None]:
        return lambda: None

    def set_ring(self, ring: KeyRing) -> None:
        pass

    def close(self) -> None:
        pass


def check(data: bytes) -> bool:
    """Nothing raises, memory is bounded, and requests are still decided."""
    parts = [it for it in map(_part, _split(data)) if it is not None]
    socket = _Socket()
    keyed = KeyedLimits(Terms(1, b"secret", 50 * MS, 2), Random(1))
    keyed.connect(socket, "a")
    keyed.configure({"b"}, 50 * MS, b"secret", NOW_NS)
    keyed.replace(_LIMITS, NOW_NS)
    now_ns = NOW_NS
    keyed.tick(now_ns)
    for part in parts:
        limit = keyed.limits.get(part.limit_id)
        fitting = replace(part, form=limit.form, digest=limit.digest) if limit else part
        socket.incoming += [(KIND, part), (KIND, fitting if part.form is fitting.form else part)]
        for _ in range(3):
            now_ns += 50 * MS
            keyed.tick(now_ns)
    for limit in keyed.limits.values():
        assert len(limit.replica.buckets) <= MAX_KEYS
        for key in (*limit.replica.buckets, 7):
            assert limit.replica.level(key, limit.at(now_ns)) >= 0
            limit.replica.decide(key, limit.at(now_ns), 50)
            limit.replica.charge(key, limit.at(now_ns), 1)
    keyed.tick(now_ns + 50 * MS)
    assert socket.rejected.keys() <= {"limit", "settings"}
    return bool(parts)


def _split(data: bytes) -> list[bytes]:
    end = 2 + int.from_bytes(data[:2], "big")
    return [data[2:end], data[end:]]


def _part(content: bytes) -> Part | None:
    return unless_refused(lambda: _CODEC.decode_untrusted(content), {"length", "reserved", "value"})


def seeds() -> list[bytes]:
    """Those of deltas by twos."""
    whole = [_CODEC.encode(_own(it), 1, number) for number, it in enumerate(delta.PARTS)]
    return [
        len(first).to_bytes(2, "big") + first + second
        for first, second in zip(whole, [*whole[1:], whole[0]], strict=True)
    ]


def _own(part: Part) -> Part:
    return replace(part, limit_id=1 + part.form)


TARGET = Target(check, seeds, max_bytes=2 + 2 * MAX_CONTENT)
