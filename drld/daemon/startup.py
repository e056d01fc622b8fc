"""Resources of the host that a starting daemon claims: its name, gossip socket and packet queue."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable
from pathlib import Path
from random import Random, SystemRandom

from drld.capture.nfqueue.datapath import NfqueueDatapath
from drld.capture.spec import PacketsSpec
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
            claim.bind(f"\0drld/{name}")
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


def nfqueue(spec: LimiterSpec, clock: Callable[[], int]) -> NfqueueDatapath:
    """Make the nfqueue datapath; `clock` is monotonic, ns."""
    packets = spec.plane(PacketsSpec)
    return NfqueueDatapath(
        limiter_name=spec.name,
        firewall=packets.firewall,
        queue=packets.queue,
        rng=Random(SystemRandom().getrandbits(64)),
        clock=clock,
        timestamps=packets.timestamps,
        wall=time.time_ns,
    )
