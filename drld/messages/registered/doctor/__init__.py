"""What `drlctl doctor` finds of messages: whether each broker takes connections."""

from __future__ import annotations

import socket
from collections.abc import Iterator

from drld.doctor.finding import Examined, Finding, ok, unseen, wrong
from drld.messages.spec import Address, BrokerSpec, MessagesSpec
from drld.spec import format_endpoint

WAIT_S = 2.0
"""Time for a broker to accept a connection, s."""


def findings(examined: Examined) -> Iterator[Finding]:
    """Return a finding for each broker of the files."""
    if examined.spec is not None:
        yield from map(_broker, examined.spec.plane(MessagesSpec).brokers)


def _broker(broker: BrokerSpec) -> Finding:
    check, server = f"broker {broker.name}", broker.server
    written = server if isinstance(server, str) else format_endpoint(*server)
    try:
        _connect(server)
    except PermissionError as error:
        return unseen(check, f"{written}: {error.strerror}", "sudo drlctl doctor")
    except OSError as error:
        return wrong(
            check,
            f"{written}: {error.strerror or error}",
            "its clients cannot connect",
            "start the broker, or correct broker.server",
        )
    return ok(check, f"{written} takes connections")


def _connect(server: Address) -> None:
    """Connect, and send nothing."""
    if isinstance(server, str):
        with socket.socket(socket.AF_UNIX) as trial:
            trial.settimeout(WAIT_S)
            trial.connect(server)
    else:
        socket.create_connection(server, WAIT_S).close()
