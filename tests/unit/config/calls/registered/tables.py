"""The tables of the plane of calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import PlainValidator

from drld.config.fields import Kind, Name, Quantity, counted
from drld.config.plane_tables import PlaneTables
from drld.config.problems import Location, Problems
from drld.config.schema import LimitTable, PlaneTable, Table
from drld.units import QuantityError, Unit
from tests.unit.config.calls.spec import CALLS, ITEM, Calls, CallsSpec, Excess


def _parse(text: str) -> int:
    number = text.removesuffix("/s")
    if number == text or not number.isdigit():
        raise QuantityError(text, 'a rate such as "50/s"')
    return int(number) * ITEM


_rate = Quantity("rate", _parse, "50/s", "1/s", "1000/s")


class MatchTable(Table):
    """`match`: which calls fall under a limit."""

    service: Name
    """Service that is called."""
    caller: Name | None = None
    """Name of the caller. Default: any."""


class CallLimitTable(LimitTable):
    """Limits on calls."""

    unit: Annotated[Unit, PlainValidator(counted(CALLS)), Kind("`calls`")] = CALLS
    rate: Annotated[int, PlainValidator(_rate), _rate.described]
    """Calls that all limiters together may let pass."""
    burst: Literal["auto"] = "auto"
    """Depth of the bucket."""
    match: MatchTable
    """Target: which calls fall under the limit."""
    on_failure: Literal["open", "closed"] | None = None
    """What passes while the daemon is dead. Default: none."""
    excess: Literal["refuse", "wait"] = "refuse"
    """What happens above the limit."""

    def target(self) -> Calls:
        return Calls(self.match.service, self.match.caller)

    def policy(self) -> Mapping[str, Any]:
        return {
            "excess": Excess(self.excess),
            "shared": {"match.caller": self.match.caller},
        }

    def check(self, where: Location, problems: Problems) -> None:
        if self.match.caller == self.match.service:
            problems.refuse([*where, "match", "caller"], self.match.caller, "another service")


class CallsTable(PlaneTable):
    """`[calls]`: how calls are answered."""

    port: int = 8080
    """Port that is listened on."""
    most: int = 100
    """Limits that there may be."""

    def spec(self) -> CallsSpec:
        return CallsSpec(**self.model_dump())

    def check(self, limits: Mapping[int, CallLimitTable], problems: Problems) -> None:
        if len(limits) > self.most:
            problems.refuse(["calls", "most"], self.most, f"at least {len(limits)}")
        first: dict[str, int] = {}
        for index, limit in limits.items():
            other = first.setdefault(limit.match.service, index)
            if other != index:
                where: Location = ["limit", index, "match", "service"]
                problems.refuse(where, limit.match.service, f"no service of limit[{other}]")


TABLES = PlaneTables(CallsSpec.key, CallsTable, CallLimitTable, MatchTable)
