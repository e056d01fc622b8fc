"""The configuration file: TOML in, a validated `drld.spec.LimiterSpec` out.

Every mistake in a file is reported at once, one line each, with the key's path. Keys, defaults
and bounds: docs/configuration.md.
"""

from __future__ import annotations

import os
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from drld.allocators import DEFAULT_ALLOCATOR
from drld.burst import automatic_burst
from drld.config.allocator import read_allocator
from drld.config.checks import (
    check_alone,
    check_fabric,
    check_fleet,
    check_limiters,
    check_limits,
    check_shares,
    check_sum,
)
from drld.config.http import read_http
from drld.config.keys import read_ring
from drld.config.layers import Layer, merge
from drld.config.plane_tables import PlaneTables, plane_of, planes
from drld.config.probes import read_probes
from drld.config.problems import Location, Problems, must_be
from drld.config.registry import read_registry
from drld.config.regular_file import check_folder, check_owner, check_writers, read_regular
from drld.config.remarks import remarks
from drld.config.schema import (
    GossipTable,
    HttpTable,
    LimiterTable,
    LimitTable,
    PeerTable,
    PlaneTable,
    ProbesTable,
    RegistryTable,
    Table,
)
from drld.errors import ConfigError
from drld.policy import Mode, Policy
from drld.spec import GossipSpec, LimiterSpec, LimitSpec, OnFailure, PeerSpec, RegistrySpec

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = [
    "Files",
    "drop_ins",
    "from_document",
    "load",
    "load_registry",
    "parse",
    "parsed",
    "read",
    "read_drop_ins",
    "read_limit",
    "read_limits",
    "remarks",
]

T = TypeVar("T", bound=Table)

MAX_FILE_BYTES = 64_000_000
CONTROL_DIRECTORY = "/run/drld"
DEFAULT_FABRIC = "tree"
MOST_IN_MESH = 30
"""Limiters of a fleet whose default may be a mesh: its messages grow with their square."""
SECTIONS = ("limiter", "http", "gossip", "probes", "registry", "peer", "limit")
"""Tables beside those of planes."""


@dataclass(frozen=True, slots=True)
class Files:
    """A configuration file and its drop-ins, as they were read."""

    file: str
    document: Mapping[str, object]
    drop_ins: tuple[Layer, ...] = ()
    """In the order of their names."""

    def spec(self, *changes: Layer) -> LimiterSpec:
        """Validate what they make together, after these changes.

        Raises:
            ConfigError: it cannot be used; `problems` has a line for each mistake.
        """
        return from_document(self.document, self.file, (*self.drop_ins, *changes))

    def merged(self, *changes: Layer) -> Mapping[str, object]:
        """What they make together, as one document."""
        limits = _limits_of(self.document)
        if not isinstance(limits, list):
            return self.document
        layers = (*self.drop_ins, *changes)
        return {**self.document, "limit": merge(limits, layers, Problems(self.file))}


def load(path: str | os.PathLike[str]) -> LimiterSpec:
    """Read and validate a configuration file and its drop-ins.

    Raises:
        ConfigError: they cannot be read or used; `problems` has a line for each mistake.
    """
    return read(path).spec()


def read(path: str | os.PathLike[str], layers: tuple[Layer, ...] | None = None) -> Files:
    """Read a configuration file and its drop-ins, FILE.d/*.toml, in the order of their names.

    With `layers` it has these drop-ins instead.

    Raises:
        ConfigError: one cannot be read, is not TOML, or is a drop-in with more than limits.
    """
    document, file = _document(path, check_writers)
    try:
        check_folder(Path(path))
    except (OSError, ValueError) as error:
        raise ConfigError([f"{file}: {_reason(error)}"]) from error
    return Files(file, document, read_drop_ins(file) if layers is None else layers)


