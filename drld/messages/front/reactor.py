"""The sockets of all connections in one epoll descriptor, with what handles their events.

The descriptor of the reactor is readable when a socket is ready or the next deadline has come, so
that one task waits for all of them.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import TypeAlias

from drld.messages.front.deadlines import Deadline, Deadlines
from drld.messages.front.timer import Timer

Handler: TypeAlias = Callable[[int], None]
"""Takes the events of a descriptor, a mask of epoll's."""

READ, WRITE = select.EPOLLIN, select.EPOLLOUT

_MOST_EVENTS = 256
"""Of one call. The kernel goes round the sockets that are ready."""


class Reactor:
    """An epoll descriptor, a timer, and handlers of events."""

    def __init__(self, clock: Callable[[], int]) -> None:
        """`clock`: monotonic time, ns."""
        self.clock = clock
        self.deadlines = Deadlines()
        self._epoll = select.epoll()
        self._timer = Timer()
        self._handlers: dict[int, Handler] = {}
        self.watch(self._timer.fileno(), READ, self._timed)

    def fileno(self) -> int:
        """The descriptor to wait for."""
        return self._epoll.fileno()

    def watch(self, fd: int, mask: int, handler: Handler) -> None:
        """Have the events of a descriptor handled."""
        self._handlers[fd] = handler
        self._epoll.register(fd, mask)

    def change(self, fd: int, mask: int) -> None:
        """Have other events handled, of a descriptor that is watched."""
        self._epoll.modify(fd, mask)

    def unwatch(self, fd: int) -> None:
        """Have no more events handled, if any are; before the descriptor is closed."""
        if self._handlers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def events(self) -> list[tuple[int, int]]:
        """The descriptors that are ready now, each with its events."""
        return self._epoll.poll(0, _MOST_EVENTS)

    def handle(self, fd: int, events: int) -> None:
        """Call the handler of a descriptor, if it is still watched."""
        if (handler := self._handlers.get(fd)) is not None:
            handler(events)

    def wake(self, at_ns: int | None) -> None:
        """Become ready at this time, or at the first deadline, whichever comes first."""
        first = self.deadlines.next_ns
        if first is not None and (at_ns is None or first < at_ns):
            at_ns = first
        self._timer.set(at_ns)

    def after(self, delay_ns: int, act: Callable[[], None]) -> Deadline:
        """Call `act` after this time, unless the deadline is cancelled."""
        return self.deadlines.add(self.clock() + delay_ns, act)

    def close(self) -> None:
        """Close the descriptors."""
        self._timer.close()
        self._epoll.close()

    def _timed(self, events: int) -> None:  # noqa: ARG002 -- there is one kind
        self._timer.clear()
