"""The fuzz targets: one definition each of what must hold for hostile input.

The Hypothesis tests of tests/fuzz, the regression inputs of tests/fuzz/corpus and the
coverage-guided fuzzer (scripts/fuzz) all judge by these.
"""

from __future__ import annotations

from tests.fuzz.targets import (
    api,
    batch,
    capture,
    channel,
    config,
    control_wire,
    delta,
    deltas,
    grpc,
    http,
    mqtt,
    nats,
    packet,
    probes,
    proxy_header,
    registry,
    request_log,
    requests,
    rls,
    segments,
    topics,
    wire,
)
from tests.fuzz.targets.base import Target

KERNEL_TARGET = "bpf"
TARGETS: dict[str, Target] = {
    "wire": wire.TARGET,
    "control-wire": control_wire.TARGET,
    "channel": channel.TARGET,
    "delta": delta.TARGET,
    "deltas": deltas.TARGET,
    "probes": probes.TARGET,
    "packet": packet.TARGET,
    "capture": capture.TARGET,
    "config": config.TARGET,
    "api": api.TARGET,
    "http": http.TARGET,
    "registry": registry.TARGET,
    "requests": requests.TARGET,
    "grpc": grpc.TARGET,
    "rls": rls.TARGET,
    "request-log": request_log.TARGET,
    "batch": batch.TARGET,
    "topics": topics.TARGET,
    "mqtt": mqtt.TARGET,
    "nats": nats.TARGET,
    "segments": segments.TARGET,
    "proxy-header": proxy_header.TARGET,
}


def find(name: str) -> Target | None:
    """The target of that name: also `bpf`, which takes root and is no target of the pure tests."""
    if name == KERNEL_TARGET:
        from tests.kernel import agreement

        return agreement.TARGET
    return TARGETS.get(name)
