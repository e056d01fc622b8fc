"""The sockets of all connections in one epoll descriptor, with the handlers of their events.

The descriptor of the reactor is readable when a socket is ready or the next deadline has come. So
one task can wait for all of them.

Handlers and deadlines belong to a connection, or to none. An error in one of them ends its
connection alone.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import TypeAlias

from drld.messages.front.deadlines import Deadline, Deadlines, Owner
from drld.messages.front.timer import Timer

Handler: TypeAlias = Callable[[int], None]
"""A function that takes the events of a descriptor, a mask of epoll's."""

READ, WRITE = select.EPOLLIN, select.EPOLLOUT

_MOST_EVENTS = 1024
"""The most events of one call, 12 kB. The kernel goes round the sockets that are ready."""


class Reactor:
    """An epoll descriptor, a timer, and handlers of events."""

    def __init__(self, clock: Callable[[], int], failed: Callable[[Owner | None], None]) -> None:
        """Begin without sockets.

        Args:
            clock: monotonic time, ns.
            failed: is called while an exception of a handler is handled, with its connection.
        """
        self.clock = clock
        self._failed = failed
        self.deadlines = Deadlines()
        self._epoll = select.epoll()
        self._timer = Timer()
        self._handlers: dict[int, tuple[Handler, Owner | None]] = {}
        self.watch(self._timer.fileno(), READ, self._timed)

    def fileno(self) -> int:
        """The reactor's own descriptor, to wait for."""
        return self._epoll.fileno()

    def watch(self, fd: int, mask: int, handler: Handler, owner: Owner | None = None) -> None:
        """Watch a descriptor for these events."""
        self._handlers[fd] = handler, owner
        self._epoll.register(fd, mask)

    def change(self, fd: int, mask: int) -> None:
        """Watch a descriptor that is watched for other events."""
        self._epoll.modify(fd, mask)

    def unwatch(self, fd: int) -> None:
        """Stop to watch a descriptor, if it is watched: before it is closed."""
        if self._handlers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def events(self) -> list[tuple[int, int]]:
        """The descriptors that are ready now, each with its events."""
        return self._epoll.poll(0, _MOST_EVENTS)

    def handle(self, fd: int, events: int) -> None:
        """Call the handler of a descriptor, if it is still watched."""
        if (found := self._handlers.get(fd)) is not None:
            handler, owner = found
            try:
                handler(events)
            except Exception:
                self._failed(owner)

    def wake(self, at_ns: int | None) -> None:
        """Make the descriptor readable at this time, or at the first deadline if that is sooner."""
        first = self.deadlines.next_ns
        if first is not None and (at_ns is None or first < at_ns):
            at_ns = first
        self._timer.set(at_ns)

    def after(self, delay_ns: int, act: Callable[[], None], owner: Owner | None = None) -> Deadline:
        """Call `act` after this time, unless the deadline is cancelled."""
        return self.deadlines.add(self.clock() + delay_ns, act, owner)

    def close(self) -> None:
        """Close the descriptors."""
        self._timer.close()
        self._epoll.close()

    def _timed(self, events: int) -> None:  # noqa: ARG002 -- there is one kind
        self._timer.clear()


class OwnReactor:
    """The reactor, as one connection uses it: handlers and deadlines belong to the connection."""

    __slots__ = ("_owner", "_reactor")

    def __init__(self, reactor: Reactor, owner: Owner) -> None:
        self._reactor = reactor
        self._owner = owner

    def watch(self, fd: int, mask: int, handler: Handler) -> None:
        """See `Reactor.watch`."""
        self._reactor.watch(fd, mask, handler, self._owner)

    def after(self, delay_ns: int, act: Callable[[], None]) -> Deadline:
        """See `Reactor.after`."""
        return self._reactor.after(delay_ns, act, self._owner)

    def change(self, fd: int, mask: int) -> None:
        """See `Reactor.change`."""
        self._reactor.change(fd, mask)

    def unwatch(self, fd: int) -> None:
        """See `Reactor.unwatch`."""
        self._reactor.unwatch(fd)

    def cancel(self, deadline: Deadline | None) -> None:
        """See `Deadlines.cancel`."""
        self._reactor.deadlines.cancel(deadline)
