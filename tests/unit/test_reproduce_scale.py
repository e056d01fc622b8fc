"""Beyond figure 8: which manner is judged, what counts as control traffic, which fleets run."""

from __future__ import annotations

from pathlib import Path

import pytest

from drld.gossip.fabrics.tree import Tree
from testbed.harness.figure import Figure
from testbed.harness.results import Results
from testbed.harness.series import Series
from testbed.studies import fabrics, fleets, scale, thrift
from tests.reproduce_factories import Rate, a_result, a_run, constant, failed
from tests.study_results import LIMIT_MBIT, PAPERS, fleet_figure


@pytest.mark.parametrize("figure", [scale.FIGURE, fabrics.FIGURE, thrift.FIGURE])
def test_every_table_has_rows_and_without_runs_nothing_is_drawn(
    figure: Figure, tmp_path: Path
) -> None:
    tables = figure.evaluate(fleet_figure(figure, sent=PAPERS)).tables
    assert all(table.rows for table in tables)
    assert figure.draw(Results({}), tmp_path) == []


def test_the_cheapest_manner_of_each_fabric_is_judged_however_well_others_do() -> None:
    dear = {series.name: 1000.0 for series in thrift.STEADY.values()}
    cheapest, other = list(thrift.STEADY)[1:3]
    (leaf,) = (one for one in thrift.STEADY if one.name == "tree-800ms-3")
    cheap, crowded = thrift.STEADY[cheapest].name, thrift.CROWD[cheapest].name
    sent = {**dear, **PAPERS, cheap: 1.0, thrift.STEADY[other].name: 2.0,
            thrift.STEADY[leaf].name: 2.0}  # fmt: skip

    def missed(used: dict[tuple[str, str], float | Rate], **changes: float) -> list[str]:
        seen = fleet_figure(thrift.FIGURE, used=used, sent={**sent, **changes})
        return [one.partition(": ")[2] for one in failed(thrift.FIGURE, seen)]

    assert missed({}) == []
    assert missed({(thrift.STEADY[other].name, "fps"): 0.9}) == []
    assert missed({(cheap, "fps"): 0.9}) == ["aggregate over the limit"]
    assert missed({(crowded, "fps"): 1.2}) == ["highest 1 s over the limit after the crowd's start"]
    above = "control traffic over the limit, probes (wan) included"
    assert missed({}, **{thrift.STEADY[leaf].name: 1000.0}) == [above]


def test_probes_count_as_control_traffic() -> None:
    found = list(thrift.STEADY.values())[1].name
    # 490 limiters, a probe and an acknowledgement of 72 bytes in a second, and in five.
    seen = fleet_figure(thrift.FIGURE, sent={found: 0.02 * LIMIT_MBIT * 1e6 / 8 / 490})
    assert thrift.probed(seen, found, "lan") == pytest.approx(0.02 + 490 * 144 * 8 / 50e6)
    assert thrift.probed(seen, found, "wan") == pytest.approx(0.02 + 490 * 144 * 8 / 50e6 / 5)
    assert thrift.probed(Results({}), found, "lan") is None
    # What would be below 3 % without them is not.
    most = dict.fromkeys((series.name for series in thrift.STEADY.values()), 360.0)
    missed = failed(thrift.FIGURE, fleet_figure(thrift.FIGURE, sent={**most, **PAPERS}))
    assert [one.partition(" (")[0] for one in missed] == [
        f"{fabric}, the manner with the least control traffic" for fabric in ("pushsum", "tree")
    ]


@pytest.mark.parametrize("manner", [m for m in thrift.MANNERS if m.fabric == "tree"])
def test_a_tree_is_measured_when_all_shares_are_in_force(manner: thrift.Manner) -> None:
    names = [f"l{number}" for number in range(490)]
    interval_ns = manner.interval_ms * 1_000_000
    known = Tree.make_membership(names[0], names[1:], manner.branching, interval_ns)
    for series in (thrift.STEADY[manner], thrift.CROWD[manner]):
        table = series.load(False).table
        assert table.warmup > known.rise_ns + 18 * interval_ns
        assert all(flows.start > table.warmup for flows in table.flows)


def test_a_crowd_is_settled_when_the_rate_stays_down() -> None:
    (name, *_) = (series.name for series in thrift.CROWD.values())

    def rate(time_s: float) -> float:
        return 1.2 if 12 <= time_s < 12.6 or 13.9 <= time_s < 14.2 else 1.0

    seen = fleet_figure(thrift.FIGURE, used={(name, "fps"): rate})
    assert thrift.settled_s(seen, name) == 2.5
    assert thrift.settled_s(fleet_figure(thrift.FIGURE), name) == 0
    assert thrift.settled_s(Results({}), name) is None


@pytest.mark.parametrize("limiters", [490, 10_000])
def test_a_flows_share_is_the_same_in_every_fleet(limiters: int) -> None:
    table = fleets.fleet("any", limiters, ["fps"]).load(False).table
    assert table.churn is not None
    live = table.churn.life / table.churn.every
    assert table.limit.rate * 8 / live == pytest.approx(50e6 / 600, rel=0.005)
    # As many live while it is measured: those of the beginning have started, the last not yet.
    assert table.churn.fill is not None
    last_starts_ns = 2.5 * limiters * table.churn.every - table.churn.life
    assert table.churn.fill < table.warmup < table.seconds * 1e9 < last_starts_ns


def test_control_traffic_is_that_of_all_limiters() -> None:
    series: Series = fleets.fleet("any", 490, ["fps"])
    run = a_run("fps", limiters={"fleet": constant(50)}, gossip={"bytes_per_limiter_per_s": 2880.0})
    seen = Results({series.name: a_result(run, limit_bps=50e6, limiters=["x"] * 490)})
    assert seen.control(series.name, "fps") == pytest.approx(0.2258, abs=1e-4)
    assert fleets.error(seen, series.name) is None
    assert Results({}).control(series.name, "fps") is None
