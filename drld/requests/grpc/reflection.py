"""Reflection (grpc.reflection.v1 and v1alpha): clients ask for services and their types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from drld.requests.grpc.call import Origin, Status
from drld.requests.grpc.protobuf import Enumeration, Field, Message, Scalar
from drld.requests.grpc.schema import (
    FILES,
    REFLECTION_REQUEST,
    REFLECTION_RESPONSE,
    SERVED,
    File,
    Method,
)

# google/protobuf/descriptor.proto, as much of it as the files of `schema` need.
_OPTIONAL, _REPEATED = 1, 3
_ENUM, _MESSAGE = 14, 11
_FIELD = Message(
    "FieldDescriptorProto",
    Field("name", 1, Scalar.STRING),
    Field("number", 3, Scalar.INT32),
    Field("label", 4, Scalar.INT32),
    Field("type", 5, Scalar.INT32),
    Field("type_name", 6, Scalar.STRING),
)
_VALUE = Message(
    "EnumValueDescriptorProto", Field("name", 1, Scalar.STRING), Field("number", 2, Scalar.INT32)
)
_ENUMERATION = Message(
    "EnumDescriptorProto", Field("name", 1, Scalar.STRING), Field("value", 2, _VALUE, repeated=True)
)
_OF_MESSAGES = (
    Field("name", 1, Scalar.STRING),
    Field("field", 2, _FIELD, repeated=True),
    Field("enum_type", 4, _ENUMERATION, repeated=True),
)
_NESTED = Message("DescriptorProto", *_OF_MESSAGES)
_TOP = Message("DescriptorProto", *_OF_MESSAGES, Field("nested_type", 3, _NESTED, repeated=True))
_METHOD = Message(
    "MethodDescriptorProto",
    Field("name", 1, Scalar.STRING),
    Field("input_type", 2, Scalar.STRING),
    Field("output_type", 3, Scalar.STRING),
    Field("client_streaming", 5, Scalar.BOOL),
    Field("server_streaming", 6, Scalar.BOOL),
)
_SERVICE = Message(
    "ServiceDescriptorProto",
    Field("name", 1, Scalar.STRING),
    Field("method", 2, _METHOD, repeated=True),
)
_FILE = Message(
    "FileDescriptorProto",
    Field("name", 1, Scalar.STRING),
    Field("package", 2, Scalar.STRING),
    Field("dependency", 3, Scalar.STRING, repeated=True),
    Field("message_type", 4, _TOP, repeated=True),
    Field("enum_type", 5, _ENUMERATION, repeated=True),
    Field("service", 6, _SERVICE, repeated=True),
    Field("syntax", 12, Scalar.STRING),
)


def service_names() -> list[str]:
    """Return the full names of all services."""
    return [f"{file.package}.{service.name}" for file in SERVED for service in file.services]


def file_descriptor(file: File) -> bytes:
    """Return the `FileDescriptorProto` of a file."""
    names = {id(kind): name for each in (file, *file.imports) for name, kind in _types(each)}
    messages = [it for it in file.types if isinstance(it, Message)]
    return _FILE.encode(
        {
            "name": file.path,
            "package": file.package,
            "dependency": [it.path for it in file.imports],
            "message_type": [_message(it, names) for it in messages],
            "enum_type": [_enumeration(it) for it in file.types if isinstance(it, Enumeration)],
            "service": [
                {"name": it.name, "method": [_method(each, names) for each in it.methods]}
                for it in file.services
            ],
            "syntax": "proto3",
        }
    )


def reflect(data: bytes, _: Origin) -> bytes:
    """Answer one question of a stream."""
    asked = REFLECTION_REQUEST.decode(data)
    answer: dict[str, Any]
    if "list_services" in asked:
        services = [{"name": name} for name in service_names()]
        answer = {"list_services_response": {"service": services}}
    elif (file := _wanted(asked)) is not None:
        answer = {"file_descriptor_response": {"file_descriptor_proto": [file_descriptor(file)]}}
    else:
        error = {"error_code": Status.NOT_FOUND.value, "error_message": "there is none"}
        answer = {"error_response": error}
    return REFLECTION_RESPONSE.encode(
        {"valid_host": asked.get("host", ""), "original_request": asked, **answer}
    )


def _wanted(asked: dict[str, Any]) -> File | None:
    path, symbol = asked.get("file_by_filename"), asked.get("file_containing_symbol")
    return next((it for it in FILES if it.path == path or symbol in {*_symbols(it)}), None)


def _symbols(file: File) -> Iterator[str]:
    """Iterate over the full names that a file defines."""
    yield from (name for name, _ in _types(file))
    for service in file.services:
        yield f"{file.package}.{service.name}"
        yield from (f"{file.package}.{service.name}.{it.name}" for it in service.methods)


def _types(file: File) -> Iterator[tuple[str, Message | Enumeration]]:
    """Iterate over the full names of the types of a file, and the types."""
    waiting = [(file.package, it) for it in file.types]
    while waiting:
        parent, kind = waiting.pop()
        name = f"{parent}.{kind.name}"
        yield name, kind
        if isinstance(kind, Message):
            waiting += [(name, it) for it in kind.within]


def _message(message: Message, names: dict[int, str]) -> dict[str, Any]:
    nested = [_message(it, names) for it in message.within if isinstance(it, Message)]
    return {
        "name": message.name,
        "field": [_field(it, names) for it in message.fields],
        "enum_type": [_enumeration(it) for it in message.within if isinstance(it, Enumeration)],
        **({"nested_type": nested} if nested else {}),
    }


def _field(field: Field, names: dict[int, str]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "name": field.name,
        "number": field.number,
        "label": _REPEATED if field.repeated else _OPTIONAL,
    }
    if isinstance(field.kind, Scalar):
        return {**described, "type": field.kind.value}
    kind = _MESSAGE if isinstance(field.kind, Message) else _ENUM
    return {**described, "type": kind, "type_name": f".{names[id(field.kind)]}"}


def _enumeration(enumeration: Enumeration) -> dict[str, Any]:
    values = [{"name": name, "number": number} for name, number in enumeration.values.items()]
    return {"name": enumeration.name, "value": values}


def _method(method: Method, names: dict[int, str]) -> dict[str, Any]:
    return {
        "name": method.name,
        "input_type": f".{names[id(method.takes)]}",
        "output_type": f".{names[id(method.returns)]}",
        "client_streaming": method.client_streams,
        "server_streaming": method.server_streams,
    }
