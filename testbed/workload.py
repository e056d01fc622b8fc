"""Web traffic as data: times and sizes of requests, the same for every allocator. Pure.

Two kinds of demand, one for each way to load a server:

- `requests`: open loop. Requests arrive as a Poisson process of this rate, whether earlier ones
  have ended or not. At a change of the demand the process starts again, as it has no memory.
- `concurrent`: this number of clients, each of which asks for one object after another without a
  pause. If a change of the demand reduces the number, clients break off their requests.

Sizes follow a bounded Pareto distribution, F(x) = (1 - (l/x)^a) / (1 - (l/h)^a) for l <= x <= h: it
is heavy-tailed as web objects are (Crovella and Bestavros; the SURGE generator's tail). Its bounds
keep every moment finite.

Units: sizes bytes, times nanoseconds from the start of the run, rates requests/s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Annotated

from pydantic import Field

from drld.config.problems import Problems
from testbed.fields import Duration, Name, PathTable, Size, Table

MOST_REQUESTS = 50_000
"""Most requests of an open loop in one run, on average, as their list is made in advance."""

_NS_PER_S = 1_000_000_000
_LARGEST = 1_000_000_000

Requests = Annotated[float, Field(ge=0, le=10_000, allow_inf_nan=False)]
Concurrent = Annotated[int, Field(ge=0, le=1000)]


class SizesTable(Table):
    """A bounded Pareto distribution of object sizes."""

    shape: Annotated[float, Field(gt=0, le=10)]
    least: Size
    most: Size

    @property
    def mean(self) -> float:
        """The mean size, bytes."""
        a, low, high = self.shape, float(self.least), float(self.most)
        if low == high:
            return low
        # At shape 1 the formula is 0 / 0; a nearby shape gives the limit closely enough.
        if abs(a - 1) < 1e-6:
            a = 1 + 1e-6
        whole = 1 - math.pow(low / high, a)
        parts = math.pow(low, 1 - a) - math.pow(high, 1 - a)
        return math.pow(low, a) * a / (a - 1) * parts / whole

    def draw(self, rng: Random) -> int:
        """Bytes of one object, by the inverse of the distribution function."""
        whole = 1 - math.pow(self.least / self.most, self.shape)
        size = self.least * math.pow(1 - rng.random() * whole, -1 / self.shape)
        return min(max(int(size), self.least), self.most)


class WebTable(PathTable):
    """A web server behind a limiter, and the demand for it."""

    requests: Requests | None = None
    """Requests/s, as a Poisson process."""
    concurrent: Concurrent | None = None
    """The clients that ask for one object after another."""
    sizes: SizesTable
    start: Duration = 0
    end: Duration | None = None


class DemandTable(Table):
    """A change of the demand for some servers."""

    at: Duration
    web: Annotated[list[Name], Field(min_length=1)]
    requests: Requests | None = None
    concurrent: Concurrent | None = None


@dataclass(frozen=True, slots=True)
class Period:
    """A time of constant demand."""

    begin_ns: int
    end_ns: int
    level: float
    """Requests/s, or number of clients."""


@dataclass(frozen=True, slots=True)
class Request:
    """The request for one object."""

    start_ns: int
    size: int


@dataclass(frozen=True, slots=True)
class WebGroup:
    """A web server, with all defaults filled in."""

    name: str
    limiter: str
    table: WebTable
    changes: tuple[DemandTable, ...]
    """The server's changes, by time."""

    @property
    def open_loop(self) -> bool:
        """Whether requests arrive in an open loop."""
        return self.table.requests is not None

    def periods(self, duration_ns: int) -> list[Period]:
        """The demand over a run."""
        end_ns = min(duration_ns if self.table.end is None else self.table.end, duration_ns)
        levels = [(self.table.start, _level(self.table))]
        levels += [(max(change.at, self.table.start), _level(change)) for change in self.changes]
        times = [min(at_ns, end_ns) for at_ns, _ in levels] + [end_ns]
        return [
            Period(begin, end, level)
            for (begin, end), (_, level) in zip(pairwise(times), levels, strict=True)
            if end > begin
        ]

    def arrivals(self, duration_ns: int, seed: int) -> list[Request]:
        """The requests of an open loop, by time; empty for a closed loop."""
        if not self.open_loop:
            return []
        rng = Random(f"{seed}/{self.name}")
        found = []
        for period in self.periods(duration_ns):
            if not period.level:
                continue
            time_ns = period.begin_ns + rng.expovariate(period.level) * _NS_PER_S
            while time_ns < period.end_ns:
                found.append(Request(int(time_ns), self.table.sizes.draw(rng)))
                time_ns += rng.expovariate(period.level) * _NS_PER_S
        return found

    def clients(self, duration_ns: int) -> list[list[tuple[int, int]]]:
        """The times (begin, end) of each client of a closed loop; empty for an open loop."""
        if self.open_loop:
            return []
        periods = self.periods(duration_ns)
        clients = []
        for number in range(int(max((period.level for period in periods), default=0))):
            spans: list[tuple[int, int]] = []
            for period in periods:
                if period.level <= number:
                    continue
                if spans and spans[-1][1] == period.begin_ns:
                    spans[-1] = (spans[-1][0], period.end_ns)
                else:
                    spans.append((period.begin_ns, period.end_ns))
            clients.append(spans)
        return clients

    def client_seed(self, seed: int, number: int) -> str:
        """The sizes of a closed-loop client's requests, one after another."""
        return f"{seed}/{self.name}/{number}"


