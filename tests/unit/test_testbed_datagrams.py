"""UDP sources as data: what a file may say, when packets are sent, and what is recorded of them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from itertools import islice
from random import Random
from typing import Any

import pytest

from drld.errors import ConfigError
from testbed.datagrams import UdpGroup
from testbed.errors import DisturbedError, MeasurementError
from testbed.experiment_file import build
from testbed.harness.tables import table_of
from testbed.record import record
from testbed.run_bounds import refuse
from testbed.topology import plan
from testbed.udprecord import UdpReport, udp_record, udp_reports
from tests.testbed_factories import document, experiment, observation

MS, S = 1_000_000, 1_000_000_000


def udp(**changes: Any) -> dict[str, Any]:
    return {"limiter": "l1", "rate": "1.2mbit", **changes}


def group(**changes: Any) -> UdpGroup:
    (found,) = experiment(udp=[udp(**changes)]).udp
    return found


def times_ms(sending: UdpGroup, count: int) -> list[float]:
    """The first times at which a source that begins at 0 sends."""
    return [at_ns / MS for at_ns in islice(sending.bursts(0, 10**15), count)]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"rate": None}, "udp[0]: needs either `rate` or `period`"),
        ({"period": "1s"}, "udp[0]: needs either `rate` or `period`"),
        ({"rate": None, "period": "0s"}, "udp[0].period: must be longer than nothing (got '0s')"),
        ({"size": "20B"}, "udp[0].size: needs 28 to 1500 bytes"),
        ({"size": "9kB"}, "udp[0].size: needs 28 to 1500 bytes"),
        ({"on": "1s"}, "udp[0].on: needs `off` beside it"),
        ({"on": "1s", "off": "0s"}, "udp[0].on: needs `off` beside it"),
        ({"start": "2s", "end": "2s"}, "udp[0].end: not after the start"),
        ({"ports": "two"}, "udp[0].ports: must be 'one' or 'each-packet'"),
        ({"burst": 0}, "udp[0].burst: must be at least 1"),
        ({"limiter": "l2..l1"}, "udp[0].limiter: must be a name of up to 11 characters"),
        ({"limiter": "a1..b2"}, "udp[0].limiter: must be a name of up to 11 characters"),
        ({"name": "f1"}, "udp[0].name: must be a name that is not taken"),
        (
            {"name": "ten-letters", "limiter": "l1..l2"},
            "udp[0].name: must be at most 11 characters",
        ),
    ],
)
def test_a_mistake_is_named_with_its_key(changes: dict[str, Any], problem: str) -> None:
    given = {key: value for key, value in udp(**changes).items() if value is not None}
    with pytest.raises(ConfigError) as raised:
        build(document(udp=[given]), "small.toml")
    assert [line for line in raised.value.problems if line.startswith(f"small.toml: {problem}")]


def test_a_limiter_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match=r"udp\[0\]\.limiter: must be one of l1, l2 \(got 'l3'\)"):
        experiment(limiters=["l1", "l2"], udp=[udp(limiter="l3")])


def test_udp_alone_is_traffic() -> None:
    assert experiment(flows=[], udp=[udp(), udp(limiter="l2")]).limiters == ("l1", "l2")


def test_an_entry_for_several_limiters_is_a_group_for_each() -> None:
    made = experiment(
        limiters=["l1..l3"],
        flows=[{"limiter": "l1..l2", "count": 2, "rtt": "40ms"}],
        udp=[udp(limiter="l2..l3", name="drip")],
    )
    assert made.limiters == ("l1", "l2", "l3")
    assert [(one.name, one.limiter) for one in made.groups] == [("f1-l1", "l1"), ("f1-l2", "l2")]
    assert [(one.name, one.limiter) for one in made.udp] == [("drip-l2", "l2"), ("drip-l3", "l3")]


def test_a_constant_rate_is_exact() -> None:
    sending = group(rate="3.7mbit")
    assert times_ms(sending, 4000)[-1] == pytest.approx(3999 * 12_000 / 3.7e6 * 1e3, abs=0.01)
    assert sending.rate_bps == pytest.approx(3.7e6, rel=1e-6)


def test_a_burst_keeps_the_rate_or_the_period() -> None:
    assert times_ms(group(burst=4), 3) == [0, 40, 80]
    twelve = {"rate": None, "burst": 12, "period": "1150ms"}
    given = {key: value for key, value in udp(**twelve).items() if value is not None}
    (sending,) = experiment(udp=[given]).udp
    assert times_ms(sending, 3) == [0, 1150, 2300]
    assert sending.rate_bps == pytest.approx(12 * 12_000 / 1.15)


def test_a_source_that_is_off_is_silent_and_returns_in_its_rhythm() -> None:
    sending = group(on="25ms", off="100ms")
    assert times_ms(sending, 7) == [0, 10, 20, 125, 135, 145, 250]
    # The end is exclusive.
    assert list(sending.bursts(5 * MS, 130 * MS)) == [5 * MS, 15 * MS, 25 * MS]
    assert list(sending.bursts(5 * MS, 131 * MS))[-1] == 130 * MS
    assert list(sending.bursts(5 * MS, 5 * MS)) == []
    assert sending.mean_bps == pytest.approx(1.2e6 / 5)


def test_sources_begin_within_an_interval_and_end_with_the_run() -> None:
    sources = group(count=200, start="1s").sources(4 * S, Random(1))
    starts = [source.start_ns - S for source in sources]
    assert 0 <= min(starts) < MS
    assert 9 * MS < max(starts) < 10 * MS
    assert {source.end_ns for source in sources} == {4 * S}
    assert [source.id for source in sources[:2]] == ["u1.1", "u1.2"]


@pytest.mark.parametrize(
    ("limit", "burst"),
    [
        ({"rate": "10mbit"}, 312_500),
        ({"rate": "10mbit", "burst": "auto"}, 312_500),
        ({"rate": "10kbit"}, 1500),
        ({"rate": "10mbit", "burst": "75kB"}, 75_000),
    ],
)
def test_a_burst_that_is_left_out_is_a_quarter_of_a_second(
    limit: dict[str, str], burst: int
) -> None:
    assert experiment(limit=limit).table.limit.burst == burst


def test_a_rate_that_is_none_is_refused_and_not_the_burst() -> None:
    with pytest.raises(ConfigError) as raised:
        experiment(limit={"rate": "fast"})
    (problem,) = raised.value.problems
    assert problem.startswith("small.toml: limit.rate: must be a rate such as")


@pytest.mark.parametrize(
    ("sources", "problem"),
    [
        ([udp(count=64_513, rate="10kbit")], "udp.count: more than 64512 sources in a group"),
        ([udp(count=100), udp(count=101)], "udp: more than 20000 packets a second in all"),
        ([udp(limiter="l1..l249", rate="10kbit")], "limiters: more than 250 of them, or of groups"),
    ],
)
def test_the_testbed_refuses_what_it_cannot_carry(
    sources: list[dict[str, Any]], problem: str
) -> None:
    limiters = ["l1..l249"]
    refuse(experiment(limiters=limiters, udp=[udp(count=100), udp(count=100)]))
    refuse(experiment(limiters=limiters, udp=[udp(limiter="l1..l248", rate="10kbit")]))
    with pytest.raises(ConfigError) as raised:
        refuse(experiment(limiters=limiters, udp=sources))
    assert [line for line in raised.value.problems if line.startswith(problem)]


@pytest.mark.parametrize(("count", "ports"), [(1, "one"), (500, "one"), (64_512, "one")])
def test_each_source_has_a_port_of_its_own(count: int, ports: str) -> None:
    sending = group(count=count, ports=ports)
    used = [sending.port(source, packet) for source in range(count) for packet in (0, 7)]
    assert len(set(used)) == count
    assert 1024 <= min(used) <= max(used) <= 65_535


@pytest.mark.parametrize("count", [1, 3, 500, 64_512])
def test_a_new_port_for_each_packet_still_says_whose_it_is(count: int) -> None:
    sending = group(count=count, ports="each-packet")
    turns = 64_512 // count
    for source in {0, count // 2, count - 1}:
        used = [sending.port(source, packet) for packet in range(turns)]
        assert len(set(used)) == turns
        assert 1024 <= min(used) <= max(used) <= 65_535
        assert {sending.source_of(port) for port in used} == {source}
        assert sending.port(source, turns) == used[0]


# What is recorded.

REPORT = UdpReport("u1.1", "l2", 100, 0.0, 4.0, 3000, tuple([7200 * 2] * 20))
"""720 packets of 72 bytes a second, in steps of 0.2 s: 576 kbit/s of IP bytes."""


def test_a_record_has_the_rates_of_payload_and_of_the_ip_layer() -> None:
    (entry,) = udp_record([REPORT], 1.0, 4.0, 0.2, series=True)
    assert entry["goodput_bps"] == pytest.approx(576_000)
    assert entry["forwarded_bps"] == pytest.approx(800_000)
    assert len(entry["goodput_series_bps"]) == 20
    (short,) = udp_record([replace(REPORT, end_s=0.5)], 1.0, 4.0, 0.2, series=False)
    assert short["goodput_bps"] == 0.0
    assert "goodput_series_bps" not in short


def test_reports_are_of_the_sources_in_their_order() -> None:
    first, second = experiment(udp=[udp(count=2), udp(limiter="l2", size="100B", start="1s")]).udp
    planned = [
        (first, "10.1.3.2", first.sources(4 * S, Random(1))),
        (second, "10.1.4.2", second.sources(4 * S, Random(1))),
    ]
    received = [
        {"address": "10.1.4.2", "source": 0, "bytes": [0, 72]},
        {"address": "10.1.3.2", "source": 1, "bytes": [1472, 0]},
    ]
    reports = udp_reports(planned, {"late_ns": 50 * MS, "sent": [7, 8, 9]}, received, 2)
    assert reports == (
        UdpReport("u1.1", "l1", 1500, 0.0, 4.0, 7, (0, 0)),
        UdpReport("u1.2", "l1", 1500, 0.0, 4.0, 8, (1472, 0)),
        UdpReport("u2.1", "l2", 100, 1.0, 4.0, 9, (0, 72)),
    )
    with pytest.raises(DisturbedError, match="a UDP packet was sent 51 ms late"):
        udp_reports(planned, {"late_ns": 51 * MS, "sent": [7, 8, 9]}, received, 2)


def recorded(udp_bytes: int) -> dict[str, Any]:
    """A run in which 125,000 of the second limiter's bytes a second are of UDP, it is said."""
    small = experiment()
    layout = plan(small, "fps", 1)
    seen = observation(small, layout, {"f1": 375_000, "f2": 875_000})
    for item in seen.received:
        if item["source"] == layout.source_address["f2"]:
            item["bytes"] = [count * 750 // 875 for count in item["bytes"]]
    steps = tuple([round(udp_bytes * 0.2 * 72 / 100)] * 20)
    return record(small, "fps", 1, layout, replace(seen, udp=(replace(REPORT, steps=steps),)))


def test_goodput_has_to_fit_what_was_forwarded_with_udp_in_it() -> None:
    run = recorded(125_000)
    assert run["udp"][0]["forwarded_bps"] == pytest.approx(1e6)
    with pytest.raises(MeasurementError, match="do not fit"):
        recorded(500_000)


def test_packets_under_way_at_the_end_of_udp_runs_are_no_contradiction() -> None:
    small = experiment(flows=[], udp=[udp(), udp(limiter="l2")])
    layout = plan(small, "fair", 1)
    seen = observation(small, layout, {"u1": 150_000, "u2": 150_000})
    # The counters begin 50 ms before the run: what came before it did is under way.
    steps = tuple([20 * 1472] * 20)
    reports = [UdpReport(f"u{n}.1", f"l{n}", 1500, 0.0, 4.0, 400, steps) for n in (1, 2)]
    run = record(small, "fair", 1, layout, replace(seen, udp=tuple(reports)))
    assert run["jain"] is None
    assert run["aggregate_bps"] == pytest.approx(2.4e6)
    late = tuple([20 * 1472] * 16 + [0] * 4)
    with pytest.raises(MeasurementError, match="do not fit"):
        record(
            small, "fair", 1, layout,
            replace(seen, udp=tuple(replace(one, steps=late) for one in reports)),
        )  # fmt: skip


def test_bytes_that_receivers_hold_back_are_forwarded_and_no_goodput() -> None:
    small = experiment()
    layout = plan(small, "fps", 1)
    seen = observation(small, layout, {"f1": 375_000, "f2": 875_000})
    for item in seen.received:
        item["bytes"] = [count // 2 for count in item["bytes"]]
    with pytest.raises(MeasurementError, match="do not fit"):
        record(small, "fps", 1, layout, seen)
    record(small, "fps", 1, layout, replace(seen, held_bytes=2_500_000))


def test_the_table_has_the_udp_sources_rate() -> None:
    result = {"limiters": ["l1", "l2"], "limit_bps": 10e6, "runs": [recorded(125_000)]}
    header, row = (line.split() for line in table_of(result).splitlines())
    assert header[-4:] == ["bulk", "Mbit/s", "UDP", "Mbit/s"]
    assert row[-1] == "0.72"


def test_entries_of_arrays_can_be_set_by_their_number() -> None:
    from testbed.experiment_file import find, load

    made = load(find("any-udp"), {}, ["udp.0.rate=20mbit", "flows.1.congestion=cubic"])
    assert made.udp[0].rate_bps == 20e6
    assert made.groups[1].table.congestion == "cubic"
    for setting in ("udp.1.rate=1mbit", "udp.x.rate=1mbit", "udp.0=1", "name.0.x=1"):
        with pytest.raises(ConfigError, match="is not"):
            load(find("any-udp"), {}, [setting])
    assert list(itertools.islice(made.definition["udp"][0], 2)) == ["name", "limiter"]


def test_tcp_flows_that_udp_starves_have_no_fairness_index() -> None:
    small = experiment(udp=[udp()])
    layout = plan(small, "ctb", 1)
    seen = observation(small, layout, {"f1": 0, "f2": 0, "u1": 150_000})
    steps = tuple([20 * 1472] * 20)
    report = UdpReport("u1.1", "l1", 1500, 0.0, 4.0, 400, steps)
    run = record(small, "ctb", 1, layout, replace(seen, udp=(report,)))
    assert run["jain"] is None
    assert run["aggregate_bps"] == pytest.approx(1.2e6)
