"""Envoy's messages in Google's library, from the tables that reflection serves."""

from __future__ import annotations

import functools
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from drld.requests.grpc.reflection import file_descriptor
from drld.requests.grpc.schema import FILES, File

SERVICE = "envoy.service.ratelimit.v3"
METHOD = f"/{SERVICE}.RateLimitService/ShouldRateLimit"


@functools.cache
def pool(*, texts: bool = True) -> descriptor_pool.DescriptorPool:
    """All files of the front; without texts, they are bytes, which need not be UTF-8."""
    pool = descriptor_pool.DescriptorPool()
    added = set()

    def add(file: File) -> None:
        if file.path not in added:
            added.add(file.path)
            for each in file.imports:
                add(each)
            described = descriptor_pb2.FileDescriptorProto.FromString(file_descriptor(file))
            if not texts:
                as_bytes(described.message_type)
            pool.Add(described)

    for file in FILES:
        add(file)
    return pool


def as_bytes(messages: Any) -> None:
    """Make all texts of messages bytes."""
    for each in messages:
        as_bytes(each.nested_type)
        for field in each.field:
            if field.type == field.TYPE_STRING:
                field.type = field.TYPE_BYTES


@functools.cache
def message(name: str, *, texts: bool = True) -> Any:
    """The class of a message."""
    return message_factory.GetMessageClass(pool(texts=texts).FindMessageTypeByName(name))


def request(
    *descriptors: dict[str, str], domain: str = "api", hits: int = 0, each: tuple[int, ...] = ()
) -> Any:
    """A `RateLimitRequest`; `each` are hits of the first descriptors."""
    asked = message(f"{SERVICE}.RateLimitRequest")(domain=domain, hits_addend=hits)
    for pairs in descriptors:
        added = asked.descriptors.add()
        for key, value in pairs.items():
            added.entries.add(key=key, value=value)
    for number, its in enumerate(each):
        asked.descriptors[number].hits_addend.value = its
    return asked


def response(data: bytes) -> Any:
    """A `RateLimitResponse`."""
    return message(f"{SERVICE}.RateLimitResponse").FromString(data)
