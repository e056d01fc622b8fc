"""Reads and writes the values in etcd; values that are read are not trusted.

A limit is a table of `[[limit]]` written as JSON, and is validated by the code that validates the
configuration file. Records of members ignore unknown keys, so that a fleet can mix versions of
drld.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from drld.config import read_limit
from drld.config.fields import Endpoint
from drld.config.problems import Problems, must_be
from drld.errors import ConfigError
from drld.registry.model.keys import Keys, source
from drld.registry.model.state import Member
from drld.spec import LimitSpec, RegistrySpec, format_endpoint

MAX_VALUE_BYTES = 256 << 10
"""Enough for the shares of thousands of limiters; etcd's own bound is 1.5 MB."""
MAX_REFUSED = 16
MAX_UNCOUNTED = 1000
MAX_UNUSED = 10_000
MAX_REASON = 200


class _Record(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, allow_inf_nan=False)


Record = TypeVar("Record", bound=_Record)


class _MemberRecord(_Record):
    address: Endpoint
    joined: bool = False
    since: Annotated[int, Field(ge=0, lt=1 << 40)] = 0


class Alive(_Record):
    """A limiter's report about itself, while etcd hears from it."""

    address: Endpoint
    applied: Annotated[int, Field(ge=0, lt=1 << 63)] = 0
    """The registry's revision that is in force at the limiter; 0: none yet."""
    refused: Annotated[dict[str, str], Field(max_length=MAX_REFUSED)] = Field(default_factory=dict)
    """Keys with values that are not in force at the limiter, and the reasons."""
    unused: Annotated[list[int], Field(max_length=MAX_UNUSED)] = Field(default_factory=list)
    """Limits that are not in force at the limiter as etcd has them, `MAX_UNUSED` at most."""
    uncounted: Annotated[list[str], Field(max_length=MAX_UNCOUNTED)] = Field(default_factory=list)
    """All members that the limiter does not count as etcd has them."""


@dataclass(frozen=True, slots=True)
class Readers:
    """One limiter's readers of the registry's values."""

    interval_ns: int
    """The estimate interval of limits without the key `interval`."""
    registry: RegistrySpec

    def limit(self, value: bytes, key: str) -> LimitSpec:
        """Read a limit, with this host's names of interfaces.

        Raises:
            ConfigError: the limit is invalid.
        """
        spec = read_limit(parsed(value, key), source(key), self.interval_ns)
        return replace(spec, match=spec.match.on_host(self.registry.interfaces))

    @staticmethod
    def member(value: bytes, key: str) -> Member:
        """Read a member.

        Raises:
            ConfigError: the member is invalid.
        """
        record = _record(_MemberRecord, value, key)
        return Member(record.address, record.joined, record.since)


def read_alive(value: bytes, key: str) -> Alive:
    """Read a limiter's report about itself.

    Raises:
        ConfigError: the report is invalid.
    """
    return _record(Alive, value, key)


def write_member(member: Member) -> bytes:
    """The value of a member."""
    address = format_endpoint(*member.address)
    return written({"address": address, "since": member.since, "joined": member.joined})


def write_members(keys: Keys, members: Mapping[str, Member]) -> dict[str, bytes]:
    """The values of members, by key."""
    return {keys.member(name): write_member(member) for name, member in members.items()}


def write_alive(
    keys: Keys, address: tuple[str, int], applied: int, refused: Mapping[str, str]
) -> bytes:
    """The value of a limiter's `alive`; of its refusals only the first few, shortened."""
    uncounted = sorted(name for key in refused if (name := keys.member_of(key)) is not None)
    value = {
        "address": format_endpoint(*address),
        # A limiter that cannot name all members it does not count reports that it counts none.
        "applied": applied if len(uncounted) <= MAX_UNCOUNTED else 0,
        "refused": {
            key: refused[key][:MAX_REASON] for key in keys.by_weight(refused)[:MAX_REFUSED]
        },
    }
    unused = sorted(number for key in refused if (number := keys.limit_of(key)) is not None)
    if unused:
        # The limits added last are those that an operator may wait for.
        value["unused"] = unused[-MAX_UNUSED:]
    if uncounted:
        value["uncounted"] = uncounted[:MAX_UNCOUNTED]
    return written(value)


def parsed(value: bytes, key: str) -> Any:
    """The JSON in a value.

    Raises:
        ConfigError: the value is not JSON, or too long.
    """
    if len(value) > MAX_VALUE_BYTES:
        raise ConfigError([f"{source(key)}: more than {MAX_VALUE_BYTES} bytes"])
    try:
        return json.loads(value.decode())
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:MAX_REASON]
        raise ConfigError([f"{source(key)}: not JSON: {reason}"]) from error


def _record(model: type[Record], value: bytes, key: str) -> Record:
    given = parsed(value, key)
    if not isinstance(given, dict):
        raise ConfigError([f"{source(key)}: {must_be('a table', given)}"])
    try:
        return model.model_validate(given)
    except ValidationError as error:
        problems = Problems(source(key))
        problems.include([], model, error)
        raise ConfigError(problems.lines) from None


def written(value: object) -> bytes:
    """A value as JSON, such as a limit's table."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
