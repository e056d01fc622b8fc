"""Makes a run's record in result.json from its observations (docs/testbed.md). Pure."""

from __future__ import annotations

import bisect
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from testbed import MTU
from testbed.believed import BelievedTotal
from testbed.calls import summed
from testbed.errors import MeasurementError
from testbed.events import Event
from testbed.experiment import Experiment, Flow
from testbed.experiment_tables import CENTRAL, NS_PER_S, STEP_NS
from testbed.fleet import FleetReport
from testbed.response import responses
from testbed.result import (
    WINDOWS_S,
    FlowGoodput,
    at,
    check_goodput,
    goodput_bps,
    jain,
    rates_bps,
    shares,
    within_limit,
)
from testbed.topology import Plan
from testbed.udprecord import UdpReport, udp_record
from testbed.webrecord import OVERHEAD, SiteReport, received_in, web_record

SERIES_STEP_S = 0.05
MOST_FLOW_SERIES = 200
"""A record of more flows has means only: thousands of series help no reader."""
_UNDER_WAY = 64 * MTU
FLEET = "fleet"
"""Stands for all limiters together."""


@dataclass(frozen=True, slots=True)
class Observation:
    """All observations of a run; times in seconds from its start."""

    flows: tuple[Flow, ...]
    sent: dict[str, list[dict[str, Any]]]
    """The senders' reports, by group."""
    received: list[dict[str, Any]]
    """The receiver's reports, one for each connection."""
    times_s: list[float]
    """Times of the counters' samples."""
    counters: dict[str, list[int]]
    """Cumulative IP bytes: `forwarded/<limiter>`, `gossip/<limiter>`,
    `arrived/<limiter>/<group>`; for an experiment without details, sums of all
    limiters under the one name `fleet`."""
    sampler_worst_ms: float
    local_limits: dict[str, list[tuple[float, float | None]]]
    """(time, bits/s) of every tick, by limiter."""
    limiters: FleetReport
    link: dict[str, Any]
    cpu: dict[str, float]
    web: tuple[SiteReport, ...] = ()
    """A report of every web group."""
    udp: tuple[UdpReport, ...] = ()
    """A report of every UDP source."""
    calls: dict[str, list[int]] | None = None
    """The callers' report: bytes `asked` for and `admitted` in each step between two samples, and
    admitted to each of the `callers`."""
    held_bytes: int = 0
    """IP bytes that came and were not delivered, as earlier bytes are missing at the end of a flow;
    0 if unknown."""
    events: tuple[Event, ...] = ()
    """The experiment's events, at the times when they happened."""
    limits_in_force: dict[str, list[tuple[float, float | None]]] = field(default_factory=dict)
    """(time, bits/s) of every tick, by limiter."""
    believed: BelievedTotal | None = None
    """The error of the limiters' sums, if known."""
    costs: dict[str, float] | None = None
    """A limiter's cost, if measured."""
    disturbances: tuple[str, ...] = ()
    """Descriptions of the times at which the host was too busy."""