def read_drop_ins(file: str) -> tuple[Layer, ...]:
    """Read the drop-ins of a configuration file, in the order of their names.

    Raises:
        ConfigError: as `read`.
    """
    directory = drop_ins(file)
    try:
        found = sorted(drop_in for drop_in in directory.iterdir() if _is_drop_in(drop_in.name))
        check_writers(directory.stat())
        check_owner(Path(file), directory)
    except FileNotFoundError:
        found = []
    except (OSError, ValueError) as error:
        raise ConfigError([f"{directory}: {_reason(error)}"]) from error
    problems: list[str] = []
    layers: list[Layer] = []
    for drop_in in found:
        try:
            theirs, source = _document(drop_in, check_writers)
            limits = theirs.get("limit", [])
            if not isinstance(limits, list) or theirs.keys() - {"limit"}:
                raise ConfigError([f"{source}: must have [[limit]] tables, and nothing else"])
            layers.append(Layer(source, limits))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return tuple(layers)


def drop_ins(file: str) -> Path:
    """The directory with the drop-ins of a configuration file."""
    return Path(f"{file}.d")


def _is_drop_in(name: str) -> bool:
    return name.endswith(".toml") and not name.startswith(".")


def _limits_of(document: Mapping[str, object]) -> object:
    """The limits of a file; None if it must have some and has none."""
    return document.get("limit", [] if "registry" in document else None)


def load_registry(path: str | os.PathLike[str]) -> RegistrySpec:
    """Read the `[registry]` of a configuration file, whatever else there is in it.

    Raises:
        ConfigError: as `load`; there is none.
    """
    document, file = _document(path)
    problems = Problems(file)
    table = _section("registry", RegistryTable, document.get("registry"), problems)
    spec = read_registry(table, "drlctl", problems)
    if spec is None or problems.lines:
        raise ConfigError(problems.lines)
    return spec


def read_limits(path: str | os.PathLike[str]) -> list[object]:
    """The `[[limit]]` tables of a file that has nothing else, not validated.

    Raises:
        ConfigError: it cannot be read, or has something else.
    """
    document, file = _document(path)
    limits = document.get("limit")
    if not isinstance(limits, list) or not limits or document.keys() != {"limit"}:
        raise ConfigError([f"{file}: must have [[limit]] tables, and nothing else"])
    return limits


def read_limit(value: object, source: str, interval_ns: int) -> LimitSpec:
    """Validate one limit of a fleet whose members are not known; `source` names it in messages.

    A share of a limiter that is no member is not used, and a member without a share has 0.
    `interval_ns` is the estimate interval of a limit without its own.

    Raises:
        ConfigError: it cannot be used; `problems` has a line for each mistake.
    """
    problems = Problems(source)
    spec = None
    if isinstance(value, dict):
        table = _limit_table([], value, problems)
        spec = _limit_spec([], value, table, _Fleet(2, None, interval_ns, open=True), problems)
    else:
        problems.lines.append(f"{source}: {must_be('a table', value)}")
    if problems.lines or spec is None:
        raise ConfigError(problems.lines)
    return spec


def _document(
    path: str | os.PathLike[str], check: Callable[[os.stat_result], None] = lambda _: None
) -> tuple[Mapping[str, object], str]:
    """Read a TOML file that passes a check; with its name for messages."""
    file = os.fspath(path)
    try:
        data = read_regular(path, MAX_FILE_BYTES + 1, check)
    except (OSError, ValueError) as error:
        raise ConfigError([f"{file}: {_reason(error)}"]) from error
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError([f"{file}: more than {MAX_FILE_BYTES} bytes"])
    # Editors of Windows mark UTF-8 in front of the text.
    data = data.removeprefix(BOM_UTF8)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError([f"{file}: not UTF-8 (at line {line})"]) from error
    return parsed(text, file), file


def _reason(error: OSError | ValueError) -> object:
    """Why a file cannot be read."""
    return (error.strerror if isinstance(error, OSError) else None) or error


def parse(text: str, file: str) -> LimiterSpec:
    """Validate the text of a configuration file; `file` names it in messages.

    Raises:
        ConfigError: as `load`.
    """
    return from_document(parsed(text, file), file)


