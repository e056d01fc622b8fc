"""The changes of the configuration that a running daemon takes over, and what a limit keeps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from drld.errors import ConfigError
from drld.policy import Policy
from drld.spec import LimiterSpec, PlaneSpec, format_endpoint

FIXED = ("name", "listen", "control", "control_group")
"""Keys of `[limiter]` that only a restart can change; each plane has its own."""


def check(old: LimiterSpec, new: LimiterSpec) -> None:
    """Check that a configuration can follow another while the daemon runs.

    Raises:
        ConfigError: a key changed that only a restart can change.
    """
    planes = dict.fromkeys(type(plane) for plane in (*old.planes, *new.planes))
    before, after = (_fixed(spec, planes) for spec in (old, new))
    problems = [
        f"{key}: cannot change from {_written(value)} to {_written(after[key])} while the daemon "
        "runs: restart it"
        for key, value in before.items()
        if value != after[key]
    ]
    if problems:
        raise ConfigError(problems)


def _fixed(spec: LimiterSpec, planes: Iterable[type[PlaneSpec]]) -> dict[str, Any]:
    """The values of the keys that only a restart can change."""
    values = {f"limiter.{key}": getattr(spec, key) for key in FIXED}
    for plane in planes:
        values |= {f"{plane.key}.{key}": it for key, it in spec.plane(plane).fixed().items()}
    return values


def _written(value: Any) -> str:
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
