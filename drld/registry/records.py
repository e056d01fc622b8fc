"""What the values in etcd are, and how they are read: nothing that stands there is trusted.

A limit is a table of `[[limit]]` written as JSON, and is validated by the code that validates the
file. Records of members ignore keys they do not know, so that versions of drld can be mixed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from drld.config import read_limit
from drld.config.fields import Endpoint
from drld.config.problems import Problems, must_be
from drld.errors import ConfigError
from drld.registry.model.keys import Keys, source
from drld.registry.model.state import Member
from drld.spec import LimitSpec, RegistrySpec, format_endpoint

MAX_VALUE_BYTES = 256 << 10
"""Room for the shares of more limiters than any fleet has had; etcd's own bound is 1.5 MB."""
MAX_REFUSED = 16
MAX_UNCOUNTED = 1000
MAX_UNUSED = 10_000
MAX_REASON = 200


class _Record(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, allow_inf_nan=False)


class _MemberRecord(_Record):
    address: Endpoint
    joined: bool = False
    since: Annotated[int, Field(ge=0, lt=1 << 40)] = 0


class Alive(_Record):
    """What a limiter says of itself while etcd hears from it."""

    address: Endpoint
    applied: Annotated[int, Field(ge=0, lt=1 << 63)] = 0
    """The revision of the registry that its configuration is from; 0: not of any yet."""
    refused: Annotated[dict[str, str], Field(max_length=MAX_REFUSED)] = Field(default_factory=dict)
    """Why it does not use what stands under some keys."""
    unused: Annotated[list[int], Field(max_length=MAX_UNUSED)] = Field(default_factory=list)
    """All limits that it does not use, or not as they are; so many, if there are more."""
    uncounted: Annotated[list[str], Field(max_length=MAX_UNCOUNTED)] = Field(default_factory=list)
    """All members that it does not count, or not as they are."""


@dataclass(frozen=True, slots=True)
class Readers:
    """How one limiter reads what stands in the registry."""

    interval_ns: int
    """The estimate interval of limits that do not say their own."""
    registry: RegistrySpec

    def limit(self, value: bytes, key: str) -> LimitSpec:
        """Read a limit, its interface by this host's name.

        Raises:
            ConfigError: it cannot be used.
        """
        spec = read_limit(parsed(value, key), source(key), self.interval_ns)
        interface = self.registry.interfaces.get(spec.match.interface, spec.match.interface)
        return replace(spec, match=replace(spec.match, interface=interface))

    @staticmethod
    def member(value: bytes, key: str) -> Member:
        """Read a member.

        Raises:
            ConfigError: it cannot be used.
        """
        record = _record(_MemberRecord, value, key)
        return Member(record.address, record.joined, record.since)


def read_alive(value: bytes, key: str) -> Alive:
    """Read what a limiter says of itself.

    Raises:
        ConfigError: it cannot be used.
    """
    record: Alive = _record(Alive, value, key)
    return record


def write_member(member: Member) -> bytes:
    """The value of a member."""
    address = format_endpoint(*member.address)
    return _written({"address": address, "since": member.since, "joined": member.joined})


def write_members(keys: Keys, members: Mapping[str, Member]) -> dict[str, bytes]:
    """Members by name as they stand in the registry, by key."""
    return {keys.member(name): write_member(member) for name, member in members.items()}


def write_alive(
    keys: Keys, address: tuple[str, int], applied: int, refused: Mapping[str, str]
) -> bytes:
    """The value of a limiter's `alive`; of what it refuses the first few, shortened."""
    uncounted = sorted(name for key in refused if (name := keys.member_of(key)) is not None)
    value = {
        "address": format_endpoint(*address),
        # Who cannot name all that it does not count says that it counts nobody.
        "applied": applied if len(uncounted) <= MAX_UNCOUNTED else 0,
        "refused": {
            key: refused[key][:MAX_REASON] for key in keys.by_weight(refused)[:MAX_REFUSED]
        },
    }
    unused = sorted(number for key in refused if (number := keys.limit_of(key)) is not None)
    if unused:
        # Those that were added last are what somebody may wait for.
        value["unused"] = unused[-MAX_UNUSED:]
    if uncounted:
        value["uncounted"] = uncounted[:MAX_UNCOUNTED]
    return _written(value)


def write_limit(limit: object) -> bytes:
    """The value of a limit: a table as TOML or JSON has it."""
    return _written(limit)


def parsed(value: bytes, key: str) -> Any:
    """The JSON in a value.

    Raises:
        ConfigError: there is none.
    """
    if len(value) > MAX_VALUE_BYTES:
        raise ConfigError([f"{source(key)}: more than {MAX_VALUE_BYTES} bytes"])
    try:
        return json.loads(value.decode())
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:MAX_REASON]
        raise ConfigError([f"{source(key)}: no JSON: {reason}"]) from error


def _record(model: type[Any], value: bytes, key: str) -> Any:
    given = parsed(value, key)
    problems = Problems(source(key))
    if not isinstance(given, dict):
        raise ConfigError([f"{source(key)}: {must_be('a table', given)}"])
    try:
        return model.model_validate(given)
    except ValidationError as error:
        problems.include([], model, error)
        raise ConfigError(problems.lines) from None


def _written(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
