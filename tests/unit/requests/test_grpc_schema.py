"""The tables of messages are those of the stock Envoy, and the codec is Google's in small."""

from __future__ import annotations

import mmap
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError

from drld.errors import InputError
from drld.requests.grpc.protobuf import Enumeration, Field, Message, Scalar
from drld.requests.grpc.schema import (
    DESCRIPTOR_STATUS,
    RATE_LIMIT_REQUEST,
    RLS,
    File,
)

from ...rls_messages import SERVICE, message, pool, request

ENVOY = Path(sys.prefix, "bin", "envoy")


def end_of_message(data: bytes) -> int:
    """The end of a serialized `FileDescriptorProto` that other data follows."""
    at = 0
    while at < len(data):
        tag, start = data[at], at + 1
        size = shift = 0
        while True:
            byte = data[start]
            start += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if tag & 7 != 2 or tag < 8:
            break
        at = start + size
    return at


def in_envoy(path: str) -> Any:
    """A file as it is compiled into Envoy."""
    assert ENVOY.exists(), "run scripts/setup, which fetches Envoy"
    head = b"\n%c%b\x12" % (len(path), path.encode())
    with ENVOY.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as program:
        at = program.find(head)
        assert at >= 0, path
        data = program[at : at + 100_000]
    return descriptor_pb2.FileDescriptorProto.FromString(data[: end_of_message(data)])


def walk(parent: Any, mine: Any) -> Iterator[tuple[Any, Message]]:
    """Messages of Envoy's that have a table, and the tables."""
    for table in mine:
        if isinstance(table, Message):
            (its,) = [it for it in parent if it.name == table.name]
            yield its, table
            yield from walk(its.nested_type, table.within)


def of_type(field: Field) -> int:
    if isinstance(field.kind, Scalar):
        return field.kind.value
    return 11 if isinstance(field.kind, Message) else 14


@pytest.mark.parametrize("file", [RLS, *RLS.imports[:2]], ids=lambda file: file.path)
def test_tables_agree_with_the_stock_envoy(file: File) -> None:
    envoys = in_envoy(file.path)
    assert envoys.package == file.package
    for its, table in walk(envoys.message_type, file.types):
        fields = {it.name: (it.number, it.type, it.label == 3) for it in its.field}
        for field in table.fields:
            assert fields[field.name] == (field.number, of_type(field), field.repeated)
        for enumeration in table.within:
            if isinstance(enumeration, Enumeration):
                (same,) = [it for it in its.enum_type if it.name == enumeration.name]
                assert {it.name: it.number for it in same.value} == enumeration.values
    services = {it.name: [method.name for method in it.method] for it in envoys.service}
    assert services == {it.name: [method.name for method in it.methods] for it in file.services}


def test_reflection_describes_what_googles_library_takes() -> None:
    described = pool().FindMessageTypeByName(f"{SERVICE}.RateLimitResponse.DescriptorStatus")
    assert [it.name for it in described.fields] == [it.name for it in DESCRIPTOR_STATUS.fields]
    health = pool().FindServiceByName("grpc.health.v1.Health").methods_by_name["Check"]
    assert health.output_type.full_name == "grpc.health.v1.HealthCheckResponse"


def test_a_request_is_read_as_googles_library_writes_it() -> None:
    asked = request({"plan": "free", "user": "é"}, {}, hits=2**32 - 1, each=(2**64 - 1, 0))
    assert RATE_LIMIT_REQUEST.decode(asked.SerializeToString()) == {
        "domain": "api",
        "hits_addend": 2**32 - 1,
        "descriptors": [
            {
                "entries": [{"key": "plan", "value": "free"}, {"key": "user", "value": "é"}],
                "hits_addend": {"value": 2**64 - 1},
            },
            {"hits_addend": {}},
        ],
    }


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"\x0a\x05edge", "cut off"),
        (b"\x0a", "cut off"),
        (b"\x18\x80", "cut off"),
        (b"\x00\x01", "without a sound number"),
        (b"\x18" + b"\xff" * 10, "more than 10 bytes"),
        (b"\x0a" + b"\x80" * 5 + b"\0", "more than 5 bytes"),
        (b"\x13\x14", "group"),
        (b"\x12\x03\x0a\x05x", "cut off"),
    ],
)
def test_an_invalid_message_is_refused(data: bytes, error: str) -> None:
    with pytest.raises(InputError, match=error):
        RATE_LIMIT_REQUEST.decode(data)
    if "group" not in error:
        with pytest.raises(DecodeError, match=r".*"):
            message(f"{SERVICE}.RateLimitRequest").FromString(data)


def test_unknown_fields_are_skipped_and_the_last_value_counts() -> None:
    unknown = b"\x98\x06\x01" + b"\x9d\x06abcd" + b"\x99\x06abcdefgh" + b"\x9a\x06\x02ab"
    wrong_type = b"\x08\x01"
    data = unknown + b"\x0a\x01a" + wrong_type + b"\x0a\x01b" + b"\x18\x80\x80\x80\x80\x10"
    assert RATE_LIMIT_REQUEST.decode(data) == {"domain": "b", "hits_addend": 0}


def test_bytes_that_are_no_text_are_kept() -> None:
    (text,) = RATE_LIMIT_REQUEST.decode(b"\x0a\x02\xffa").values()
    assert text.encode("utf-8", "surrogateescape") == b"\xffa"


def test_negative_numbers_are_encoded() -> None:
    table = Message("Numbers", Field("small", 1, Scalar.INT32), Field("large", 2, Scalar.INT64))
    numbers = {"small": -1, "large": -(2**63)}
    assert table.decode(table.encode(numbers)) == numbers
