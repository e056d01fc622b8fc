"""Laws of web traffic: sizes, arrivals, clients, rates."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from testbed.webrecord import Fetch, class_rates
from testbed.workload import DemandTable, SizesTable, WebTable, web_groups

S = 1_000_000_000

TIMES_MS = st.integers(0, 6000)
CHANGES = st.lists(st.tuples(TIMES_MS, st.integers(0, 5)), max_size=4)


def group(kind: str, level: int, changes: list[tuple[int, int]], **more: Any) -> Any:
    table = WebTable.model_validate(
        {
            "limiter": "l1", "rtt": "20ms", kind: level,
            "sizes": {"shape": 0.9, "least": "1kB", "most": "50kB"}, **more,
        }
    )  # fmt: skip
    demand = [
        DemandTable.model_validate({"at": f"{at}ms", "web": ["w1"], kind: new})
        for at, new in changes
    ]
    return web_groups([table], demand)[0]


@given(st.floats(0.05, 5), st.integers(1, 10_000), st.integers(0, 10**8), st.integers(0, 2**32))
def test_sizes_stay_within_their_bounds(shape: float, least: int, above: int, seed: int) -> None:
    sizes = SizesTable.model_construct(shape=shape, least=least, most=least + above)
    rng = Random(seed)
    drawn = [sizes.draw(rng) for _ in range(20)]
    assert all(least <= size <= least + above for size in drawn)
    assert least * (1 - 1e-6) <= sizes.mean <= (least + above) * (1 + 1e-6)


@given(st.integers(0, 40), CHANGES, TIMES_MS, st.integers(1, 6000), st.integers(0, 1000))
def test_arrivals_are_in_order_and_only_where_there_is_demand(
    level: int, changes: list[tuple[int, int]], start_ms: int, length_ms: int, seed: int
) -> None:
    site = group("requests", level, changes, start=f"{start_ms}ms", end=f"{start_ms + length_ms}ms")
    periods = site.periods(5 * S)
    asked = site.arrivals(5 * S, seed)
    starts = [request.start_ns for request in asked]
    assert starts == sorted(starts)
    for start in starts:
        (period,) = [p for p in periods if p.begin_ns <= start < p.end_ns]
        assert period.level > 0
    for before, after in pairwise(periods):
        assert before.end_ns == after.begin_ns


@given(st.integers(0, 5), CHANGES, st.integers(0, 4999))
def test_as_many_clients_ask_as_are_demanded(
    level: int, changes: list[tuple[int, int]], at_ms: int
) -> None:
    site = group("concurrent", level, changes)
    at = at_ms * 1_000_000 + 1
    busy = sum(
        begin <= at < end for spans in site.clients(5 * S) for begin, end in spans
    )  # fmt: skip
    wanted = [(0, level), *sorted(changes, key=lambda change: change[0])]
    assert busy == next(new for ms, new in reversed(wanted) if ms <= at_ms)


@given(
    st.lists(
        st.tuples(st.integers(1, 10**6), st.integers(1, 10**11) | st.none()),
        min_size=1,
        max_size=30,
    )
)
def test_every_request_is_in_one_class_and_means_lie_within(
    requests: list[tuple[int, int | None]],
) -> None:
    fetches = [Fetch(0, took, size, size) for size, took in requests]
    classes = class_rates(fetches, 0)
    assert sum(item["finished"] + item["unfinished"] for item in classes) == len(fetches)
    rates = [size * 8 * S / took for size, took in requests if took is not None]
    for item in classes:
        if item["rate_bps"] is not None:
            assert min(rates) * (1 - 1e-9) <= item["rate_bps"] <= max(rates) * (1 + 1e-9)
