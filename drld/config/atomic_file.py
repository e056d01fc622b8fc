"""Files that are replaced as a whole: a reader finds the old or the new contents."""

from __future__ import annotations

import os
from pathlib import Path


def write_beside(file: Path, text: str, mode: int = 0o600) -> Path:
    """Write the new contents to disk, beside the file; `replace_by` puts them in its place.

    Raises:
        OSError: writing failed; nothing is left behind.
    """
    beside = file.with_name(f"{file.name}.new")
    file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    try:
        # To open a pipe without a reader would wait.
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(beside, flags, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    return beside


def replace_by(file: Path, beside: Path) -> None:
    """Put the contents that `write_beside` wrote into the file's place.

    After a loss of power, a reader finds the old or the new contents; `sync_directory` makes the
    new ones certain.

    Raises:
        OSError: that failed; the old contents stay.
    """
    try:
        beside.replace(file)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def sync_directory(directory: Path) -> None:
    """Write to disk which files a directory has, so that a renamed one survives a loss of power.

    Raises:
        OSError: the host cannot do so.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
