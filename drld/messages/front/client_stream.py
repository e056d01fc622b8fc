"""The stream of a client: the header and the TLS before its frames, and the ends of these.

A header of the PROXY protocol comes first, then TLS, if there is either. A frame ends behind its
last byte on the network; under TLS, behind the record with this byte.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator

from drld.errors import FrameError
from drld.messages import proxy_header
from drld.messages.frame import Frame, Reader
from drld.messages.front.tls import Tls


class ClientStream:
    """Makes frames of the bytes of a client, and of bytes for the client those that are sent."""

    def __init__(
        self, reader: Reader, *, proxied: bool, context: ssl.SSLContext | None, greeted: bool
    ) -> None:
        """Begin with the first byte.

        Args:
            reader: reads the frames.
            proxied: whether a header of the PROXY protocol comes first.
            context: makes TLS; None: the client speaks no TLS.
            greeted: whether TLS may begin; otherwise it begins with `greet`.
        """
        self.reader = reader
        self.endpoints: proxy_header.Endpoints | None = None
        """The addresses that the header says; None: it says none, or has not come."""
        self.tls: Tls | None = None
        self._header: bytearray | None = bytearray() if proxied else None
        self._context = context
        self._greeted = greeted
        self._base = 0
        """The offset at which frames or TLS begin."""
        self._start_tls()

    @property
    def headed(self) -> bool:
        """Whether the header of the PROXY protocol has come, if there is one."""
        return self._header is None

    @property
    def held(self) -> int:
        """Bytes of what has begun and is not complete: a header, a record of TLS, or a frame."""
        held = self.reader.held
        if self.tls is not None:
            held += self.tls.held
        return held + len(self._header) if self._header is not None else held

    @property
    def shakes(self) -> bool:
        """Whether the next bytes belong to a handshake of TLS."""
        return self.tls is not None and not self.tls.shaken

    @property
    def ended(self) -> bool:
        """Whether the client has said in TLS that nothing follows."""
        return self.tls is not None and self.tls.ended

    def forget(self) -> None:
        """Free the memory of what has begun, because its end will not be read."""
        self.reader.forget()
        if self.tls is not None:
            self.tls.forget()
        if self._header is not None:
            self._header.clear()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that these bytes complete; the caller takes all of them.

        Raises:
            FrameError: the client does not speak the protocol, or not as the configuration says.
        """
        if self._context is None and not self._base and self._header is None:
            return self.reader.feed(data)
        return self._feed(data)

    def _feed(self, data: bytes) -> Iterator[Frame]:
        if self._header is not None:
            self._header += data
            found = proxy_header.read(bytes(self._header))
            if found is None:
                return
            data = bytes(self._header[found.size :])
            self._base, self.endpoints, self._header = found.size, found.endpoints, None
            self._start_tls()
        if self._context is None:
            for frame in self.reader.feed(data):
                yield frame._replace(end=self._base + frame.end)
            return
        if not data:
            return
        if self.tls is None:
            raise FrameError("client: must wait for the broker's greeting before it sends")
        try:
            for plain, end in self.tls.receive(data):
                for frame in self.reader.feed(plain):
                    yield frame._replace(end=end)
        except ssl.SSLError as error:
            # An alert is the client's; other errors are about its bytes.
            refuses = "ALERT" in (error.reason or "")
            what = (
                "refuses TLS or this certificate" if refuses else "must speak TLS as is configured"
            )
            raise FrameError(f"client: {what} ({error.reason})") from error

    def greet(self) -> None:
        """Begin TLS: the broker's greeting has been sent in the clear."""
        if not self._greeted:
            self._greeted = True
            self._start_tls()

    def encode(self, data: bytes) -> bytes:
        """The bytes that are sent to the client for these bytes of the broker."""
        if self.tls is None:
            return data
        self.tls.send(data)
        return self.tls.output()

    def last_words(self) -> bytes:
        """The bytes that are sent to the client before the end of the connection."""
        if self.tls is None:
            return b""
        self.tls.end()
        return self.tls.output()

    def _start_tls(self) -> None:
        if self._context is not None and self._greeted and self._header is None:
            self.tls = Tls(self._context, self._base)
