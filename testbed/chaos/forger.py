"""Sends hostile packets to the ports of a fleet, each from a peer's address.

It runs where all gossip passes, records some datagrams, and sends
    `corrupt`   recorded ones with bits flipped, or bytes cut off or added;
    `forge`     random bytes, and updates or deltas and handshakes of drld's codecs under random
                tags;
    `replay`    recorded ones, unchanged.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from random import Random

from drld.gossip.fabrics.tree_ranks import Role
from drld.gossip.fabrics.tree_update import TREE, TreeUpdate
from drld.gossip.wire.control_codec import End, Hello, Kind
from drld.gossip.wire.message import LONG_TAG_SIZE, codec_of
from drld.gossip.wire.update_codec import MAX_VALUE, TAG_SIZE
from drld.model import Quantity
from drld.requests.buckets.delta_codec import KIND, DeltaCodec, Form, Part
from drld.requests.buckets.ledger_cell import Cell
from testbed import child
from testbed.chaos.urgency import be_urgent
from testbed.errors import MeasurementError

_RECORD_S = 0.5
_RECORDED = 64
_FIRST_S = 10.0
"""Longest wait for the first datagram to record: a host may stand still for a second."""
_TURN_S = 0.002
_BURST = 500
"""Most datagrams in a turn, so that a pause of the host is followed by no burst."""
_ALL_IP = 0x0800
_UDP = 17
_IP = struct.Struct("!BBHHHBBH4s4s")
_UDP_HEADER = struct.Struct("!HHHH")

Recorded = tuple[bytes, bytes, bytes]
"""Source and destination address, payload."""


def packet(source: bytes, destination: bytes, port: int, payload: bytes) -> bytes:
    """An IPv4 packet; the kernel fills in fields that are zero."""
    length = _UDP_HEADER.size + len(payload)
    header = _IP.pack(0x45, 0, 0, 0, 0, 64, _UDP, 0, source, destination)
    return header + _UDP_HEADER.pack(port, port, length, 0) + payload


def corrupted(rng: Random, recorded: bytes) -> bytes:
    """A corrupted datagram."""
    payload = bytearray(recorded)
    kind = rng.random()
    if kind < 0.1:
        return bytes(payload[: rng.randrange(len(payload))])
    if kind < 0.2:
        return bytes(payload) + rng.randbytes(rng.randint(1, 64))
    for _ in range(rng.randint(1, 4)):
        payload[rng.randrange(len(payload))] ^= 1 << rng.randrange(8)
    # Two flips of one bit change nothing.
    return bytes(payload) if payload != recorded else bytes(payload[:-1])


def forged(rng: Random, limits: int, *, deltas: bool = False) -> bytes:
    """A forged datagram, in drld's format or random; of keys, if it is for that port."""
    if rng.random() < 0.3:
        return rng.randbytes(rng.randint(0, 200))
    if rng.random() < 0.2:
        mine, yours = (End(rng.getrandbits(64), rng.randrange(1, 1 << 32)) for _ in range(2))
        hello = Hello(mine, yours, nonce=rng.getrandbits(64), echo=rng.getrandbits(64))
        return codec_of(Kind.HELLO).encode(hello, 1, 0) + rng.randbytes(LONG_TAG_SIZE)
    if deltas:
        cells = (Cell(rng.getrandbits(32), rng.getrandbits(16), rng.randint(1, 1000), 0),)
        keys = tuple((rng.getrandbits(64), cells) for _ in range(rng.randint(0, 3)))
        part = Part(rng.randint(0, limits), Form.LEDGER, (rng.getrandbits(32),), keys)
        return DeltaCodec(KIND).encode(part, 1, rng.getrandbits(32)) + rng.randbytes(LONG_TAG_SIZE)
    members = rng.choice([0, 1, 1000])
    update = TreeUpdate(
        limit_id=rng.randint(0, limits),
        sequence=rng.getrandbits(32),
        quantity=rng.choice(list(Quantity)),
        hears=members > 0,
        value=0.0,
        role=rng.choice(list(Role)),
        members=members,
    )
    if update.limit_id:
        update = replace(update, value=rng.choice([0.0, 1.0, 1e9, MAX_VALUE]))
    return TREE.encode([update], 1) + rng.randbytes(TAG_SIZE)


def _record(port: int) -> list[Recorded]:
    """Some recorded datagrams."""
    found: list[Recorded] = []
    begin_s = time.monotonic()
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ALL_IP)) as tap:
        while len(found) < _RECORDED:
            left_s = begin_s + (_RECORD_S if found else _FIRST_S) - time.monotonic()
            if left_s <= 0 or not select.select([tap], [], [], left_s)[0]:
                break
            seen = tap.recv(2048)
            header = (seen[0] & 15) * 4
            if seen[9] == _UDP and struct.unpack_from("!H", seen, header + 2)[0] == port:
                (length,) = struct.unpack_from("!H", seen, header + 4)
                payload = seen[header + _UDP_HEADER.size : header + length]
                found.append((seen[12:16], seen[16:20], payload))
    if not found:
        raise MeasurementError("no gossip was seen passing")
    return found


def work() -> None:
    """Do the job: `kind`, `seconds`, `per_s`, `port`, `limits`, `seed`, and
    `deltas` for the port of keys."""
    job = child.receive()
    be_urgent()
    rng = Random(job["seed"])
    recorded = _record(job["port"])
    make: Callable[[bytes], bytes] = {
        "corrupt": lambda payload: corrupted(rng, payload),
        "forge": lambda _: forged(rng, job["limits"], deltas=job.get("deltas", False)),
        "replay": lambda payload: payload,
    }[job["kind"]]
    begin_s = time.monotonic()
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as out:
        count = 0
        while (elapsed_s := time.monotonic() - begin_s) < job["seconds"]:
            due = int(elapsed_s * job["per_s"])
            for _ in range(min(due - count, _BURST)):
                source, destination, payload = rng.choice(recorded)
                made = packet(source, destination, job["port"], make(payload))
                out.sendto(made, (socket.inet_ntoa(destination), 0))
                count += 1
            time.sleep(_TURN_S)
    child.send(result=count, seconds=time.monotonic() - begin_s)


if __name__ == "__main__":
    child.main(work)
