"""The changes of the configuration that a running daemon takes over, and what a limit keeps."""

from __future__ import annotations

from dataclasses import fields

from drld.errors import ConfigError
from drld.policy import Policy
from drld.spec import LimiterSpec, PacketsSpec, format_endpoint

FIXED = ("name", "listen", "control", "control_group")
"""Keys of `[limiter]` that only a restart can change. So are all keys of `[packets]`."""


def check(old: LimiterSpec, new: LimiterSpec) -> None:
    """Check that a configuration can follow another while the daemon runs.

    Raises:
        ConfigError: a key changed that only a restart can change.
    """
    packets = [field.name for field in fields(PacketsSpec)]
    changes = [
        *((f"limiter.{key}", getattr(old, key), getattr(new, key)) for key in FIXED),
        *((f"packets.{k}", getattr(old.packets, k), getattr(new.packets, k)) for k in packets),
    ]
    problems = [
        f"{key}: cannot change from {_written(before)} to {_written(after)} while the daemon runs: "
        "restart it"
        for key, before, after in changes
        if before != after
    ]
    if problems:
        raise ConfigError(problems)


def _written(value: str | int | tuple[str, int] | None) -> str:
    """A key's value as a file has it."""
    if isinstance(value, tuple):
        value = format_endpoint(*value)
    return "the default" if value is None else repr(value)


def knowledge_stays(old: Policy, new: Policy) -> bool:
    """Whether a limit's knowledge still applies under its new policy, with the same fabric."""
    return (old.allocator, old.parameters, old.ewma, old.interval_ns, old.flow) == (
        new.allocator,
        new.parameters,
        new.ewma,
        new.interval_ns,
        new.flow,
    )
