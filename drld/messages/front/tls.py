"""TLS of one client, without its socket: others receive and send the bytes.

Records are decrypted one by one. So the end of each record is known in the client's stream, and a
message under TLS arrived with the last byte of the record that completes it.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import suppress

_HEAD = 5
"""The bytes of a record's head."""
_MOST_PLAIN = 1 << 14
"""The most bytes of plain text in a record."""


class Tls:
    """The server's side of TLS."""

    def __init__(self, context: ssl.SSLContext, offset: int) -> None:
        """Begin with a handshake at this offset of the client's stream."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._offset = offset
        """The offset of the first byte that has not been decrypted."""
        self._rest = bytearray()
        """The beginning of a record."""
        self._early: list[bytes] = []
        """Plain text that is to be sent after the handshake."""
        self.shaken = False
        """Whether the handshake is done."""
        self.ended = False
        """Whether the client has said that nothing follows."""

    @property
    def held(self) -> int:
        """Bytes of a record that is not complete."""
        return len(self._rest)

    def forget(self) -> None:
        """Free the memory of a record that is not complete."""
        self._rest.clear()

    def receive(self, data: bytes) -> Iterator[tuple[bytes, int]]:
        """Decrypt bytes of the client.

        Yields:
            The plain text of each record, if it has any, and the offset behind the record.

        Raises:
            ssl.SSLError: the client does not speak TLS as the context demands.
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
        """Tell the client that nothing follows."""
        if self.shaken:
            # The function wants the client's answer, which is not needed.
            with suppress(ssl.SSLError):
                self._ssl.unwrap()

    def output(self) -> bytes:
        """Take out the bytes that are to be sent to the client now."""
        return self._outgoing.read()
