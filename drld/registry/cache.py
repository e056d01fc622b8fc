"""A file with the last known registry, for a daemon that starts while etcd is away.

A new file is written beside the old one and moved into place, so that a complete file always
exists. Its contents are not trusted: `Registry.recall` validates each value.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import trio

from drld.config.atomic_file import replace_by, write_beside
from drld.config.regular_file import read_regular
from drld.log_event import event
from drld.registry.model.keys import Keys
from drld.registry.model.state import MAX_BYTES

log = logging.getLogger("drld.registry")

_VERSION = 1


class Remembered(NamedTuple):
    """The arguments of `Registry.recall`."""

    fleet: str | None
    revision: int
    items: Mapping[str, bytes]
    former: Mapping[str, bytes]


class Cache:
    """The cache file of one limiter."""

    def __init__(self, path: str, keys: Keys) -> None:
        self.path = path
        self.error: str | None = None
        """The reason why the file is out of date; None: it is up to date."""
        self._keys = keys
        self._saved: Remembered | None = None

    async def keep(self, remembered: Remembered) -> None:
        """Write the registry to the file if it has changed; `error` says why the write failed."""
        error = None
        if remembered != self._saved:
            try:
                await trio.to_thread.run_sync(save, self.path, self._keys, remembered)
                self._saved = remembered
            except OSError as failed:
                error = f"{self.path}: {failed.strerror}"
        if error is not None and self.error is None:
            log.warning(
                "cannot write registry.cache of fleet %s: %s: a start while etcd is away needs it",
                *(self._keys.name, error),
                extra=event("registry.cache", fleet=self._keys.name, reason=error),
            )
        self.error = error


def save(path: str, keys: Keys, remembered: Remembered) -> None:
    """Replace the file.

    Raises:
        OSError: writing failed; the old file stays.
    """
    value = {
        "version": _VERSION,
        "prefix": keys.prefix,
        "fleet": remembered.fleet,
        "revision": remembered.revision,
        "items": {key: raw.decode() for key, raw in remembered.items.items()},
        "former": {key: raw.decode() for key, raw in remembered.former.items()},
    }
    file = Path(path)
    beside = write_beside(file, json.dumps(value, separators=(",", ":")))
    replace_by(file, beside)


def load(path: str, keys: Keys) -> Remembered | None:
    """Read the file; None: it is missing, damaged or of another fleet, and the log says so."""
    try:
        data = read_regular(path, 2 * MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        _unused(path, keys, why)
        return None
    try:
        value = _parsed(data)
        if value["prefix"] == keys.prefix:
            items, former = (
                {str(key): raw.encode() for key, raw in part.items()}
                for part in (value["items"], value.get("former", {}))
            )
            return Remembered(value["fleet"], value["revision"], items, former)
        why = f"of another fleet than {keys.name}"
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        why = "damaged"
    _unused(path, keys, why)
    return None


def _unused(path: str, keys: Keys, why: str | None) -> None:
    log.warning(
        "registry.cache is not used: %s: %s",
        *(path, why),
        extra=event("registry.cache", fleet=keys.name, reason=why),
    )


def _parsed(data: bytes) -> Any:
    if len(data) > 2 * MAX_BYTES:
        raise ValueError
    value = json.loads(data)
    fleet, revision = value["fleet"], value["revision"]
    if value["version"] != _VERSION or not isinstance(fleet, str | None):
        raise ValueError
    if type(revision) is not int or revision < 0:
        raise ValueError
    return value
