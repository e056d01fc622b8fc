"""Resources of the host that a starting daemon claims: its name and the gossip socket."""

from __future__ import annotations

import errno
import socket
from pathlib import Path

from drld.ebpf.other_limiters import CLAIM
from drld.errors import ConfigError
from drld.gossip.transport import Transport
from drld.spec import LimiterSpec


def claim_name(path: Path, name: str) -> socket.socket:
    """Reserve a limiter's name until the process ends, so that no other daemon changes its rules.

    The name is an abstract socket. It belongs to the network namespace, as the rules do.

    Raises:
        ConfigError: a daemon of this name runs already, or the host refuses; `path` is the
            configuration.
    """
    try:
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        try:
            claim.bind(f"\0{CLAIM}{name}")
        except OSError:
            claim.close()
            raise
    except OSError as error:
        problem = f"cannot reserve {name!r} on this host: {error.strerror}"
        if error.errno == errno.EADDRINUSE:
            problem = f"{name!r}: another daemon of this name runs on this host"
        raise ConfigError([f"{path}: limiter.name: {problem}"]) from error
    return claim


def open_transport(path: Path, spec: LimiterSpec) -> Transport:
    """Bind the gossip socket.

    Raises:
        ConfigError: the announced address cannot be bound; `path` is the configuration's.
    """
    try:
        return Transport(
            spec.listen, spec.name, {peer.name: peer.address for peer in spec.peers}, spec.ring
        )
    except OSError as error:
        host, port = spec.listen
        raise ConfigError(
            [f"{path}: limiter.listen: cannot bind {host!r}, port {port}: {error.strerror}"]
        ) from error
