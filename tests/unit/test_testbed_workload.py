"""Web traffic: what a file may say of it, and what is asked for when."""

from __future__ import annotations

import random
from typing import Any

import pytest

from drld.errors import ConfigError
from testbed.experiment import Experiment
from testbed.experiment_file import build, find, load
from testbed.workload import Period, SizesTable, WebGroup
from tests.testbed_factories import document, experiment, web

S = 1_000_000_000


def only(found: Experiment) -> WebGroup:
    (group,) = found.web
    return group


def closed(clients: int) -> dict[str, Any]:
    table = web(concurrent=clients)
    del table["requests"]
    return table


def problems_of(**changes: Any) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        build(document(**changes), "small.toml")
    return raised.value.problems


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"requests": None}, "web[0]: needs either `requests` (a second) or `concurrent`"),
        ({"concurrent": 3}, "web[0]: needs either `requests` (a second) or `concurrent`"),
        ({"requests": -1.0}, "web[0].requests: must be at least 0 (got -1.0)"),
        ({"requests": 20_000}, "web[0].requests: must be at most 10000 (got 20000)"),
        ({"requests": "many"}, "web[0].requests: must be a number"),
        ({"limiter": "L1"}, "web[0].limiter: must match pattern"),
        ({"name": "f1"}, "web[0].name: must be a name that is not taken"),
        ({"rtt": 40}, 'web[0].rtt: must be a duration such as "50ms"'),
        ({"loss": 1.0}, "web[0].loss: must be below 1 (got 1.0)"),
        ({"queue": "15kB"}, "web[0].queue: means nothing without a `rate`"),
        (
            {"sizes": {"shape": 0, "least": "1kB", "most": "2kB"}},
            "web[0].sizes.shape: must be above 0 (got 0)",
        ),
        ({"sizes": {"shape": 1, "least": "1kB"}}, "web[0].sizes.most: is required"),
        (
            {"sizes": {"shape": 1, "least": 1000, "most": "2kB"}},
            "web[0].sizes.least: must be a size",
        ),
        (
            {"sizes": {"shape": 1, "least": "3kB", "most": "2kB"}},
            "web[0].sizes: needs 1 B <= `least` <= `most`",
        ),
        ({"sizes": {"shape": 1, "least": "0B", "most": "2kB"}}, "web[0].sizes: needs 1 B"),
        ({"start": "2s", "end": "2s"}, "web[0].end: not after the start"),
        ({"sises": {}}, 'web[0].sises: unknown key; did you mean "sizes"?'),
    ],
)
def test_a_mistake_in_a_web_group_is_named_with_its_key(
    changes: dict[str, Any], problem: str
) -> None:
    table = {key: value for key, value in web(**changes).items() if value is not None}
    assert [line for line in problems_of(web=[table]) if f"small.toml: {problem}" in line]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"web": ["w2"], "requests": 1}, "demand[0].web: must be one of w1 (got 'w2')"),
        ({"web": [], "requests": 1}, "demand[0].web: "),
        ({"web": ["w1"]}, "demand[0]: needs either `requests`"),
        ({"web": ["w1"], "concurrent": 2}, "demand[0].web: the demand of 'w1' is told as `reque"),
        (
            {"web": ["w1"], "requests": 1, "at": "x"},
            'demand[0].at: must be a duration such as "50ms" or "1.5s" (got \'x\')',
        ),
    ],
)
def test_a_mistake_in_a_change_of_demand_is_named_with_its_key(
    change: dict[str, Any], problem: str
) -> None:
    found = problems_of(web=[web()], demand=[{"at": "1s", **change}])
    assert [line for line in found if f"small.toml: {problem}" in line]


def test_too_many_requests_are_refused_before_a_list_of_them_is_made() -> None:
    found = problems_of(web=[web(requests=10_000)], seconds=100)
    assert found == ["small.toml: web[0].requests: more than 50000 in one run"]


def test_traffic_is_needed() -> None:
    assert problems_of(flows=[], limiters=["l1"]) == [
        "small.toml: flows: missing: no traffic without [[flows]], [[web]], [[udp]] or [churn]"
    ]


def test_web_alone_is_traffic_and_names_its_limiters() -> None:
    found = experiment(flows=[], web=[web(), web(limiter="l2")])
    assert found.limiters == ("l1", "l2")
    assert [group.name for group in found.web] == ["w1", "w2"]


