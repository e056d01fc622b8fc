"""A whole configuration: a document of TOML in, a validated `drld.spec.LimiterSpec` out.

All mistakes of a document are reported at once, one line each, with the key's path. Keys, defaults
and bounds: docs/configuration.md.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from drld.config.checks import check_fleet, check_limits
from drld.config.http import read_http
from drld.config.keys import read_ring
from drld.config.layers import Layer, merge
from drld.config.limits import DEFAULT_FABRIC, Fleet, limit_spec, limit_table
from drld.config.plane_tables import PlaneTables, planes
from drld.config.probes import read_probes
from drld.config.problems import Problems
from drld.config.registry import read_registry
from drld.config.schema import (
    GossipTable,
    HttpTable,
    LimiterTable,
    PeerTable,
    PlaneTable,
    ProbesTable,
    RegistryTable,
    Table,
)
from drld.config.sections import array_of_tables, read_section, read_sections, read_table
from drld.errors import ConfigError
from drld.spec import GossipSpec, LimiterSpec, PeerSpec

T = TypeVar("T", bound=Table)

CONTROL_DIRECTORY = "/run/drld"
MOST_IN_MESH = 30
"""The limiters of the largest fleet that has a mesh by default. The messages of a mesh grow with
the square of this number."""
SECTIONS = ("limiter", "http", "gossip", "probes", "registry", "peer", "limit")
"""The tables of a document, beside those of planes."""


def from_document(
    document: Mapping[str, object], file: str, layers: Sequence[Layer] = ()
) -> LimiterSpec:
    """Validate a document after the changes of `layers`; `file` names it in messages.

    Raises:
        ConfigError: the document has mistakes; `problems` has a line for each.
    """
    problems = Problems(file)
    kinds = planes()
    _check_keys(document, kinds, problems)
    limiter = read_section("limiter", LimiterTable, document.get("limiter"), problems)
    settings = [_plane_table(kind, document, problems) for kind in kinds]
    gossip = read_section("gossip", GossipTable, document.get("gossip", {}), problems)
    probes = read_section("probes", ProbesTable, document.get("probes", {}), problems)
    probe_spec = read_probes(probes, problems)
    http = _optional_section("http", HttpTable, document, problems)
    http_spec = read_http(["http"], http, problems) if http else None
    read_peer = partial(read_table, PeerTable)
    found = read_sections("peer", read_peer, document.get("peer", []), problems)
    peers = [table for _, table in found]
    registry = _optional_section("registry", RegistryTable, document, problems)
    written = limits_of(document)
    if layers and isinstance(written, list):
        written = merge(written, layers, problems)
    limits = read_sections("limit", limit_table, written, problems)
    check_fleet(limiter, peers, problems)
    tables = [table for _, table in limits]
    check_limits(tables, problems)
    for kind, plane_table in zip(kinds, settings, strict=True):
        if plane_table:
            its = {at: table for at, table in enumerate(tables) if isinstance(table, kind.limit)}
            plane_table.check(its, problems)
    fleet = _fleet(document, limiter, gossip, peers, kinds)
    specs = [
        limit_spec(["limit", index], written, table, fleet, problems)
        for index, (written, table) in enumerate(limits)
    ]
    ring = read_ring(["gossip"], gossip, problems) if gossip else None
    registry_spec = read_registry(registry, limiter.name if limiter else "", problems)
    if problems.lines or not (limiter and gossip and ring):
        raise ConfigError(problems.lines)
    return LimiterSpec(
        name=limiter.name,
        listen=limiter.listen,
        control=limiter.control or f"{_control_directory()}/{limiter.name}.sock",
        gossip=GossipSpec(
            fleet.fabric, gossip.branching, gossip.interval, frozenset(gossip.model_fields_set)
        ),
        peers=tuple(PeerSpec(table.name, table.address) for table in peers if table),
        limits=tuple(spec for spec in specs if spec),
        planes=tuple(table.spec() for table in settings if table),
        control_group=limiter.control_group,
        registry=registry_spec,
        ring=ring,
        probes=probe_spec,
        http=http_spec,
    )


def limits_of(document: Mapping[str, object]) -> object:
    """Return the value of `limit`; None if the document must have limits and has none."""
    return document.get("limit", [] if "registry" in document else None)


def _check_keys(
    document: Mapping[str, object], kinds: Sequence[PlaneTables], problems: Problems
) -> None:
    known = (*SECTIONS, *(kind.key for kind in kinds))
    for key in document:
        if key not in known:
            problems.unknown([], key, known)


def _optional_section(
    key: str, model: type[T], document: Mapping[str, object], problems: Problems
) -> T | None:
    """Read the table `[key]` of a document that may have none."""
    return read_section(key, model, document[key], problems) if key in document else None


def _plane_table(
    kind: PlaneTables, document: Mapping[str, object], problems: Problems
) -> PlaneTable | None:
    """Read the table of a plane, or all of its tables if there may be several."""
    if kind.element is None:
        return read_section(kind.key, kind.table, document.get(kind.key, {}), problems)
    value = document.get(kind.key, [])
    if not isinstance(value, list):
        problems.refuse([kind.key], value, array_of_tables(kind.key))
        return None
    return read_table(kind.table, [], {kind.key: value}, problems)


def _fleet(
    document: Mapping[str, object],
    limiter: LimiterTable | None,
    gossip: GossipTable | None,
    peers: Sequence[PeerTable | None],
    kinds: Sequence[PlaneTables],
) -> Fleet:
    """Return the facts about other tables that the limits of a document need."""
    is_open = "registry" in document
    size = 1 + len(peers) + is_open
    fabric = DEFAULT_FABRIC
    if size <= MOST_IN_MESH and not is_open:
        of_planes = (kind.fabric for kind in kinds if kind.fabric and document.get(kind.key))
        fabric = next(of_planes, DEFAULT_FABRIC)
    names = {table.name for table in peers if table}
    return Fleet(
        size=size,
        members=frozenset({limiter.name, *names}) if limiter and all(peers) else None,
        interval_ns=gossip.interval if gossip else 0,
        open=is_open,
        fabric=(gossip and gossip.fabric) or fabric,
    )


def _control_directory() -> str:
    """Return the default directory of control sockets: an ordinary user has a directory of their
    own."""
    own = os.environ.get("XDG_RUNTIME_DIR")
    common = Path(CONTROL_DIRECTORY)
    writable = os.access(common if common.exists() else common.parent, os.W_OK)
    return f"{own}/drld" if own and not writable else CONTROL_DIRECTORY
