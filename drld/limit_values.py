"""A limit as flat keys and values, as people write them: what a history of changes compares.

Only a limit's own fields are in it, and none of them is a secret.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

from drld.policy import Policy
from drld.spec import LimitSpec
from drld.units import BYTES, format_duration, format_rate, format_size, human_amount, human_rate

MAX_CHARACTERS = 200
"""Longest text of a value; the rest is cut off."""


class LimitChange(NamedTuple):
    """One limit before and after a change of the configuration; None: there is none."""

    old: LimitSpec | None
    new: LimitSpec | None

    @property
    def limit(self) -> LimitSpec:
        """The limit, as it is now if it is still there."""
        either = self.new or self.old
        assert either is not None
        return either

    def keys(self) -> dict[str, list[str | None]]:
        """The old and the new value of each key that differs; None: it is left out."""
        before, after = (limit_values(it) if it else {} for it in self)
        return {
            key: [before.get(key), after.get(key)]
            for key in {**before, **after}
            if before.get(key) != after.get(key)
        }


def changed_limits(old: Iterable[LimitSpec], new: Iterable[LimitSpec]) -> list[LimitChange]:
    """The limits that differ, compared by `id`."""
    before, after = ({limit.id: limit for limit in limits} for limits in (old, new))
    return [
        LimitChange(was, now)
        for limit_id in {**before, **after}
        # Most are the same objects: a comparison of all their fields takes longer.
        if (was := before.get(limit_id)) is not (now := after.get(limit_id)) and was != now
    ]


def limit_values(limit: LimitSpec) -> dict[str, str]:
    """The values of a limit by key, such as `rate` and `match.out`."""
    policy = limit.policy
    in_bytes = policy.unit == BYTES
    rate, burst = policy.unit.shown_rate(policy.rate), policy.unit.shown_amount(policy.burst)
    values: dict[str, Any] = {
        "name": policy.name,
        "rate": format_rate(policy.rate) if in_bytes else human_rate(rate, policy.unit.name),
        "burst": (
            "auto"
            if policy.burst_is_automatic
            else format_size(policy.burst)
            if in_bytes
            else human_amount(burst, policy.unit.name)
        ),
        **_divided(policy),
        "interval": format_duration(policy.interval_ns),
        "ewma": policy.ewma,
        "mode": policy.mode,
        "on_failure": limit.on_failure,
        "excess": policy.excess,
        "flow": policy.flow,
        **_flat("shares", policy.shares),
        **_flat("weights", policy.weights),
        **_flat("match", limit.match.written()),
    }
    return {key: _text(value) for key, value in values.items() if value is not None}


def _divided(policy: Policy) -> dict[str, Any]:
    """The keys that divide the rate, or the bucket of each key."""
    if policy.keyed is None:
        return {"allocator": policy.allocator, **_flat("allocator", policy.parameters)}
    unit = policy.unit
    overrides = {
        f"overrides.{','.join(it.key)}": f"{human_rate(unit.shown_rate(it.rate), unit.name)}, "
        f"burst {human_amount(unit.shown_amount(it.burst), unit.name)}"
        for it in policy.keyed.overrides
    }
    return {"bucket": policy.keyed.bucket, "max_keys": policy.keyed.max_keys, **overrides}


def _flat(name: str, value: object) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return {f"{name}.{key}": it for key, it in value.items()}
    if not is_dataclass(value):
        return {}
    return {f"{name}.{key.name}": getattr(value, key.name) for key in fields(value)}


def _text(value: object) -> str:
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, tuple | list | frozenset):
        value = ", ".join(map(str, value))
    return str(value)[:MAX_CHARACTERS]
