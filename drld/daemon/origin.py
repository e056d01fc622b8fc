"""The origin of a change of limits: the user or program that asked for it, and the way it came."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from drld.control.credentials import Credentials

Via: TypeAlias = Literal["control", "reload", "signal", "registry", "start"]
_NO_LOGIN = 2**32 - 1
"""loginuid of a process that belongs to no login (audit(7))."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of one change, or of several that came together."""

    via: Via
    uid: int | None = None
    """User id of the process at the other end of the control socket."""
    pid: int | None = None
    user: str | None = None
    """Name of `uid`."""
    login: str | None = None
    """User of the login session, which may differ from `user` after sudo or su; None: the kernel
    does not audit logins."""
    revision: int | None = None
    """Revision of the fleet's registry."""
    saved: bool = False
    """Whether the change is in a file, so that it survives a restart."""


def origin_of(via: Via, peer: Credentials) -> Origin:
    """The origin of a request; it asks the host for names, which may take long."""
    return Origin(via, peer.uid, peer.pid, _name(peer.uid), _login(peer.pid))


def _name(uid: int) -> str | None:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None


def _login(pid: int) -> str | None:
    """The user of the client's login session; None: not known, or the client has ended."""
    try:
        uid = int(Path(f"/proc/{pid}/loginuid").read_text())
    except (OSError, ValueError):
        return None
    return None if uid == _NO_LOGIN else _name(uid) or str(uid)


def state_directory() -> Path | None:
    """The directory that systemd made for the daemon's state (StateDirectory=, systemd.exec(5))."""
    given = os.environ.get("STATE_DIRECTORY", "").split(":")[0]
    return Path(given) if given else None
