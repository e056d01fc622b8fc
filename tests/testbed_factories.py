"""Experiments and runs for the testbed's tests, with only what a test cares about spelled out."""

from __future__ import annotations

import random
from typing import Any

from testbed.experiment import Experiment
from testbed.experiment_file import build
from testbed.experiment_tables import STEP_NS
from testbed.fleet import FleetReport
from testbed.record import Observation
from testbed.result import FlowGoodput
from testbed.topology import Plan

STEP_S = STEP_NS / 1e9


def document(**changes: Any) -> dict[str, Any]:
    """A small experiment: one flow at `l1`, two at `l2`, 10 Mbit/s, 4 s of which 1 s warms up."""
    return {
        "name": "small",
        "seconds": 4,
        "warmup": "1s",
        "allocators": ["ctb", "fps"],
        "limit": {"rate": "10mbit", "burst": "75kB"},
        "gossip": {"rtt": "40ms"},
        "flows": [
            {"limiter": "l1", "count": 1, "rtt": "40ms"},
            {"limiter": "l2", "count": 2, "rtt": "20ms"},
        ],
        **changes,
    }


def web(**changes: Any) -> dict[str, Any]:
    """A web server at `l1` that is asked for 100 objects a second of 1 to 20 kB."""
    return {
        "limiter": "l1",
        "rtt": "20ms",
        "requests": 100,
        "sizes": {"shape": 1.1, "least": "1kB", "most": "20kB"},
        **changes,
    }


def experiment(**changes: Any) -> Experiment:
    return build(document(**changes), "small.toml")


def flow_goodput(steps: list[int], **changes: Any) -> FlowGoodput:
    """A flow that lived through all steps."""
    given: dict[str, Any] = {
        "id": "f1.1",
        "limiter": "l1",
        "start_s": 0.0,
        "end_s": len(steps) * STEP_S,
        "syn_s": 0.0,
        **changes,
    }
    return FlowGoodput(steps=tuple(steps), **given)


def observation(small: Experiment, layout: Plan, rates: dict[str, int]) -> Observation:
    """Constant rates: IP bytes/s forwarded for each group, all goodput's 96.5 % received.

    Half of what arrives is dropped; every limiter gossips 960 bytes/s.
    """
    rng = random.Random(1)
    duration_s = small.duration_ns / 1e9
    flows = tuple(flow for group in small.groups for flow in small.flows(group, rng))
    times = [-0.0499 + index * 0.05 for index in range(round(duration_s / 0.05) + 2)]
    counters: dict[str, list[int]] = {}
    for limiter in layout.limiters:
        groups = [group for group, through in layout.path.items() if through == limiter]
        rate = sum(rates[group] for group in groups)
        counters[f"forwarded/{limiter}"] = _count(times, rate)
        counters[f"gossip/{limiter}"] = _count(times, 960)
        for group in groups:
            counters[f"arrived/{limiter}/{group}"] = _count(times, 2 * rates[group])
    sent: dict[str, list[dict[str, Any]]] = {}
    received = []
    for own_group in small.groups:
        name = own_group.name
        own = [flow for flow in flows if flow.group == name]
        sent[name] = [
            {
                "id": flow.id,
                "port": 20_000 + index,
                "syn_s": flow.start_ns / 1e9,
                "connected_s": flow.start_ns / 1e9 + 0.04,
                "retransmits": 0,
                "rtt_ms": 40.0,
                "error": None,
            }
            for index, flow in enumerate(own)
        ]
        goodput = rates[name] * 1448 // 1500 // len(own)
        received += [
            {
                "source": layout.source_address[name],
                "port": 20_000 + index,
                "bytes": [round(goodput * STEP_S)] * round(duration_s / STEP_S),
            }
            for index in range(len(own))
        ]
    return Observation(
        flows=flows,
        sent=sent,
        received=received,
        times_s=times,
        counters=counters,
        sampler_worst_ms=0.1,
        local_limits={limiter: [(0.02, 1e6), (2.01, None)] for limiter in layout.limiters},
        limiters=FleetReport("nfqueue", sent=80, received=79, lost=1),
        link={"backend": "delayline"},
        cpu={"busy": 0.1, "stolen": 0.0},
    )


def _count(times_s: list[float], rate: float) -> list[int]:
    return [round(rate * max(time_s + 0.05, 0)) for time_s in times_s]
