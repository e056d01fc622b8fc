"""Files that the daemon reads: regular ones, read at once."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
)


def read_regular(
    path: str | os.PathLike[str],
    most: int,
    check: Callable[[os.stat_result], None] = lambda _: None,
    *,
    last: bool = False,
) -> bytes:
    """The first or the last `most` bytes of a regular file that passes a check; it never waits.

    Raises:
        OSError: it cannot be read.
        ValueError: it is another kind of file, or `check` raises it.
    """
    # To open a pipe without a writer would wait.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        found = os.fstat(descriptor)
        check_regular(found)
        check(found)
        with open(descriptor, "rb", closefd=False) as stream:
            if last:
                stream.seek(max(found.st_size - most, 0))
            return stream.read(most)
    finally:
        os.close(descriptor)


def check_regular(found: os.stat_result) -> None:
    """Refuse what is no regular file: a pipe could keep its reader waiting.

    Raises:
        ValueError: it is none.
    """
    if not stat.S_ISREG(found.st_mode):
        kind = next((name for its, name in _KINDS if its(found.st_mode)), "a device")
        raise ValueError(f"must be a regular file (got {kind})")


def check_writers(found: os.stat_result) -> None:
    """Refuse a file or directory that every user may write: its writers decide which traffic
    passes.

    Raises:
        ValueError: every user may.
    """
    if found.st_mode & stat.S_IWOTH:
        mode = stat.S_IMODE(found.st_mode)
        raise ValueError(
            f"must not be writable by every user: run chmod o-w on it (got mode {mode:o})"
        )


def check_folder(path: Path) -> None:
    """Refuse a folder in which every user may replace the file.

    In a folder with the sticky bit, such as /tmp, users cannot replace files of others. But any
    user may have made a file that was missing (`check_owner`).

    Raises:
        OSError: it cannot be looked at.
        ValueError: every user may.
    """
    found = path.parent.stat()
    if not found.st_mode & stat.S_ISVTX:
        try:
            check_writers(found)
        except ValueError as error:
            raise ValueError(f"its folder {error}") from None


def check_owner(path: Path, directory: Path) -> None:
    """Refuse a directory of drop-ins that any user may have made.

    Raises:
        OSError: one cannot be looked at.
        ValueError: somebody else has made it, in a folder that every user may write.
    """
    if path.parent.stat().st_mode & stat.S_IWOTH:
        owner = directory.stat().st_uid
        if owner not in (0, os.geteuid(), path.stat().st_uid):
            raise ValueError(
                "must be owned by root or the owner of the configuration, as every user may write "
                f"its folder (got user {owner})"
            )
