"""Other versions of drld beside this one: of an earlier revision, or with another default.

Each is a folder with the files that a daemon needs. A daemon that is started there runs that code,
with the packages of this environment, and names itself by `MARK` in its status.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from testbed import netns
from testbed.errors import HostError
from testbed.provenance import GIT, ROOT

MARK = "+other"
_PARTS = ("drld", "bpf")
_WIRE = "drld/gossip/wire/message.py"
_WIRE_LINE = re.compile(r"^VERSION = (\d+)$", re.MULTILINE)
_CONFIGURED = "drld/config/schema.py"
_DEFAULT, _OTHER_DEFAULT = "interval: Interval = 50 * MEGA", "interval: Interval = 60 * MEGA"
"""The length of a round and of an estimate interval: all limiters of a fleet must share it."""


def earlier(folder: Path, revision: str | None, source: Path = ROOT) -> Path:
    """The code of a revision of the repository `source`, in a new folder.

    The default is the oldest revision of the main line that has this wire version: all versions
    since then are meant to run beside each other.

    Raises:
        HostError: the clone does not have the revision, or its daemons cannot talk to this one's.
    """
    git = [*GIT[:-1], str(source)]
    chosen = revision or _oldest(git)
    archive = folder.with_suffix(".tar")
    try:
        netns.run([*git, "archive", f"--output={archive}", f"{chosen}^{{commit}}", "--", *_PARTS])
    except HostError as error:
        raise HostError(
            f"--from {chosen}: this clone does not have that revision ({error}): fetch it "
            "(git fetch --unshallow), or choose another one"
        ) from None
    folder.mkdir()
    netns.run(["tar", "-x", "-f", str(archive), "-C", str(folder)])
    archive.unlink()
    theirs, ours = _wire_version(folder), _wire_version(source)
    if theirs != ours:
        raise HostError(
            f"--from {chosen}: wire version {theirs or 'unknown'} is not {ours}: the two refuse "
            "each other's datagrams (docs/operations.md, Another wire version)"
        )
    return _marked(folder)


def another_default(folder: Path) -> Path:
    """Copy this version's code into a new folder, with another default."""
    for part in _PARTS:
        shutil.copytree(ROOT / part, folder / part)
    _replace(folder / _CONFIGURED, _DEFAULT, _OTHER_DEFAULT)
    return _marked(folder)


def _oldest(git: list[str]) -> str:
    """The revision of the main line that gave the wire its present version.

    The first revision of a shallow clone adds all files, and so seems to be that one.
    """
    command = "log --first-parent -1 --format=%H\t%P -G^VERSION -- " + _WIRE
    found, _, parents = netns.run([*git, *command.split(" ")]).strip().partition("\t")
    if not parents:
        raise HostError(
            "this clone is too shallow to have the first revision of its wire version: fetch the "
            "rest (git fetch --unshallow), or choose a revision with --from"
        )
    return found


def _wire_version(folder: Path) -> str | None:
    try:
        found = _WIRE_LINE.search((folder / _WIRE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return found[1] if found else None


def _marked(folder: Path) -> Path:
    """The folder, with `MARK` in the version and with this checkout's kernel headers."""
    init = folder / "drld/__init__.py"
    found = re.search(r'__version__ = "(.*)"', init.read_text(encoding="utf-8"))
    if found is None:
        raise HostError(f"{init}: it has no version")
    _replace(init, found[0], f'__version__ = "{found[1]}{MARK}"')
    (folder / ".venv").symlink_to(ROOT / ".venv")
    return folder


def _replace(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    if text.count(old) != 1:
        raise HostError(f"{file}: {old!r} must be there once")
    file.write_text(text.replace(old, new), encoding="utf-8")
