"""The knowledge that survives a reload: of the membership, and of each limit.

Peers that leave. A peer that a reload removes from the configuration is *departed*. The limiter
sends it nothing more, and keeps it in the membership as a silent peer until it counts nowhere in
the fleet (`Membership.forgotten_ns`). Only then are the limits divided by one limiter less, because
by then all others have released its share. A peer that joins counts at once
(docs/conservative-rule.md).

Peers that stay keep their connections and ages, unless the settings of the fabric change or the
limiter has left its fleet. A limit keeps its knowledge as long as its estimates mean the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from drld.errors import ConfigError
from drld.gossip.fabrics.membership import Membership
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


def departed(
    before: Mapping[str, int], running: Membership, spec: LimiterSpec, now_ns: int
) -> dict[str, int]:
    """Peers that the configuration removes, and the time until which the membership keeps them, ns.

    Args:
        before: peers that departed earlier, with their times.
        running: the membership up to now.
        spec: the configuration from now on.
        now_ns: monotonic.
    """
    configured = {peer.name for peer in spec.peers}
    forgotten_ns = now_ns + running.forgotten_ns
    return {
        peer: before.get(peer, forgotten_ns) for peer in running.peers if peer not in configured
    }


def knowledge_stays(old: Policy, new: Policy) -> bool:
    """Whether a limit's knowledge still applies under its new policy, with the same fabric."""
    return (old.allocator, old.parameters, old.ewma, old.interval_ns, old.flow) == (
        new.allocator,
        new.parameters,
        new.ewma,
        new.interval_ns,
        new.flow,
    )
