"""Flows that come and go over many limiters: the paper's scaling experiment (section 5.6). Pure.

"The number of flows arriving at each limiter [is] chosen uniformly at random from 0 to 5 [...] We
start 1 random flow from the above distribution every 100 ms; each flow lives for 60 seconds." The
seed of the experiment decides the arrivals, which are the same for every allocator and repetition.

In the steady state life / every flows live at once. With `fill` a run begins in this state: the
flows that live at that moment start within the time `fill`, in the same order, and end as planned.
"""

from __future__ import annotations

from random import Random
from typing import Annotated

from pydantic import Field

from drld.config.problems import Problems
from testbed.fields import Duration, Probability, Table

MOST_FLOWS = 100_000


class ChurnTable(Table):
    """Many limiters, each with a few flows that come and go."""

    limiters: Annotated[int, Field(ge=1, le=20_000)]
    """The number of limiters; more than 250 need the simulator."""
    most: Annotated[int, Field(ge=1, le=1000)]
    """Most flows of a limiter; the least is 0."""
    every: Duration
    """Time between two starts of flows, each at a random limiter."""
    life: Duration
    """The time from the start of a flow to its end."""
    fill: Duration | None = None
    rtt: Duration
    loss: Probability = 0.0

    @property
    def names(self) -> list[str]:
        """The limiters' names."""
        return [f"l{number}" for number in range(1, self.limiters + 1)]


def lives(churn: ChurnTable, seed: int) -> dict[str, list[tuple[int, int]]]:
    """Start and end of each flow's life, ns, by limiter; limiters without flows are left out."""
    rng = Random(f"{seed}/churn")
    where = [name for name in churn.names for _ in range(rng.randint(0, churn.most))]
    rng.shuffle(where)
    found: dict[str, list[tuple[int, int]]] = {}
    for number, name in enumerate(where):
        start = end = number * churn.every
        if churn.fill is None:
            end += churn.life
        else:
            # The run begins when the first flow is due to end.
            start = start - churn.life if start >= churn.life else start * churn.fill // churn.life
        if start < end:
            found.setdefault(name, []).append((start, end))
    return found


def check_churn(churn: ChurnTable, problems: Problems) -> None:
    """Check rules that concern several keys."""
    if churn.limiters * churn.most > MOST_FLOWS:
        problems.add(["churn", "most"], f"times the limiters may be {MOST_FLOWS} flows at most")
    for key in ("every", "life"):
        if not getattr(churn, key):
            problems.add(["churn", key], "must not be zero")
    if churn.fill is not None and churn.fill >= churn.life:
        problems.add(["churn", "fill"], "must be shorter than a `life`")
