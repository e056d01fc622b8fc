"""NATS publishers as one process: many connections that publish in turn, at a constant rate."""

from __future__ import annotations

import socket
import time

from testbed import child

_PATIENCE_S = 60.0
_HELLO = b'CONNECT {"verbose":false,"pedantic":false}\r\nPING\r\n'
_TICK_S = 0.0005


def message(topic: str, size: int) -> bytes:
    """A PUB with a payload of `size` bytes, as it is sent."""
    return f"PUB {topic} {size}\r\n".encode() + bytes(size) + b"\r\n"


def _connected(address: tuple[str, int]) -> socket.socket:
    """A connection that may publish."""
    connection = socket.create_connection(address, _PATIENCE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(_HELLO)
    received = b""
    while b"PONG\r\n" not in received:
        if not (more := connection.recv(4096)):
            raise ConnectionResetError(f"{address} closes connections")
        received += more
    return connection


def work() -> None:
    """Connect, then publish from the start time on; each connection publishes in its turn."""
    job = child.receive()
    data = message(job["topic"], job["size"])
    connections = [_connected((job["host"], job["port"])) for _ in range(job["connections"])]
    child.send(ready=True, priority=child.raise_priority())
    begin_ns: int = child.receive()["start_ns"]
    rate, total = job["rate"], job["messages"]
    sent = 0
    while sent < total:
        elapsed_ns = time.monotonic_ns() - begin_ns
        while sent < min(total, elapsed_ns * rate // 1_000_000_000):
            connections[sent % len(connections)].send(data)
            sent += 1
        time.sleep(_TICK_S)
    child.send(result={"messages": sent, "seconds": (time.monotonic_ns() - begin_ns) / 1e9})


if __name__ == "__main__":
    child.main(work)
