from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from drld.spec import PlaneSpec, Target
from drld.units import Unit

ITEM = 1_000_000


def _rate(tokens: float) -> str:
    return f"{tokens / ITEM:g} calls/s"


def _amount(tokens: float) -> str:
    return f"{tokens / ITEM:g} calls"


CALLS = Unit("calls", ITEM, ITEM, 1000 * ITEM, 500 * ITEM, _rate, _amount)


@dataclass(frozen=True)
class Calls(Target):
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
