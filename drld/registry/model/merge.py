"""A limiter's configuration, merged from its file and the fleet's registry. Pure.

The file has the settings of this host: its name and addresses, and perhaps limits and peers of its
own. If a limit or peer is in both, the file's counts, and the difference is a problem. A peer of
the file that has registered with the same address is none. So a fleet of files can move to a
registry limiter by limiter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple, TypeVar

from drld.config.checks import unreachable
from drld.config.problems import must_be
from drld.registry.model.keys import source
from drld.registry.model.state import Held, Registry
from drld.spec import LimiterSpec, LimitSpec, PeerSpec, format_endpoint

K = TypeVar("K", int, str)
V = TypeVar("V")


class Merged(NamedTuple):
    """The configuration, and the reasons by key why values of the registry are not in it."""

    spec: LimiterSpec
    problems: Mapping[str, str]


def merge(
    file: LimiterSpec, path: str, registry: Registry, in_force: Iterable[LimitSpec] = ()
) -> Merged:
    """Merge file and registry.

    A limit of the registry that clashes with another is replaced by the limit `in_force` with its
    id, if that one does not clash.
    """
    problems: dict[str, str] = {}
    return Merged(
        replace(
            file,
            peers=_peers(file, path, registry, problems),
            limits=_limits(file, path, registry, in_force, problems),
            joined=registry.joined,
        ),
        problems,
    )


def _by_age(held: Mapping[K, Held[V]]) -> list[tuple[K, Held[V]]]:
    """Values by age, the oldest first: every limiter of the fleet refuses the later ones."""
    return sorted(held.items(), key=lambda item: (item[1].revision, item[0]))


def _peers(
    file: LimiterSpec, path: str, registry: Registry, problems: dict[str, str]
) -> tuple[PeerSpec, ...]:
    names = {file.name: file.listen, **{peer.name: peer.address for peer in file.peers}}
    where = {file.listen: f"{path} (limiter.listen)"}
    for index, peer in enumerate(file.peers):
        where[peer.address] = f"{path} (peer[{index}].address)"
    peers = list(file.peers)
    members = [(name, held.value) for name, held in _by_age(registry.members)]
    for name, member in (*members, *sorted(registry.presumed.items())):
        address = member.address
        if names.get(name) == address or name == file.name:
            continue
        key = registry.keys.member(name)
        shown = format_endpoint(*address)
        reason = unreachable(file.listen[0], address[0])
        if name in names:
            reason = f"that of {name} in {path}, {format_endpoint(*names[name])}"
        elif address in where:
            reason = f"unique, but {where[address]} is the same"
        if reason:
            if name in registry.members:
                problems[key] = f"{source(key)}: address: {must_be(reason, shown)}"
            continue
        names[name] = address
        where[address] = source(key)
        peers.append(PeerSpec(name, address))
    return tuple(peers)


def _limits(
    file: LimiterSpec,
    path: str,
    registry: Registry,
    in_force: Iterable[LimitSpec],
    problems: dict[str, str],
) -> tuple[LimitSpec, ...]:
    ids = {limit.id: f"{path} (limit[{index}].id)" for index, limit in enumerate(file.limits)}
    names = {limit.name: f"{path} (limit[{index}].name)" for index, limit in enumerate(file.limits)}
    before = {limit.id: limit for limit in in_force}
    taken: dict[int, LimitSpec] = {}
    for limit_id, held in _by_age(registry.limits):
        limit = held.value
        key = registry.keys.limit(limit_id)
        if limit_id in ids:
            unique = f"unique, but {ids[limit_id]} is the same"
            problems[key] = f"{source(key)}: id: {must_be(unique, limit_id)}"
            continue
        if limit.name in names:
            unique = f"unique, but {names[limit.name]} is the same"
            problems[key] = f"{source(key)}: name: {must_be(unique, limit.name)}"
            if limit_id not in before or before[limit_id].name in names:
                continue
            limit = before[limit_id]
        names[limit.name] = f"{source(key)} (name)"
        taken[limit_id] = limit
    return (*file.limits, *(taken[limit_id] for limit_id in sorted(taken)))
