"""Changes of limits, and the configuration that they make."""

from __future__ import annotations

from typing import Any, Literal, TypedDict


class Difference(TypedDict):
    """The effect of a change of the configuration on one of its tables."""

    table: str
    """`limiter`, or with a name, as in `limit customer-a`."""
    change: Literal["added", "removed", "changed"]
    keys: dict[str, list[Any]]
    """The old and the new value of each key, as in a file; null: the key is left out."""


class ChangeReport(TypedDict):
    """The effect of a change of limits: POST /v1/limits and below."""

    changes: list[Difference]
    saved: str | None
    """The file that a restart reads the change from; None: a restart or a reload reverts it."""
    needed_at: list[str]
    """Peers that must agree on what has changed, and need the same change."""


class ConfigTable(TypedDict):
    """A table of the configuration in force: GET /v1/config (a list)."""

    kind: str
    """Name of the table, such as `limiter` or `limit`."""
    values: dict[str, Any]
    """Values as in the file, with the changes of drop-ins and unsaved ones."""


class HistoryEntry(TypedDict):
    """One change of a limit: GET /v1/history (a list, the newest first)."""

    t: float
    """Unix time of the change."""
    limit: str
    """Name of the limit; empty if the entry is about no single limit."""
    id: int | None
    change: str
    """`added`, `removed` or `changed`; `more`: of one change, those limits that have no entry;
    `started`: the daemon has started."""
    count: int
    """Limits that the entry is about."""
    keys: dict[str, list[str | None]]
    """The old and the new value of each key; None: it is left out."""
    via: str
    """`control`, `reload`, `signal`, `registry` or `start`."""
    uid: int | None
    """User id of the client on the control socket; the next three keys are about the same
    client."""
    user: str | None
    login: str | None
    """User that logged in, if the kernel knows it: with sudo another than `user`."""
    pid: int | None
    revision: int | None
    """Revision of the fleet's registry."""
    saved: bool
