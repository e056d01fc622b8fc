"""The configuration in force at a daemon, for the commands of drlctl."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from drld.cli.client import Daemon, Refused
from drld.control.schema.changes import ConfigTable
from drld.spec import LimitSpec


def tables_in_force(daemon: Daemon) -> list[tuple[str, dict[str, Any]]]:
    """The kind and the values of each table in force, without the limits of a registry.

    Raises:
        Refused: the daemon cannot be reached.
    """
    told = cast(list[ConfigTable], daemon.get("/v1/config"))
    return [(table["kind"], table["values"]) for table in told]


def document(found: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """The document that has these tables."""
    from drld.config.plane_tables import planes

    arrays = {"peer", "limit", *(plane.key for plane in planes() if plane.element)}
    made: dict[str, Any] = {"peer": [], "limit": []}
    for kind, table in found:
        if kind in arrays:
            made.setdefault(kind, []).append(table)
        else:
            made[kind] = table
    return made


def limits_of(daemon: Daemon, file: str | None) -> Sequence[LimitSpec]:
    """The limits of a configuration file, or those that the daemon has in force.

    Raises:
        Refused: the file cannot be used, or the daemon cannot be reached.
    """
    from drld import config
    from drld.errors import ConfigError

    try:
        if file is not None:
            return config.load(file).limits
        return config.from_document(document(tables_in_force(daemon)), "daemon").limits
    except ConfigError as error:
        raise Refused("\n".join(error.problems)) from None
