"""Remarks on limits on packets that depend on the host (`drld.daemon.running_plane`)."""

from __future__ import annotations

import socket

from drld.capture.patterns import is_pattern
from drld.capture.spec import Match
from drld.config.problems import some
from drld.spec import LimiterSpec


def remarks(spec: LimiterSpec) -> list[str]:
    """A line for each interface of limits that this host lacks; patterns may stand for none."""
    there = {name for _, name in socket.if_nameindex()}
    missing: dict[str, list[str]] = {}
    for limit in spec.limits:
        name = limit.match.interface if isinstance(limit.match, Match) else None
        if name is not None and name not in there and not is_pattern(name):
            missing.setdefault(name, []).append(limit.name)
    return [
        f"interface {name}: does not exist: until it does, limits on it limit nothing: {some(its)}"
        for name, its in missing.items()
    ]
