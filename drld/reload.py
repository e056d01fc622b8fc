"""What a reload takes over, and what it leaves behind: the membership, and what limits know.

Who leaves. A peer that a reload takes out of the configuration is *departed*: it is spoken to no
more, and is in the membership as one that is silent until nothing of it counts any more anywhere
(`Membership.forgotten_ns`). Only then are the limits divided by one less: all others have given up
its share by then, and what its orphans owe in a tree is paid. By who joins they are divided at
once (docs/conservative-rule.md).

Who stays goes on being counted in, or out, for as long as it has been: the membership begins anew
only with other settings of the fabric, or where the limiter has left its fleet. A limit keeps what
it knows as long as its estimates mean the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import fields

from drld.errors import ConfigError
from drld.gossip.fabrics.membership import Membership
from drld.limiter import membership
from drld.policy import Policy
from drld.spec import LimiterSpec, PacketsSpec, format_endpoint

FIXED = ("name", "listen", "control", "control_group")
"""Keys of `[limiter]` that only a restart can change, as it must all of `[packets]`."""


def check(old: LimiterSpec, new: LimiterSpec) -> None:
    """See that one configuration can follow another while running.

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
    """Peers that are configured no more, and until when they are in the membership.

    Args:
        before: those who had departed already.
        running: the membership up to now.
        spec: the configuration from now on.
        now_ns: monotonic.
    """
    configured = {peer.name for peer in spec.peers}
    forgotten_ns = now_ns + running.forgotten_ns
    return {
        peer: before.get(peer, forgotten_ns) for peer in running.peers if peer not in configured
    }


def fleet(
    old: LimiterSpec, new: LimiterSpec, running: Membership, departed: Set[str]
) -> Membership:
    """The membership under a new configuration, with those that have departed."""
    peers = {peer.name for peer in new.peers} | departed
    if new.gossip == old.gossip and (new.joined or not old.joined):
        return with_peers(running, peers)
    fresh = membership(new.name, {new.name, *peers}, new.gossip)
    fresh.numbering = running.numbering
    return fresh


def with_peers(running: Membership, peers: Set[str]) -> Membership:
    """The same membership, with these peers."""
    return running if peers == set(running.peers) else running.with_peers(peers)


def knowledge_stays(old: Policy, new: Policy) -> bool:
    """Whether what a limit knows is of use to what it is to be, with the same fabric."""
    return (old.allocator, old.parameters, old.ewma, old.interval_ns, old.flow) == (
        new.allocator,
        new.parameters,
        new.ewma,
        new.interval_ns,
        new.flow,
    )
