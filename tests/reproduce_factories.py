"""Results of runs that never ran: constant or stepwise rates, and what a test wants of the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.harness.figure import Figure
from testbed.harness.finding import Verdict
from testbed.harness.results import Results

STEP_S, FLOW_STEP_S = 0.05, 0.2

Rate = Callable[[float], float]
"""Mbit/s at a time."""


def constant(mbit: float) -> Rate:
    return lambda time_s: mbit


def a_run(
    allocator: str,
    repetition: int = 1,
    *,
    limiters: Mapping[str, Rate],
    flows: Sequence[Mapping[str, Any]] = (),
    seconds: float = 20.0,
    warmup_s: float = 0.0,
    **changes: Any,
) -> dict[str, Any]:
    """A run's record; `flows` have `limiter`, `rate` (goodput), and `start_s`, `end_s` if any."""
    times = [index * STEP_S for index in range(round(seconds / STEP_S))]
    rates = {name: [rate(time) * 1e6 for time in times] for name, rate in limiters.items()}
    series = {
        name: [[time, value, 0.0, None] for time, value in zip(times, values, strict=True)]
        for name, values in rates.items()
    }
    first = round(warmup_s / STEP_S)
    means = {name: sum(values[first:]) / len(values[first:]) for name, values in rates.items()}
    total = sum(means.values())
    return {
        "allocator": allocator,
        "repetition": repetition,
        "datapath": "kernel",
        "seconds": seconds,
        "warmup_s": warmup_s,
        "aggregate_bps": total,
        "share": {name: mean / total for name, mean in means.items()},
        "share_of": "forwarded",
        "jain": 0.98,
        "windows": [{"seconds": 1.0, "bps": [total]}],
        "events": [],
        "flows": [a_flow(seconds, **flow) for flow in flows],
        "flow_step_s": FLOW_STEP_S,
        "series": series,
        "series_step_s": STEP_S,
        **changes,
    }


def a_flow(
    seconds: float,
    *,
    limiter: str,
    rate: Rate,
    start_s: float = 0.0,
    end_s: float | None = None,
) -> dict[str, Any]:
    """A flow's record; `rate` is its goodput while it lives."""
    until_s = seconds if end_s is None else end_s
    times = [index * FLOW_STEP_S for index in range(round(seconds / FLOW_STEP_S))]
    steps = [rate(time) * 1e6 if start_s <= time < until_s else 0.0 for time in times]
    lived = [step for time, step in zip(times, steps, strict=True) if start_s <= time < until_s]
    return {
        "id": f"{limiter}.1",
        "limiter": limiter,
        "start_s": start_s,
        "end_s": until_s,
        "goodput_bps": sum(lived) / max(len(lived), 1),
        "goodput_series_bps": steps,
    }


def a_result(*runs: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A result that has these runs."""
    limiters = list(runs[0]["series"]) if runs else ["l1", "l2"]
    return {
        "schema": 1,
        "experiment": "made-up",
        "definition": {},
        "limiters": limiters,
        "groups": [
            {"name": f"f{number}", "limiter": limiter, "flows": number}
            for number, limiter in enumerate(limiters, 1)
        ],
        "limit_bps": 10e6,
        "commit": "0123456789abcdef",
        "kernel": "6.1",
        "cpus": 2,
        "started_at": "2020-01-01T00:00:00+00:00",
        "runs": list(runs),
        "discarded": [],
        **changes,
    }


def failed(figure: Figure, results: Results) -> list[str]:
    """The statements of a figure that do not hold."""
    checks = figure.evaluate(results).checks
    return [check.statement for check in checks if check.verdict is not Verdict.PASSED]


def draws(figure: Figure, results: Results, directory: Path) -> None:
    files = figure.draw(results, directory)
    assert files
    assert all(file.read_bytes().startswith(b"\x89PNG\r\n\x1a\n") for file in files)
