"""The services of the front and their messages, as tables.

Names and numbers are those of Envoy's API 1.40 (envoy/service/ratelimit/v3/rls.proto), of
grpc/health/v1 and of grpc/reflection/v1. Fields that drld neither reads nor writes are left out;
the wire format allows that. Reflection tells clients what stands here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from drld.requests.grpc.protobuf import Enumeration, Field, Message, Scalar

_STRING, _BYTES, _BOOL = Scalar.STRING, Scalar.BYTES, Scalar.BOOL
_UINT32, _UINT64 = Scalar.UINT32, Scalar.UINT64


class Method(NamedTuple):
    """A method of a service."""

    name: str
    takes: Message
    returns: Message
    client_streams: bool = False
    server_streams: bool = False


class Service(NamedTuple):
    """A service of a file."""

    name: str
    methods: Sequence[Method]


class File(NamedTuple):
    """A .proto file."""

    path: str
    package: str
    imports: Sequence[File] = ()
    types: Sequence[Message | Enumeration] = ()
    services: Sequence[Service] = ()


UINT64_VALUE = Message("UInt64Value", Field("value", 1, _UINT64))
_WRAPPERS = File("google/protobuf/wrappers.proto", "google.protobuf", types=(UINT64_VALUE,))

DURATION = Message("Duration", Field("seconds", 1, Scalar.INT64), Field("nanos", 2, Scalar.INT32))
_DURATION = File("google/protobuf/duration.proto", "google.protobuf", types=(DURATION,))

ENTRY = Message("Entry", Field("key", 1, _STRING), Field("value", 2, _STRING))
RATE_LIMIT_OVERRIDE = Message("RateLimitOverride", Field("requests_per_unit", 1, _UINT32))
RATE_LIMIT_DESCRIPTOR = Message(
    "RateLimitDescriptor",
    Field("entries", 1, ENTRY, repeated=True),
    Field("limit", 2, RATE_LIMIT_OVERRIDE),
    Field("hits_addend", 3, UINT64_VALUE),
    Field("is_negative_hits", 4, _BOOL),
    within=(ENTRY, RATE_LIMIT_OVERRIDE),
)
_DESCRIPTOR = File(
    "envoy/extensions/common/ratelimit/v3/ratelimit.proto",
    "envoy.extensions.common.ratelimit.v3",
    imports=(_WRAPPERS,),
    types=(RATE_LIMIT_DESCRIPTOR,),
)

HEADER_VALUE = Message("HeaderValue", Field("key", 1, _STRING), Field("value", 2, _STRING))
_BASE = File("envoy/config/core/v3/base.proto", "envoy.config.core.v3", types=(HEADER_VALUE,))

RATE_LIMIT_REQUEST = Message(
    "RateLimitRequest",
    Field("domain", 1, _STRING),
    Field("descriptors", 2, RATE_LIMIT_DESCRIPTOR, repeated=True),
    Field("hits_addend", 3, _UINT32),
)
CODE = Enumeration("Code", {"UNKNOWN": 0, "OK": 1, "OVER_LIMIT": 2})
UNIT = Enumeration(
    "Unit",
    {
        **{"UNKNOWN": 0, "SECOND": 1, "MINUTE": 2, "HOUR": 3, "DAY": 4},
        **{"WEEK": 7, "MONTH": 5, "YEAR": 6},
    },
)
RATE_LIMIT = Message(
    "RateLimit",
    Field("requests_per_unit", 1, _UINT32),
    Field("unit", 2, UNIT),
    Field("name", 3, _STRING),
    within=(UNIT,),
)
DESCRIPTOR_STATUS = Message(
    "DescriptorStatus",
    Field("code", 1, CODE),
    Field("current_limit", 2, RATE_LIMIT),
    Field("limit_remaining", 3, _UINT32),
    Field("duration_until_reset", 4, DURATION),
)
RATE_LIMIT_RESPONSE = Message(
    "RateLimitResponse",
    Field("overall_code", 1, CODE),
    Field("statuses", 2, DESCRIPTOR_STATUS, repeated=True),
    Field("response_headers_to_add", 3, HEADER_VALUE, repeated=True),
    within=(CODE, RATE_LIMIT, DESCRIPTOR_STATUS),
)
RLS = File(
    "envoy/service/ratelimit/v3/rls.proto",
    "envoy.service.ratelimit.v3",
    imports=(_BASE, _DESCRIPTOR, _DURATION),
    types=(RATE_LIMIT_REQUEST, RATE_LIMIT_RESPONSE),
    services=(
        Service(
            "RateLimitService",
            (Method("ShouldRateLimit", RATE_LIMIT_REQUEST, RATE_LIMIT_RESPONSE),),
        ),
    ),
)

SERVING_STATUS = Enumeration(
    "ServingStatus", {"UNKNOWN": 0, "SERVING": 1, "NOT_SERVING": 2, "SERVICE_UNKNOWN": 3}
)
HEALTH_REQUEST = Message("HealthCheckRequest", Field("service", 1, _STRING))
HEALTH_RESPONSE = Message(
    "HealthCheckResponse", Field("status", 1, SERVING_STATUS), within=(SERVING_STATUS,)
)
HEALTH = File(
    "grpc/health/v1/health.proto",
    "grpc.health.v1",
    types=(HEALTH_REQUEST, HEALTH_RESPONSE),
    services=(
        Service(
            "Health",
            (
                Method("Check", HEALTH_REQUEST, HEALTH_RESPONSE),
                Method("Watch", HEALTH_REQUEST, HEALTH_RESPONSE, server_streams=True),
            ),
        ),
    ),
)

REFLECTION_REQUEST = Message(
    "ServerReflectionRequest",
    Field("host", 1, _STRING),
    Field("file_by_filename", 3, _STRING),
    Field("file_containing_symbol", 4, _STRING),
    Field("list_services", 7, _STRING),
)
FILE_DESCRIPTOR_RESPONSE = Message(
    "FileDescriptorResponse", Field("file_descriptor_proto", 1, _BYTES, repeated=True)
)
SERVICE_RESPONSE = Message("ServiceResponse", Field("name", 1, _STRING))
LIST_SERVICE_RESPONSE = Message(
    "ListServiceResponse", Field("service", 1, SERVICE_RESPONSE, repeated=True)
)
ERROR_RESPONSE = Message(
    "ErrorResponse", Field("error_code", 1, Scalar.INT32), Field("error_message", 2, _STRING)
)
REFLECTION_RESPONSE = Message(
    "ServerReflectionResponse",
    Field("valid_host", 1, _STRING),
    Field("original_request", 2, REFLECTION_REQUEST),
    Field("file_descriptor_response", 4, FILE_DESCRIPTOR_RESPONSE),
    Field("list_services_response", 6, LIST_SERVICE_RESPONSE),
    Field("error_response", 7, ERROR_RESPONSE),
)


def _reflection(version: str) -> File:
    """Return a version of reflection; versions differ only in the name of the package."""
    return File(
        f"grpc/reflection/{version}/reflection.proto",
        f"grpc.reflection.{version}",
        types=(
            *(REFLECTION_REQUEST, REFLECTION_RESPONSE, FILE_DESCRIPTOR_RESPONSE),
            *(LIST_SERVICE_RESPONSE, SERVICE_RESPONSE, ERROR_RESPONSE),
        ),
        services=(
            Service(
                "ServerReflection",
                (
                    Method(
                        "ServerReflectionInfo",
                        REFLECTION_REQUEST,
                        REFLECTION_RESPONSE,
                        client_streams=True,
                        server_streams=True,
                    ),
                ),
            ),
        ),
    )


REFLECTION = tuple(_reflection(version) for version in ("v1", "v1alpha"))
"""Both versions: many clients, grpcio's too, know the second alone."""

SERVED = (RLS, HEALTH, *REFLECTION)
FILES = (*SERVED, _BASE, _DESCRIPTOR, _DURATION, _WRAPPERS)
"""The files of all services, and the files that they import."""
