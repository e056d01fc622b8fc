"""The file with what the registry said last, for a daemon that starts while etcd is away.

Written beside and moved into place, so that there is always a whole one. It is read like
everything that comes from outside: `Registry.recall` validates each value.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from drld.registry.keys import Keys
from drld.registry.state import MAX_BYTES

_VERSION = 1


class Remembered(NamedTuple):
    """What `Registry.recall` takes."""

    fleet: str | None
    revision: int
    items: Mapping[str, bytes]


def save(path: str, keys: Keys, remembered: Remembered) -> None:
    """Replace the file.

    Raises:
        OSError: the old one stays.
    """
    value = {
        "version": _VERSION,
        "prefix": keys.prefix,
        "fleet": remembered.fleet,
        "revision": remembered.revision,
        "items": {key: raw.decode() for key, raw in remembered.items.items()},
    }
    file = Path(path)
    beside = file.with_name(f"{file.name}.new")
    file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(value, stream, separators=(",", ":"))
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(file)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def load(path: str, keys: Keys) -> Remembered | None:
    """Read the file; None where there is none of this fleet that can be read."""
    try:
        with Path(path).open("rb") as stream:
            data = stream.read(2 * MAX_BYTES + 1)
        if len(data) > 2 * MAX_BYTES:
            return None
        value = json.loads(data)
        if value["version"] != _VERSION or value["prefix"] != keys.prefix:
            return None
        fleet, revision = value["fleet"], value["revision"]
        if not isinstance(fleet, str | None) or type(revision) is not int or revision < 0:
            return None
        items = {str(key): raw.encode() for key, raw in value["items"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return Remembered(fleet, revision, items)
