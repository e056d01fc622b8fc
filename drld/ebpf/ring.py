"""Reads a BPF ring buffer (BPF_MAP_TYPE_RINGBUF, Linux 5.8) whose records all have one size.

The kernel's protocol (Documentation/bpf/ringbuf.rst) has a page with the consumer's position, and a
page with the producer's. Then comes the data, twice in a row, so that a record may cross the end. A
record has a header of 8 bytes, whose first word is the record's length. The length has `_BUSY` as
long as the record is being written. Positions count bytes and never go back.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from struct import Struct
from typing import Any

from drld.ebpf.bpf import RINGBUF, Map

HEADER = "8x"
"""The header of a record, in the notation of `struct`."""

_BUSY = 1 << 31


class Ring:
    """A ring buffer; the object owns its map."""

    def __init__(self, name: str, record: Struct, size: int) -> None:
        """Make the map, with `size` bytes, a power of two of pages.

        Args:
            name: the map's name.
            record: `HEADER` and the fields of a record, together a multiple of 8 bytes.
            size: bytes of data.

        Raises:
            DatapathError: the kernel refuses.
        """
        self.map = Map.create(RINGBUF, name, (0, 0), size)
        self._record = record
        self._size = size
        page = mmap.PAGESIZE
        try:
            self._head = mmap.mmap(self.map.fd, page)
            self._rest = mmap.mmap(
                self.map.fd, page + 2 * size, mmap.MAP_SHARED, mmap.PROT_READ, offset=page
            )
        except BaseException:
            self.map.close()
            raise
        # A view writes and reads a position in one instruction.
        self._consumer = memoryview(self._head).cast("Q")
        self._producer = memoryview(self._rest).cast("Q")
        self._data = memoryview(self._rest)[page:]
        self._words = self._data.cast("I")
        self._taken = 0

    def take(self) -> Iterator[tuple[Any, ...]]:
        """Take out all records, up to the first one that the kernel still writes.

        The records are taken when the iterator is at its end.
        """
        stride, taken = self._record.size, self._taken
        begin = taken % self._size
        end = begin + self._producer[0] - taken
        if begin == end:
            return
        # All lengths before any field: a record whose length is complete has been written.
        lengths = self._words[begin // 4 : end // 4 : stride // 4].tolist()
        complete = len(lengths)
        if max(lengths) >= _BUSY:
            complete = next(at for at, length in enumerate(lengths) if length >= _BUSY)
        size = complete * stride
        yield from self._record.iter_unpack(self._data[begin : begin + size])
        self._taken += size
        self._consumer[0] = self._taken

    def close(self) -> None:
        """Close the map; the ring is gone when no program uses it."""
        for view in (self._words, self._data, self._producer, self._consumer):
            view.release()
        self._rest.close()
        self._head.close()
        self.map.close()
