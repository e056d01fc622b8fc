"""The socket of keys under a flood: strangers have a part of the processor, and no more."""

from __future__ import annotations

import os
import socket
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from drld import config
from drld.gossip.transport import Transport
from drld.gossip.wire.keyring import KeyRing
from drld.requests.buckets.delta_codec import KIND, Form, Part
from drld.requests.front import deltas
from drld.requests.front.deltas import GAP_S, LONGEST_REST_S, MOST_DELIVERED, REST, Deltas
from drld.requests.keyed_limit import Terms
from drld.requests.keyed_limits import KeyedLimits
from drld.spec import LimiterSpec
from tests.local_daemons import pairs_of_ports

from .keyed_fleet import KEYED

MS = 1_000_000
PING = Part(0, Form.LEDGER, (), ())


def opened(clock_ms: list[int]) -> tuple[Deltas, LimiterSpec]:
    """A socket with a clock of these readings, ms."""
    keyed = KeyedLimits(Terms(0, b"secret", 50 * MS, 2), Random(1))
    made = Deltas(Path("f"), keyed, lambda: clock_ms.pop(0) * MS)
    (port,) = pairs_of_ports(1)
    text = KEYED.replace("127.0.0.1:7946", f"127.0.0.1:{port}")
    return made, config.parse(text, "f")


def test_a_look_at_what_is_refused_is_followed_by_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    clock_ms = [0]
    made, spec = opened(clock_ms)
    made.prepare(spec, KeyRing())
    transport = made.transport
    assert transport is not None
    try:
        made.adopt(spec, KeyRing())
        address = transport.address

        worked_s: list[float] = []
        monkeypatch.setattr(deltas, "thread_time", lambda: worked_s.pop(0))

        def look(strangers: int, took_s: float = 0.005) -> float:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
                for _ in range(strangers):
                    out.sendto(os.urandom(60), address)
            clock_ms.append(100)
            worked_s.extend([7.0, 7.0 + took_s])
            return made._look(transport)

        assert look(0) == GAP_S
        before = transport.rejected.total()
        assert look(20) == pytest.approx(REST * 0.005)
        assert look(20, 0.1) == LONGEST_REST_S
        assert look(20, 0.0001) == GAP_S
        assert transport.rejected.total() == before + 60
        assert look(0) == GAP_S

        def tick(_: int) -> None:
            transport.refuse("tag")
            transport.control_received += 2

        # What peers say does not wait for the little that strangers say.
        monkeypatch.setattr(made._keyed, "tick", tick)
        assert look(0) == GAP_S
    finally:
        transport.close()


def test_a_look_takes_a_bounded_part_of_what_peers_have_sent() -> None:
    """Fresh keys of a peer in a flood wait for the next looks, and requests come between."""
    made, spec = opened([0, 0, 100, 101])
    made.prepare(spec, KeyRing())
    transport = made.transport
    assert transport is not None
    with closing(transport), closing(Transport(("127.0.0.1", 0), "lim2", {})) as peer:
        transport.update_peers({"lim2": peer.address})
        peer.update_peers({"lim1": transport.address})
        # Until there is a session, a message becomes a handshake.
        while not peer.met:
            peer.send("lim1", KIND, PING)
            transport.receive(lambda *_: None)
            peer.receive(lambda *_: None)
        taken = transport.control_received
        before = peer.bytes_sent
        sent = 0
        while peer.bytes_sent - before < 3 * MOST_DELIVERED:
            assert peer.send("lim1", KIND, PING) is not None
            sent += 1
        made._look(transport)
        first = transport.control_received - taken
        assert 0 < first < sent
        assert not transport.drained
