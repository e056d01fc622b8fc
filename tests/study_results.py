"""Results of whole studies that were never run: as each study wants them, but for what is said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.harness.figure import Figure
from testbed.harness.results import Results
from testbed.harness.series import Series
from testbed.studies import thrift, trust
from tests.reproduce_factories import Rate, a_result, a_run, constant

from .reproduce_results import changing

LIMIT_MBIT = 50.0
COSTS = {"limiters": 8, "tick_us": 80.0, "tick_us_p90": 90.0, "bytes": 2e5, "links": 300.0}


def fleet_figure(
    figure: Figure,
    *,
    used: Mapping[tuple[str, str], float | Rate] | None = None,
    jain: Mapping[tuple[str, str], float] | None = None,
    sent: Mapping[str, float] | None = None,
) -> Results:
    """All runs of a figure: by series and allocator, what is delivered over the limit, and Jain."""
    found = {}
    for series in figure.all_series:
        assert isinstance(series, Series)
        experiment = series.load(False)
        table = experiment.table
        runs = []
        for name in table.allocators:
            value = (used or {}).get((series.name, name), 1.0)
            rate = of_the_limit(value if callable(value) else constant(value))
            run = a_run(
                name, limiters={"fleet": rate}, jain=(jain or {}).get((series.name, name), 0.8),
                seconds=table.seconds, warmup_s=table.warmup / 1e9, costs=COSTS,
                gossip={
                    "bytes_per_limiter_per_s": (sent or {}).get(series.name, 5.0),
                    "believed_total": {"rms_error": 0.05, "series": [[0.95, 0.1], [1.95, 0.0]]},
                },
            )  # fmt: skip
            runs.append(run)
        names = list(experiment.limiters)
        found[series.name] = a_result(*runs, limit_bps=LIMIT_MBIT * 1e6, limiters=names)
    return Results(found)


def of_the_limit(rate: Rate) -> Rate:
    return lambda time_s: rate(time_s) * LIMIT_MBIT


PAPERS = {thrift.STEADY[thrift.PAPERS].name: 0.226 * LIMIT_MBIT * 1e6 / 8 / 490}


def a_side(
    allocators: list[str], rates: Mapping[str, Rate], jain: float, seconds: float, odd: float
) -> dict[str, Any]:
    """`odd` is what flows unlike the others have beside these rates, Mbit/s."""
    flows = [{"limiter": name, "rate": rate} for name, rate in rates.items()]
    runs = [
        a_run(name, limiters=rates, flows=flows, jain=jain, seconds=seconds) for name in allocators
    ]
    for run in runs:
        run["udp"] = [
            {"id": f"{name}.1", "limiter": "l2", "goodput_bps": odd * 1e6,
             "goodput_series_bps": [0.0] * 400}
            for name in ("udp", "fast", "bbr-l2")
        ]  # fmt: skip
    return a_result(*runs, definition={"allocators": allocators})


EVEN: dict[str, Rate] = {"l1": constant(3), "l2": constant(7)}
FIGURE_7: dict[str, Rate] = {"l1": changing(3, 8, 6), "l2": changing(7, 2, 4)}


def both(
    simulated: Mapping[str, Mapping[str, Rate]] | None = None,
    jain: Mapping[str, float] | None = None,
    odd: Mapping[str, float] | None = None,
) -> Results:
    """All agree but for what is said of the simulator, by the experiment's name."""
    found = {}
    for pair in trust.PAIRS:
        name = pair.testbed.name
        rates = FIGURE_7 if name == "bottleneck" else EVEN
        seconds = 60.0 if name == "bottleneck" else 20.0
        allocators = list(pair.testbed.full["allocators"])
        found[name] = a_side(allocators, rates, 0.98, seconds, 1.0)
        found[pair.simulated.name] = a_side(
            allocators, (simulated or {}).get(name, rates), (jain or {}).get(name, 0.96), seconds,
            (odd or {}).get(name, 1.2),
        )  # fmt: skip
    return Results(found)


def a_fleet(
    used: float, jain: float, believed: float, *, daemons: int = 0, limiters: int = 40
) -> dict[str, Any]:
    names = [f"l{number}" for number in range(1, limiters + 1)]
    rates = {name: constant(10 * used / limiters) for name in names}
    cost = {"core_share": 0.02, "resident_bytes": 50e6, "peak_bytes": 60e6}
    run = a_run(
        "fps", limiters=rates, jain=jain, flows=[{"limiter": "l1", "rate": constant(0.1)}],
        gossip={"bytes_per_limiter_per_s": 2880.0,
                "believed_total": {"rms_error": believed, "series": [[0.0, believed]]}},
    )  # fmt: skip
    return a_result(run | ({"daemons": dict.fromkeys(names[:daemons], cost)} if daemons else {}))


def fleets(used: float = 0.99, jain: float = 0.93, believed: float = 0.05, **more: int) -> Results:
    return Results(
        {
            "fleet40": a_fleet(used, jain, believed, daemons=40, **more),
            "fleet40-sim": a_fleet(1.0, 0.94, 0.04),
        }
    )


KINDS = ("join", "leave", "bottleneck", "limit", "death")


def an_event(kind: str, *t80_s: float | None, **changes: Any) -> dict[str, Any]:
    return {
        "kind": kind,
        "limit_bps": 10e6,
        "first_1s_bps": 10.4e6,
        "highest_1s_bps": 10.2e6,
        "in_force_s": 2.4 if kind == "death" else None,
        "flows": [{"t80_s": time_s} for time_s in t80_s],
        **changes,
    }


def responses(
    changed: dict[str, list[dict[str, Any]]] | None = None, name: str = "", allocator: str = "fps"
) -> Results:
    """FPS and fair meet every goal, but for what is changed of one of them."""
    events = {kind: [an_event(kind, 0.2, 0.6, 0.4)] for kind in KINDS}
    events["bottleneck"] = [an_event("bottleneck", 3.0)]
    events["death"] = [an_event("death", 2.8)]
    other = {"fps": "fair", "fair": "fps"}[allocator]
    return Results(
        {
            f"responsiveness{name}/{kind}": {
                "runs": [
                    {"allocator": name, "repetition": 1, "events": found}
                    for name, found in ((allocator, (changed or {}).get(kind, good)), (other, good))
                ]
            }
            for kind, good in events.items()
        }
    )
