"""Sends small packets at full speed onto one link, past the emulated delay that they would
flood."""

from __future__ import annotations

import socket
import time

from testbed import child
from testbed.chaos.forger import packet
from testbed.chaos.urgency import be_urgent

_PORT = 5002
_BURST = 256
_ETHERTYPE = b"\x08\x00"
_PAYLOAD = bytes(20)


def checksummed(header: bytes, length: int) -> bytes:
    """An IPv4 header with its length and checksum."""
    filled = header[:2] + length.to_bytes(2, "big") + header[4:10] + b"\0\0" + header[12:]
    total = sum(int.from_bytes(filled[at : at + 2], "big") for at in range(0, len(filled), 2))
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    return filled[:10] + (~total & 0xFFFF).to_bytes(2, "big") + filled[12:]


def work() -> None:
    """Do the job: `device`, `macs` and `addresses` of both ends, `seconds`."""
    job = child.receive()
    be_urgent()
    source, destination = (bytes(int(part, 16) for part in mac.split(":")) for mac in job["macs"])
    addresses = [socket.inet_aton(address) for address in job["addresses"]]
    plain = packet(addresses[0], addresses[1], _PORT, _PAYLOAD)
    frame = destination + source + _ETHERTYPE + checksummed(plain[:20], len(plain)) + plain[20:]
    count = 0
    end_s = time.monotonic() + job["seconds"]
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as link:
        link.bind((job["device"], 0))
        while time.monotonic() < end_s:
            for _ in range(_BURST):
                link.send(frame)
            count += _BURST
    child.send(result=count)


if __name__ == "__main__":
    child.main(work)
