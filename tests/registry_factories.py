"""Registries without etcd: values, a store of keys with revisions, and limiters that follow it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from drld.registry.model.keys import Keys
from drld.registry.model.state import Event, Member, Registry
from drld.registry.records import Readers, write_member
from drld.spec import LimiterSpec, RegistrySpec

from .factories import TICK_NS, limiter_spec

KEYS = Keys("f")
FLEET = "0123456789abcdef" * 2
OTHER = "fedcba9876543210" * 2


def registry_spec(**changes: Any) -> RegistrySpec:
    spec = RegistrySpec(
        endpoints=("http://127.0.0.1:2379",), fleet="f", ttl_ns=10**10, cache="/nowhere/cache"
    )
    return replace(spec, **changes)


def file_spec(name: str = "a", number: int = 1, **changes: Any) -> LimiterSpec:
    """The configuration file of a limiter with a registry."""
    spec = limiter_spec(name=name, listen=address(number), peers=(), registry=registry_spec())
    return replace(spec, **changes)


def address(number: int) -> tuple[str, int]:
    return f"127.0.0.{number}", 7946


def known(name: str = "a", number: int = 1, **changes: Any) -> Registry:
    """A limiter that knows nothing yet."""
    return Registry(KEYS, name, address(number), Readers(TICK_NS, registry_spec(**changes)))


def limit(limit_id: int = 1, **changes: Any) -> bytes:
    table = {
        "id": limit_id,
        "name": f"limit{limit_id}",
        "rate": "10mbit",
        "burst": "75kB",
        "match": {"out": "uplink"},
    }
    return json.dumps({**table, **changes}).encode()


def member(number: int, *, joined: bool = True) -> bytes:
    return write_member(Member(address(number), joined, 1_700_000_000))


def events(values: dict[str, bytes | None], revision: int) -> list[Event]:
    return [Event(key, value, revision) for key, value in values.items()]


class Store:
    """etcd as far as a limiter depends on it: keys with revisions, and a history."""

    def __init__(self) -> None:
        self.revision = 1
        self.items: dict[str, Event] = {}
        self.history: list[Event] = []

    def commit(self, changes: dict[str, bytes | None], where: dict[str, int] | None = None) -> bool:
        for key, revision in (where or {}).items():
            if (self.items[key].revision if key in self.items else 0) != revision:
                return False
        self.revision += 1
        for key, value in changes.items():
            event = Event(key, value, self.revision)
            if value is not None:
                self.items[key] = event
            elif self.items.pop(key, None) is None:
                continue
            self.history.append(event)
        return True

    def wipe(self) -> None:
        self.revision = 1
        self.items.clear()
        self.history.clear()

    def read(self) -> tuple[list[Event], int]:
        return list(self.items.values()), self.revision

    def since(self, revision: int) -> list[Event]:
        return [event for event in self.history if event.revision > revision]
