"""TLS of one client, over bytes that others receive and send.

Records are decrypted one by one. So the end of each is known in the stream as it came over the
network: a message under TLS arrived with the last byte of the record that completes it.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import suppress

_HEAD = 5
_MOST_PLAIN = 1 << 14


class Tls:
    """The side of the server."""

    def __init__(self, context: ssl.SSLContext, offset: int) -> None:
        """Begin with a handshake at this offset of the client's stream."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._offset = offset
        """Of the first byte that has not been decrypted."""
        self._rest = bytearray()
        self._early: list[bytes] = []
        """What is to be sent after the handshake."""
        self.shaken = False
        """Whether the handshake is done."""
        self.ended = False
        """Whether the client has said that nothing follows."""

    @property
    def held(self) -> int:
        """Bytes of a record that is not complete."""
        return len(self._rest)

    def receive(self, data: bytes) -> Iterator[tuple[bytes, int]]:
        """Decrypt what came.

        Yields:
            What each record holds, if anything, and the offset behind the record.

        Raises:
            ssl.SSLError: the client does not speak TLS, or not as the context demands.
        """
        rest = self._rest
        rest += data
        while len(rest) >= _HEAD:
            size = _HEAD + (rest[3] << 8 | rest[4])
            if len(rest) < size and 20 <= rest[0] <= 24:  # of any other type, at once: an error
                return
            self._incoming.write(rest[:size])
            del rest[:size]
            self._offset += size
            yield from self._decrypted()

    def _decrypted(self) -> Iterator[tuple[bytes, int]]:
        try:
            if not self.shaken:
                self._ssl.do_handshake()
                self.shaken = True
                for early in self._early:
                    self._ssl.write(early)
                self._early.clear()
            while plain := self._ssl.read(_MOST_PLAIN):
                yield plain, self._offset
        except ssl.SSLWantReadError:
            return
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            pass
        self.ended = True

    def send(self, data: bytes) -> None:
        """Encrypt data, after the handshake."""
        if self.shaken:
            self._ssl.write(data)
        else:
            self._early.append(data)

    def end(self) -> None:
        """Say that nothing follows."""
        if self.shaken:
            # It waits for the client's answer, which is not needed.
            with suppress(ssl.SSLError):
                self._ssl.unwrap()

    def output(self) -> bytes:
        """Take what is to be sent to the client now."""
        return self._outgoing.read()
