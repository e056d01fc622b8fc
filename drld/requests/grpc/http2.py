"""HTTP/2 by `h2`, with the bounds of a server for strangers, and without work that repeats itself.

The calls of one client have the same headers, and answers have the same too. Once they are in the
tables of HPACK (RFC 7541), each is a block of some bytes that means the same as long as nothing
enters a table. `h2` reads and writes every block in full, which is a quarter of its time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, TypeAlias

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.settings import SettingCodes, Settings
from hpack import Decoder, Encoder

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]

MAX_TABLE_BYTES = 4096
"""The most bytes of remembered headers for compression; the client may offer gigabytes."""


class Http2(H2Connection):
    """The frames of a server's connection, and their states."""

    # It remembers how each stream was closed, to tell a late frame from a mistake; 65,536 of these
    # would be megabytes.
    MAX_CLOSED_STREAMS = 1000

    def __init__(
        self, max_streams: int, max_header_bytes: int, common: Collection[Headers]
    ) -> None:
        """Bound the open streams and the headers of each.

        `common` are headers that are sent often.
        """
        super().__init__(
            H2Configuration(
                client_side=False,
                header_encoding=None,
                # The daemon passes no header on, and sends only its own.
                validate_inbound_headers=False,
                normalize_inbound_headers=False,
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        bounds = {
            SettingCodes.MAX_CONCURRENT_STREAMS: max_streams,
            SettingCodes.MAX_HEADER_LIST_SIZE: max_header_bytes,
        }
        self.local_settings = Settings(client=False, initial_values=bounds)
        self.remote_settings = _KnownSettings(client=True)
        self.decoder = _LastDecoder(max_header_bytes)
        self.encoder = _CommonEncoder(common)

    @property
    def open_inbound_streams(self) -> int:
        """The number of open streams; `h2` removes closed ones only here."""
        # To count them takes a walk through all, and `h2` does it for every new one.
        at_most = len(self.streams)
        if at_most < self.local_settings.max_concurrent_streams:
            return at_most
        return super().open_inbound_streams

    def bound_table(self) -> None:
        """Bound the memory of the table for compression."""
        # To set the same size again would cancel a change that the client has yet to be told.
        if self.encoder.header_table_size > MAX_TABLE_BYTES:  # noqa: PLR1730 -- as above
            self.encoder.header_table_size = MAX_TABLE_BYTES


class _KnownSettings(Settings):
    """The settings of the client, without those that HTTP/2 does not know (RFC 9113, 6.5.2).

    `h2` keeps all 65,536, which are 50 MB, and walks through them with every frame of settings.
    """

    _KNOWN = frozenset(SettingCodes)

    def __setitem__(self, key: SettingCodes | int, value: int) -> None:
        """Note a setting, or ignore it."""
        if key in self._KNOWN:
            super().__setitem__(key, value)


class _LastDecoder(Decoder):
    """Decodes a header block that comes again only once."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(max_bytes)
        self._last: tuple[bytes, list[Any]] = b"", []

    def decode(self, data: bytes, raw: bool = False) -> Iterable[Any]:
        """See `Decoder.decode`."""
        last, headers = self._last
        if raw and data == last:
            return list(headers)
        before = _state(self)
        headers = list(super().decode(data, raw))
        # A block that has changed the table means something else when it comes again.
        self._last = (data, headers) if raw and _same(before, _state(self)) else (b"", [])
        return list(headers)


class _CommonEncoder(Encoder):
    """Encodes common headers only once."""

    def __init__(self, common: Collection[Headers]) -> None:
        super().__init__()
        self._common = frozenset(common)
        self._known: dict[Headers, bytes] = {}

    def encode(self, headers: Any, huffman: bool = True) -> bytes:
        """See `Encoder.encode`."""
        key = tuple(headers)
        resized = self.header_table.resized
        if not resized and (known := self._known.get(key)) is not None:
            return known
        before = _state(self)
        block: bytes = super().encode(key, huffman)
        if resized or not _same(before, _state(self)):
            self._known.clear()
        elif key in self._common:
            self._known[key] = block
        return block


_State: TypeAlias = tuple[int, object, int]


def _state(coder: Decoder | Encoder) -> _State:
    """Return what every change of a table changes: entries come at its front, and leave at its
    end."""
    entries = coder.header_table.dynamic_entries
    return len(entries), entries[0] if entries else None, coder.header_table_size


def _same(before: _State, after: _State) -> bool:
    # Entries that are alike are not the same.
    return before[0] == after[0] and before[1] is after[1] and before[2] == after[2]