def parsed(text: str, file: str) -> Mapping[str, object]:
    """The document that a text is, not validated.

    Raises:
        ConfigError: it is not TOML.
    """
    try:
        document: Mapping[str, object] = tomllib.loads(text)
    # A ValueError of another kind is a number with more digits than int() takes.
    except ValueError as error:
        raise ConfigError([f"{file}: {' '.join(str(error).split())}"]) from error
    except RecursionError as error:
        raise ConfigError([f"{file}: nested too deeply"]) from error
    return document


def from_document(
    document: Mapping[str, object], file: str, layers: Sequence[Layer] = ()
) -> LimiterSpec:
    """Validate a parsed TOML document, after these changes; `file` names it in messages.

    Raises:
        ConfigError: as `load`.
    """
    problems = Problems(file)
    own = planes()
    known = (*SECTIONS, *(plane.key for plane in own))
    for key in document:
        if key not in known:
            problems.unknown([], key, known)
    limiter = _section("limiter", LimiterTable, document.get("limiter"), problems)
    settings = [_plane_table(it, document, problems) for it in own]
    gossip = _section("gossip", GossipTable, document.get("gossip", {}), problems)
    probes = read_probes(
        _section("probes", ProbesTable, document.get("probes", {}), problems), problems
    )
    http = None
    if "http" in document:
        table = _section("http", HttpTable, document["http"], problems)
        http = read_http(["http"], table, problems) if table else None
    peers = _sections("peer", partial(_table, PeerTable), document.get("peer", []), problems)
    registry = None
    if "registry" in document:
        registry = _section("registry", RegistryTable, document["registry"], problems)
    written = _limits_of(document)
    if layers and isinstance(written, list):
        written = merge(written, layers, problems)
    limits = _sections("limit", _limit_table, written, problems)
    check_fleet(limiter, [table for _, table in peers], problems)
    tables = [table for _, table in limits]
    check_limits(tables, problems)
    for plane, asked in zip(own, settings, strict=True):
        if asked:
            its = {at: table for at, table in enumerate(tables) if isinstance(table, plane.limit)}
            asked.check(its, problems)
    size = 1 + len(peers) + ("registry" in document)
    small = size <= MOST_IN_MESH and "registry" not in document
    fabrics = [plane.fabric for plane in own if plane.fabric and document.get(plane.key) and small]
    fleet = _Fleet(
        size=size,
        members=frozenset({limiter.name, *(table.name for _, table in peers if table)})
        if limiter and all(table for _, table in peers)
        else None,
        interval_ns=gossip.interval if gossip else 0,
        open="registry" in document,
        fabric=(gossip and gossip.fabric) or next(iter(fabrics), DEFAULT_FABRIC),
    )
    specs = [
        _limit_spec(["limit", index], written, table, fleet, problems)
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
        peers=tuple(PeerSpec(table.name, table.address) for _, table in peers if table),
        limits=tuple(spec for spec in specs if spec),
        planes=tuple(table.spec() for table in settings if table),
        control_group=limiter.control_group,
        registry=registry_spec,
        ring=ring,
        probes=probes,
        http=http,
    )


def _control_directory() -> str:
    """Where the control socket is by default: an ordinary user has a directory of its own."""
    own = os.environ.get("XDG_RUNTIME_DIR")
    there = (
        CONTROL_DIRECTORY if Path(CONTROL_DIRECTORY).exists() else Path(CONTROL_DIRECTORY).parent
    )
    return f"{own}/drld" if own and not os.access(there, os.W_OK) else CONTROL_DIRECTORY


@dataclass(frozen=True, slots=True)
class _Fleet:
    """What the rest of the file means for a limit."""

    size: int
    members: frozenset[str] | None
    """None where mistakes leave it open."""
    interval_ns: int
    open: bool
    """Whether there may be members that the file does not name."""
    fabric: str = DEFAULT_FABRIC


