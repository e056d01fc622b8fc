"""A plane: one kind of traffic, with a datapath for its limits and messages of its own.

The engine ticks and publishes all limits alike, and programs each on the datapath of the plane of
its kind of target. So a plane joins without a change of the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from drld.police.datapath import Datapath

Handler: TypeAlias = Callable[[str, Any, int], None]
"""Takes a message: the name of its sender, its body, and the time, ns."""


class Plane:
    """A plane without messages; one that has some is a subclass."""

    handlers: Mapping[int, Handler] = MappingProxyType({})
    """Handlers of this plane's kinds of messages (`drld.gossip.wire.message`)."""

    def __init__(self, target: type, datapath: Datapath) -> None:
        """Police the limits with targets of this type (`LimitSpec.match`) on this datapath."""
        self.target = target
        self.datapath = datapath

    def tick(self, now_ns: int) -> Iterable[tuple[str, int, Any]]:
        """End a tick of all limits; return the messages to send: receiver, kind and body."""
        self.datapath.flush(now_ns)
        return ()

    def set_peers(self, peers: Collection[str]) -> None:
        """Take over the names of the peers; departing ones are included."""

    def on_session(self, peer: str) -> None:
        """A session with another life of the peer has begun."""

    def on_peer_change(self) -> None:
        """Other peers are connected than before; it may come in the middle of a tick."""
