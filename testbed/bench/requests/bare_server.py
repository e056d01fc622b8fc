"""`python -m testbed.bench.requests.bare_server SOCKET`: a server that admits every question.

It decides nothing and has no event loop, so its latencies are those of the host and of the client.
"""

from __future__ import annotations

import select
import socket
import sys
from contextlib import closing

from drld.client.protocol.check_codec import ADMITTED, answer_frame, answer_record
from drld.client.protocol.frame import MAX_BODY_BYTES, Frames
from drld.client.protocol.greeting import HELLO_BYTES, VERSION, welcome

_READ_BYTES = 65_536
_YES = answer_frame([(answer_record(0, ADMITTED, b"", granted=1), b"")])


def serve(listener: socket.socket) -> None:
    """Answer the clients of this listener, whose frames have one question each, for ever."""
    opened: dict[int, tuple[socket.socket, Frames]] = {}
    with select.epoll() as poll:
        poll.register(listener, select.EPOLLIN)
        while True:
            for number, _ in poll.poll():
                if number == listener.fileno():
                    sock, _ = listener.accept()
                    _greet(sock)
                    opened[sock.fileno()] = sock, Frames(MAX_BODY_BYTES)
                    poll.register(sock, select.EPOLLIN)
                    continue
                sock, frames = opened[number]
                if data := sock.recv(_READ_BYTES):
                    sock.sendall(_YES * len([*frames.feed(data)]))
                else:
                    del opened[number]
                    sock.close()


def _greet(sock: socket.socket) -> None:
    """Take the greeting of a client, if it does not end the connection at once, and answer it."""
    if len(sock.recv(HELLO_BYTES, socket.MSG_WAITALL)) == HELLO_BYTES:
        sock.sendall(welcome(VERSION))


def main() -> None:
    """Listen on the unix socket of the command line."""
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(sys.argv[1])
        listener.listen()
        serve(listener)


if __name__ == "__main__":
    main()