def _section(key: str, model: type[T], value: object, problems: Problems) -> T | None:
    """Make `[key]` of a value of the document."""
    if value is None:
        problems.add([key], f"is required: the file must have a [{key}] table")
        return None
    if not isinstance(value, dict):
        problems.refuse([key], value, f"one table, [{key}]")
        return None
    return _table(model, [key], value, problems)


def _plane_table(
    plane: PlaneTables, document: Mapping[str, object], problems: Problems
) -> PlaneTable | None:
    """Make the table of a plane, or all of its tables if there may be several."""
    if plane.element is None:
        return _section(plane.key, plane.table, document.get(plane.key, {}), problems)
    value = document.get(plane.key, [])
    if not isinstance(value, list):
        problems.refuse([plane.key], value, _array(plane.key))
        return None
    return _table(plane.table, [], {plane.key: value}, problems)


def _array(key: str) -> str:
    """What an array of tables is called."""
    return f"an array of tables: [[{key}]], with two brackets"


def _sections(
    key: str,
    read: Callable[[Location, object, Problems], T | None],
    value: object,
    problems: Problems,
) -> list[tuple[object, T | None]]:
    """Make all `[[key]]` of a value: what was written, and its table where that has no mistake."""
    if value is None:
        problems.add(
            [key], f"is required: the file must have a [[{key}]] table, or {key} = [] for none"
        )
        return []
    if not isinstance(value, list):
        problems.refuse([key], value, _array(key))
        return []
    return [(item, read([key, index], item, problems)) for index, item in enumerate(value)]


def _limit_table(where: Location, value: object, problems: Problems) -> LimitTable | None:
    """The table of a limit, of the plane that it belongs to."""
    if not isinstance(value, dict):
        problems.refuse(where, value, "a table")
        return None
    plane = plane_of(where, value, problems)
    return plane and _table(plane.limit, where, value, problems)


def _table(model: type[T], where: Location, value: object, problems: Problems) -> T | None:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        problems.include(where, model, error)
        return None


def _limit_spec(
    where: Location, written: object, table: LimitTable | None, fleet: _Fleet, problems: Problems
) -> LimitSpec | None:
    """Check one limit against the rest of the file, and make its spec where it has no mistake."""
    if not isinstance(written, dict):
        return None
    default = (table and table.default_allocator) or DEFAULT_ALLOCATOR
    allocator = read_allocator([*where, "allocator"], written.get("allocator", default), problems)
    if allocator:
        check_alone([*where, "allocator"], allocator[0], fleet.size, problems)
        check_fabric([*where, "allocator"], allocator[0], fleet.fabric, problems)
    if table is None:
        return None
    table.check(where, problems)
    if fleet.open:
        check_sum([*where, "shares"], table.shares, problems)
    elif fleet.members is not None:
        check_shares([*where, "shares"], table.shares, fleet.members, problems)
        check_limiters([*where, "weights"], table.weights, fleet.members, problems)
        table.check_members(where, len(fleet.members), problems)
    if allocator is None:
        return None
    policy = Policy(
        id=table.id,
        name=table.name,
        rate=table.rate,
        burst=automatic_burst(table.rate, table.unit) if table.burst == "auto" else table.burst,
        allocator=allocator[0],
        parameters=allocator[1],
        interval_ns=table.interval or fleet.interval_ns,
        ewma=table.ewma,
        mode=Mode(table.mode),
        shares=table.shares,
        burst_is_automatic=table.burst == "auto",
        weights=table.weights,
        unit=table.unit,
        written=_written(written),
        **table.policy(),
    )
    return LimitSpec(policy, table.target(), OnFailure(table.on_failure or "default"))


def _written(table: dict[str, object]) -> frozenset[str]:
    """The keys of a limit's table, with those of its tables `allocator` and `match`."""
    tables = [(key, it) for key in ("allocator", "match") if isinstance(it := table.get(key), dict)]
    return frozenset([*table, *(f"{key}.{inner}" for key, it in tables for inner in it)])
