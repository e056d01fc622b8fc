"""The fleet's keys: files that the configuration names, and that only their owner and group may
read."""

from __future__ import annotations

import os
import stat

from drld.config.problems import Location, Problems
from drld.config.regular_file import read_regular
from drld.config.schema import GossipTable
from drld.errors import ConfigError
from drld.gossip.wire.keyring import NO_KEY, KeyRing, parse_key

MAX_KEY_FILE = 1024
"""Largest size of a file of keys, bytes."""
_FOR_OTHERS = stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP


def read_ring(where: Location, table: GossipTable, problems: Problems) -> KeyRing | None:
    """Make the key ring of `[gossip]`; None where there are mistakes."""
    keys: dict[int, bytes] = {}
    sound = True
    for index, entry in enumerate(table.keys):
        location = [*where, "keys", index]
        if entry.id in keys:
            problems.refuse([*location, "id"], entry.id, "unique")
            sound = False
        try:
            keys[entry.id] = read_key(entry.file)
        except (OSError, ValueError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or error
            problems.add([*location, "file"], f"{entry.file}: {reason}")
            sound = False
    use = table.use
    if use is None:
        if len(keys) > 1:
            problems.add(
                [*where, "use"], "is required with several keys: the id of the key to send with"
            )
            return None
        use = next(iter(keys), NO_KEY)
    if not sound:
        return None
    try:
        return KeyRing(keys, use, table.tag, table.accept_unauthenticated)
    except ConfigError as error:
        # The contract: each begins with the key.
        for problem in error.problems:
            key, _, text = problem.partition(": ")
            problems.add([*where, key], text)
        return None


def read_key(path: str) -> bytes:
    """The key in a file: 16 to 32 bytes in hexadecimal digits or base64.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no key, or not private.
    """
    return parse_key(read_regular(path, MAX_KEY_FILE + 1, check_private))


def check_private(found: os.stat_result) -> None:
    """Refuse a secret that others may read, or its group write.

    Raises:
        ValueError: they may.
    """
    if found.st_mode & _FOR_OTHERS:
        mode = stat.S_IMODE(found.st_mode)
        raise ValueError(f"must be private: run chmod 600 on it (got mode {mode:o})")
