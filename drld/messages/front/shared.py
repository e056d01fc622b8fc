"""What all connections of one broker share."""

from __future__ import annotations

from dataclasses import dataclass

from drld.messages.front.journal import Journal
from drld.messages.front.memory import Memory
from drld.messages.front.pump import Pump
from drld.messages.front.succession import Succession
from drld.messages.protocols import Protocol
from drld.messages.topics import TopicCache


@dataclass(frozen=True)
class Shared:
    """The parts of a broker's front that its connections use."""

    broker: str
    """The name of the broker."""
    protocol: Protocol
    pump: Pump
    memory: Memory
    journal: Journal
    succession: Succession
    topics: TopicCache
