"""The nouns of the plane of calls: its unit, its target and its part of a configuration."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from drld.spec import PlaneSpec, Target
from drld.units import Unit

ITEM = 1_000_000
CALLS = Unit("calls", ITEM, ITEM, 1000 * ITEM, 500 * ITEM)


class Excess(enum.Enum):
    REFUSE = "refuse"
    WAIT = "wait"


@dataclass(frozen=True)
class Calls(Target):
    items: ClassVar[str] = "calls"
    flow: ClassVar[str] = "caller"

    service: str
    caller: str | None = None

    def __str__(self) -> str:
        return f"{self.service} by {self.caller or 'anyone'}"


@dataclass(frozen=True)
class CallsSpec(PlaneSpec):
    key: ClassVar[str] = "calls"

    port: int = 8080
    most: int = 100

    def fixed(self) -> Mapping[str, Any]:
        return {"port": self.port}