def _level(table: WebTable | DemandTable) -> float:
    return (table.concurrent or 0) if table.requests is None else table.requests


def web_groups(web: Sequence[WebTable], demand: Sequence[DemandTable]) -> tuple[WebGroup, ...]:
    """Fill in names, and give each server the changes of its demand."""
    named = [(table.name or f"w{number}", table) for number, table in enumerate(web, 1)]
    return tuple(
        WebGroup(
            name,
            table.limiter,
            table,
            tuple(sorted((d for d in demand if name in d.web), key=lambda change: change.at)),
        )
        for name, table in named
    )


def check_web(
    groups: Sequence[WebGroup], demand: Sequence[DemandTable], duration_ns: int, problems: Problems
) -> None:
    """Check rules that concern several keys."""
    for index, group in enumerate(groups):
        where: list[int | str] = ["web", index]
        table = group.table
        if (table.requests is None) == (table.concurrent is None):
            problems.add(where, "needs either `requests` (a second) or `concurrent`")
        if not 1 <= table.sizes.least <= table.sizes.most <= _LARGEST:
            problems.add([*where, "sizes"], 'needs 1 B <= `least` <= `most` <= "1GB"')
        if table.end is not None and table.end <= table.start:
            problems.add([*where, "end"], "not after the start")
        expected = sum(
            period.level * (period.end_ns - period.begin_ns) / _NS_PER_S
            for period in group.periods(duration_ns)
        )
        if group.open_loop and expected > MOST_REQUESTS:
            problems.add([*where, "requests"], f"more than {MOST_REQUESTS} in one run")
    by_name = {group.name: group for group in groups}
    for index, change in enumerate(demand):
        where = ["demand", index]
        if (change.requests is None) == (change.concurrent is None):
            problems.add(where, "needs either `requests` (a second) or `concurrent`")
        for name in change.web:
            if name not in by_name:
                known = ", ".join(sorted(by_name)) or "the name of a [[web]] group; there is none"
                problems.refuse([*where, "web"], name, f"one of {known}" if by_name else known)
            elif by_name[name].open_loop != (change.requests is not None):
                kind = "requests" if by_name[name].open_loop else "concurrent"
                problems.add([*where, "web"], f"the demand of {name!r} is told as `{kind}`")