def test_demand_changes_at_its_times_within_start_and_end() -> None:
    group = only(
        experiment(
            web=[web(start="1s", end="3s")],
            demand=[
                {"at": "2s", "web": ["w1"], "requests": 30},
                {"at": "1500ms", "web": ["w1"], "requests": 0},
                {"at": "10s", "web": ["w1"], "requests": 7},
            ],
        )
    )
    assert group.periods(4 * S) == [
        Period(1 * S, round(1.5 * S), 100),
        Period(round(1.5 * S), 2 * S, 0),
        Period(2 * S, 3 * S, 30),
    ]
    starts = [request.start_ns for request in group.arrivals(4 * S, 1)]
    assert all(1 * S <= start < 1.5 * S or 2 * S <= start < 3 * S for start in starts)
    assert sum(start < 1.5 * S for start in starts) > 25
    assert sum(start >= 2 * S for start in starts) > 10
    assert group.clients(4 * S) == []


def test_a_change_before_the_start_is_the_demand_at_the_start() -> None:
    change = {"at": "500ms", "web": ["w1"], "requests": 30}
    group = only(experiment(web=[web(start="1s")], demand=[change]))
    assert group.periods(4 * S) == [Period(1 * S, 4 * S, 30)]


def test_clients_of_a_closed_loop_pause_where_there_is_less_demand() -> None:
    change = [
        {"at": "1s", "web": ["w1"], "concurrent": 0},
        {"at": "2s", "web": ["w1"], "concurrent": 3},
        {"at": "3s", "web": ["w1"], "concurrent": 2},
    ]
    group = only(experiment(web=[closed(2)], demand=change))
    assert group.clients(4 * S) == [
        [(0, 1 * S), (2 * S, 4 * S)],
        [(0, 1 * S), (2 * S, 4 * S)],
        [(2 * S, 3 * S)],
    ]
    assert group.arrivals(4 * S, 1) == []


def test_the_list_of_requests_belongs_to_the_seed_and_the_group() -> None:
    first, second = experiment(web=[web(), web()]).web
    asked = first.arrivals(4 * S, 1001)
    assert asked == first.arrivals(4 * S, 1001)
    assert asked != first.arrivals(4 * S, 1002)
    assert asked != second.arrivals(4 * S, 1001)
    assert first.client_seed(1001, 0) != first.client_seed(1001, 1)


def test_a_poisson_process_has_as_many_requests_as_asked_for() -> None:
    group = only(experiment(seconds=400, web=[web(requests=15)]))
    counts = [len(group.arrivals(400 * S, seed)) for seed in range(20)]
    # Mean and variance are both 6,000; four standard deviations.
    assert abs(sum(counts) / 20 - 6000) < 4 * (6000 / 20) ** 0.5
    spread = sum((count - 6000) ** 2 for count in counts) / 20
    assert 1500 < spread < 20_000


@pytest.mark.parametrize("shape", [0.75, 1.0, 1.2, 3.0])
def test_sizes_have_the_mean_of_their_distribution(shape: float) -> None:
    sizes = SizesTable.model_construct(shape=shape, least=1000, most=100_000)
    rng = random.Random(1)
    drawn = [sizes.draw(rng) for _ in range(100_000)]
    # Cut to whole bytes: half a byte less.
    assert sum(drawn) / len(drawn) == pytest.approx(sizes.mean, rel=0.03)
    half = sorted(drawn)[50_000]
    ratio = (1000 / 100_000) ** shape
    assert half == pytest.approx(1000 * (1 - 0.5 * (1 - ratio)) ** (-1 / shape), rel=0.03)


def test_sizes_may_all_be_the_same() -> None:
    sizes = SizesTable.model_construct(shape=1.0, least=5000, most=5000)
    assert sizes.mean == 5000
    assert {sizes.draw(random.Random(seed)) for seed in range(10)} == {5000}


def test_table_1_asks_for_what_the_paper_s_goodput_implies() -> None:
    found = load(find("table1"))
    group = only(found)
    assert group.table.requests == 15
    assert group.table.sizes.mean * 15 * 8 == pytest.approx(2.09e6, rel=0.05)
    assert found.groups[0].table.count == 10
    assert found.groups[0].limiter != group.limiter


def test_figure_9_moves_thirty_requests_to_four_servers_and_back() -> None:
    found = load(find("fig9"))
    assert found.table.limit.rate * 8 == 5_000_000
    assert found.table.gossip.interval == 100_000_000
    assert found.table.gossip.branching == 4
    assert found.table.gossip.loss == 0.0047
    for at, busy in ((15, 10), (45, 4), (75, 10)):
        levels = [
            period.level
            for group in found.web
            for period in group.periods(found.duration_ns)
            if period.begin_ns <= at * S < period.end_ns
        ]
        assert sum(levels) == 30
        assert sum(level > 0 for level in levels) == busy
