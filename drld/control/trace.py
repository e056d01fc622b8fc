"""Fan-out of trace records to readers, none of which can hold up the daemon.

Each reader has a buffer of its own. If it is full, the oldest record makes room for the newest,
because readers want to see the present, and to know how many records they missed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import trio

from drld.control.schema.limits import TraceLine, TraceRecord

TRACE_BUFFER = 128
"""Records kept for a reader: several seconds of ticks."""


@dataclass(eq=False, slots=True)
class _Reader:
    send: trio.MemorySendChannel[TraceLine]
    receive: trio.MemoryReceiveChannel[TraceLine]
    offered: int = 0

    def offer(self, record: TraceRecord) -> None:
        # A reader may have closed its end and not yet left the context.
        with suppress(trio.ClosedResourceError, trio.BrokenResourceError):
            if self.send.statistics().current_buffer_used == TRACE_BUFFER:
                self.receive.receive_nowait()
            self.send.send_nowait(TraceLine(**record, number=self.offered))
        self.offered += 1


class TraceHub:
    """The readers of all limits' traces."""

    def __init__(self) -> None:
        self._readers: defaultdict[str, set[_Reader]] = defaultdict(set)

    def limits(self) -> Collection[str]:
        """Limits that have readers."""
        return self._readers.keys()

    def publish(self, limit: str, record: Callable[[], TraceRecord]) -> None:
        """Give a record to the limit's readers; it is made only if there are any."""
        if readers := self._readers.get(limit):
            made = record()
            for reader in readers:
                reader.offer(made)

    @asynccontextmanager
    async def subscribe(self, limit: str) -> AsyncIterator[trio.MemoryReceiveChannel[TraceLine]]:
        """Read the limit's records from now on, until the context is left or the limit goes."""
        reader = _Reader(*trio.open_memory_channel[TraceLine](TRACE_BUFFER))
        self._readers[limit].add(reader)
        try:
            with reader.send, reader.receive:
                yield reader.receive
        finally:
            if readers := self._readers.get(limit):
                readers.discard(reader)
                if not readers:
                    del self._readers[limit]

    def retain(self, limits: Collection[str]) -> None:
        """End the traces of all other limits (a reload took them away)."""
        for limit in self._readers.keys() - set(limits):
            for reader in self._readers.pop(limit):
                reader.send.close()
