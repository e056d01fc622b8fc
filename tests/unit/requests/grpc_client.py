"""A front as grpcio's clients see it: `python -m tests.unit.requests.grpc_client PORT` prints it.

It is a process of its own, as grpcio has threads, beside which nothing may fork.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from ...rls_messages import METHOD, SERVICE, request

CALLS = 1000
REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
WAIT_S = 60.0


def status_of(make: Any) -> str:
    """The status of a call that fails."""
    try:
        make()
    except grpc.RpcError as error:
        return f"{error.code().name}: {error.details()}"
    return "OK"


def seen(channel: grpc.Channel) -> dict[str, Any]:
    """All of it, by what is tried."""
    # The messages are those that reflection describes.
    database = ProtoReflectionDescriptorDatabase(channel)
    pool = DescriptorPool(database)
    response = message_factory.GetMessageClass(
        pool.FindMessageTypeByName(f"{SERVICE}.RateLimitResponse")
    )
    method = channel.unary_unary(METHOD, lambda it: it.SerializeToString(), response.FromString)

    def ask(*descriptors: dict[str, str], **more: Any) -> list[int]:
        answer = method(request(*descriptors, **more), timeout=WAIT_S)
        return [answer.overall_code, *(it.code for it in answer.statuses)]

    found: dict[str, Any] = {
        "services": sorted(database.get_services()),
        "peek": ask({}, each=(0,)),
        "first": ask({}, {"plan": "free"}),
        "refused": ask({}, {"plan": "free"}),
        "left": ask({}),
        "bad": status_of(lambda: ask(domain="")),
        "large": ask({"a": "x" * 70_000}),
        "large name": status_of(
            lambda: health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(service="x" * 70_000), timeout=WAIT_S
            )
        ),
        "compressed": status_of(
            lambda: method(
                request({"a": "x" * 1000}), timeout=WAIT_S, compression=grpc.Compression.Gzip
            )
        ),
        "unknown": status_of(lambda: channel.unary_unary("/a.B/C")(b"", timeout=WAIT_S)),
    }
    over = threading.Event()

    def nothing() -> Iterator[bytes]:
        over.wait()
        yield from ()

    stream = channel.stream_stream(REFLECTION)(nothing(), timeout=0.1)
    found["late"] = status_of(lambda: next(stream)).partition(":")[0]
    over.set()
    health = health_pb2_grpc.HealthStub(channel)
    for name in ("", f"{SERVICE}.RateLimitService"):
        answer = health.Check(health_pb2.HealthCheckRequest(service=name), timeout=WAIT_S)
        found[f"health {name}"] = answer.status
    unknown = health_pb2.HealthCheckRequest(service="other")
    for name in ("", "other"):
        watched = health.Watch(health_pb2.HealthCheckRequest(service=name), timeout=WAIT_S)
        found[f"watch {name}"] = next(watched).status
        watched.cancel()
    found["no health"] = status_of(lambda: health.Check(unknown, timeout=WAIT_S))
    # More than may be open at a time: grpcio keeps the others back.
    calls = [method.future(request({}, domain="many"), timeout=WAIT_S) for _ in range(CALLS)]
    found["many"] = dict(Counter(it.result().overall_code for it in calls))
    return found


if __name__ == "__main__":
    with grpc.insecure_channel(f"127.0.0.1:{sys.argv[1]}") as opened:
        print(json.dumps(seen(opened)))