def record(
    experiment: Experiment, allocator: str, repetition: int, layout: Plan, seen: Observation
) -> dict[str, Any]:
    """The record of a run.

    Raises:
        MeasurementError: the observations contradict each other, or a flow broke.
    """
    begin_s = experiment.table.warmup / NS_PER_S
    end_s = experiment.duration_ns / NS_PER_S
    limit_bps = experiment.table.limit.rate * 8
    step_s = STEP_NS / NS_PER_S
    in_detail = experiment.table.detail == "limiters"
    counted = layout.limiters if in_detail else (FLEET,)
    if not in_detail:
        seen = together(seen)
    if experiment.table.calls is not None:
        seen = with_calls(seen, experiment.table.calls.limiter)
    flows = _flows(layout, seen, experiment.duration_ns // STEP_NS)
    goodputs = [goodput_bps(flow, begin_s, end_s, step_s) for flow in flows]
    measured = [rate for rate, flow in zip(goodputs, flows, strict=True) if flow.end_s > begin_s]
    forwarded = {
        limiter: _increase(seen, f"forwarded/{limiter}", begin_s, end_s) for limiter in counted
    }
    columns = zip(*(seen.counters[f"forwarded/{limiter}"] for limiter in counted), strict=True)
    total = list(map(sum, columns))
    first_step = int(begin_s / step_s + 1e-9)
    delivered = dict.fromkeys(experiment.limiters, 0.0)
    for flow in flows:
        delivered[flow.limiter] += sum(flow.steps[first_step:])
    for report in seen.web:
        delivered[report.limiter] += received_in(report, first_step)
    for source in seen.udp:
        delivered[source.limiter] += sum(source.steps[first_step:])
    received = [
        limiter
        for limiter in counted
        if experiment.table.calls is None or limiter != experiment.table.calls.limiter
    ]
    _check_goodput(flows, seen, received, end_s)
    by_goodput = allocator in CENTRAL and in_detail
    windows_bps = {
        window_s: [round(rate) for rate in rates_bps(seen.times_s, total, begin_s, end_s, window_s)]
        for window_s in WINDOWS_S
    }
    gossiped = sum(_increase(seen, f"gossip/{limiter}", begin_s, end_s) for limiter in counted)
    bulk = sum(sum(flow.steps[first_step:]) for flow in flows)
    return {
        "allocator": allocator,
        "repetition": repetition,
        "datapath": seen.limiters.datapath,
        "seconds": end_s,
        "warmup_s": begin_s,
        "aggregate_bps": sum(forwarded.values()) * 8 / (end_s - begin_s),
        "share": shares(delivered if by_goodput else forwarded),
        # In a central run one limiter forwards all traffic: only the sink sees the shares.
        "share_of": "goodput" if by_goodput else "forwarded",
        # Under one bucket, UDP may take all tokens before any TCP flow finds one.
        "jain": jain(measured) if any(measured) else None,
        "bulk_goodput_bps": bulk * 8 / (end_s - begin_s),
        "windows_within_limit": within_limit(windows_bps[1.0], limit_bps),
        "windows": [{"seconds": seconds, "bps": bps} for seconds, bps in windows_bps.items()],
        "flows": _flow_records(flows, goodputs, seen, step_s, in_detail=in_detail),
        "flow_step_s": step_s,
        "events": []
        if experiment.table.churn or experiment.table.calls
        else responses(
            experiment,
            list(zip(seen.flows, flows, strict=True)),
            seen.events,
            partial(at, seen.times_s, total),
            seen.limits_in_force,
        ),
        "series": _series(counted, seen, end_s),
        "series_step_s": SERIES_STEP_S,
        "gossip": {
            "sent": seen.limiters.sent,
            "received": seen.limiters.received,
            "lost": seen.limiters.lost,
            "bytes_per_limiter_per_s": gossiped / len(layout.limiters) / (end_s - begin_s),
            **(_believed(seen.believed, begin_s) if seen.believed else {}),
        },
        "datapath_counters": seen.limiters.counters,
        **({"daemons": seen.limiters.costs} if seen.limiters.costs else {}),
        "link": seen.link,
        **({"web": web_record(seen.web, begin_s, end_s, step_s)} if seen.web else {}),
        **(
            {
                "udp": udp_record(
                    seen.udp,
                    begin_s,
                    end_s,
                    step_s,
                    series=in_detail and len(seen.udp) <= MOST_FLOW_SERIES,
                )
            }
            if seen.udp
            else {}
        ),
        **(
            {"calls": {"callers_bps": [size * 8 / end_s for size in seen.calls["callers"]]}}
            if seen.calls
            else {}
        ),
        "sampler_worst_ms": seen.sampler_worst_ms,
        **({"disturbances": list(seen.disturbances)} if seen.disturbances else {}),
        "cpu": seen.cpu,
        **({"costs": seen.costs} if seen.costs else {}),
    }


def _check_goodput(
    flows: list[FlowGoodput], seen: Observation, counted: Sequence[str], end_s: float
) -> None:
    """Check that the sink's count fits the limiters' counts.

    Both are of the whole run: bytes held back by a gap in the warm-up are delivered after it.

    Raises:
        MeasurementError: they do not.
    """
    delivered = sum(sum(flow.steps) for flow in flows)
    delivered += sum(received_in(report, 0) for report in seen.web)
    forwarded = sum(_increase(seen, f"forwarded/{limiter}", 0.0, end_s) for limiter in counted)
    forwarded -= seen.held_bytes + sum(report.ip_bytes() for report in seen.udp)
    requests = sum(len(report.fetches) for report in seen.web)
    # Plus the bytes under way between limiter and sink at the end.
    check_goodput(delivered, forwarded, OVERHEAD * requests + (_UNDER_WAY if seen.udp else 0))


def _flows(layout: Plan, seen: Observation, steps: int) -> list[FlowGoodput]:
    """Match the senders' reports with the receiver's.

    Raises:
        MeasurementError: a flow was refused or broken off, or bytes have no sender.
    """
    received = {(item["source"], item["port"]): item["bytes"] for item in seen.received}
    found = []
    planned = iter(seen.flows)
    for group, reports in seen.sent.items():
        for report in reports:
            flow = next(planned)
            if report["error"] is not None:
                raise MeasurementError(f"flow {report['id']}: {report['error']}")
            if report["syn_s"] is None or report["id"] != flow.id:
                raise MeasurementError(f"flow {report['id']} was never opened")
            source = (layout.source_address[group], report["port"])
            found.append(
                FlowGoodput(
                    id=flow.id,
                    limiter=flow.limiter,
                    start_s=flow.start_ns / NS_PER_S,
                    end_s=flow.end_ns / NS_PER_S,
                    syn_s=report["syn_s"],
                    steps=tuple(received.pop(source, [0] * steps)),
                )
            )
    if received:
        raise MeasurementError(f"connections from unknown sources: {sorted(received)}")
    return found


def _flow_records(
    flows: list[FlowGoodput],
    goodputs: list[float],
    seen: Observation,
    step_s: float,
    *,
    in_detail: bool,
) -> list[dict[str, Any]]:
    reports = [report for group in seen.sent.values() for report in group]
    records = []
    for flow, goodput, report in zip(flows, goodputs, reports, strict=True):
        item = {
            "id": flow.id,
            "limiter": flow.limiter,
            "goodput_bps": goodput,
            "start_s": flow.start_s,
            "end_s": flow.end_s,
            "syn_s": report["syn_s"],
            "connected_s": report["connected_s"],
            "retransmits": report["retransmits"],
            "rtt_ms": report["rtt_ms"],
        }
        if in_detail and len(flows) <= MOST_FLOW_SERIES:
            item["goodput_series_bps"] = [round(count * 8 / step_s) for count in flow.steps]
        records.append(item)
    return records


def _increase(seen: Observation, counter: str, begin_s: float, end_s: float) -> float:
    values = seen.counters[counter]
    return at(seen.times_s, values, end_s) - at(seen.times_s, values, begin_s)


def with_calls(seen: Observation, limiter: str) -> Observation:
    """The observations with what callers asked for and got as traffic of their limiter."""
    if seen.calls is None:
        raise MeasurementError("there is no report of the callers")
    samples = len(seen.times_s)
    counted = {
        f"forwarded/{limiter}": summed(seen.calls["admitted"], samples),
        f"arrived/{limiter}/calls": summed(seen.calls["asked"], samples),
    }
    return replace(seen, counters={**seen.counters, **counted})


def together(seen: Observation) -> Observation:
    """The observations with all limiters counted as one."""
    kinds: dict[str, list[list[int]]] = {}
    for key, values in seen.counters.items():
        kinds.setdefault(key.partition("/")[0], []).append(values)
    counters = {
        f"{kind}/{FLEET}": [sum(column) for column in zip(*series, strict=True)]
        for kind, series in kinds.items()
    }
    wrong: Counter[str] = Counter()
    for counts in seen.limiters.counters.values():
        wrong.update(counts)
    limiters = replace(seen.limiters, counters={FLEET: dict(wrong)})
    return replace(seen, counters=counters, local_limits={}, limiters=limiters)


def _believed(believed: BelievedTotal, begin_s: float) -> dict[str, Any]:
    measured = [
        error
        for time_s, error in zip(believed.times_s, believed.errors, strict=True)
        if time_s >= begin_s
    ]
    if not measured:
        return {}
    return {
        "believed_total": {
            "rms_error": math.sqrt(statistics.fmean(error * error for error in measured)),
            "series": [
                (round(time_s, 3), round(error, 5))
                for time_s, error in zip(believed.times_s, believed.errors, strict=True)
            ],
        }
    }


def _series(
    limiters: Sequence[str], seen: Observation, end_s: float
) -> dict[str, list[tuple[float, int, int, int | None]]]:
    """Rows of each limiter: start of the interval, forwarded, arrived, local limit at its end."""
    found = {}
    for limiter in limiters:
        forwarded = seen.counters[f"forwarded/{limiter}"]
        inputs = [
            values
            for key, values in seen.counters.items()
            if key.startswith(f"arrived/{limiter}/") or key == f"arrived/{limiter}"
        ]
        arrived = [sum(column) for column in zip(*inputs, strict=True)] or [0] * len(seen.times_s)
        ticks = seen.local_limits.get(limiter, [])
        tick_times = [time_s for time_s, _ in ticks]
        rows = []
        rates = zip(
            rates_bps(seen.times_s, forwarded, 0.0, end_s, SERIES_STEP_S),
            rates_bps(seen.times_s, arrived, 0.0, end_s, SERIES_STEP_S),
            strict=True,
        )
        for index, (out, into) in enumerate(rates):
            start_s = round(index * SERIES_STEP_S, 3)
            tick = bisect.bisect_right(tick_times, start_s + SERIES_STEP_S)
            local_limit = ticks[tick - 1][1] if tick else None
            rows.append(
                (
                    start_s,
                    round(out),
                    round(into),
                    None if local_limit is None else round(local_limit),
                )
            )
        found[limiter] = rows
    return found
