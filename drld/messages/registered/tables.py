"""`[[broker]]`: the brokers before which this daemon takes connections."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, PrivateAttr

from drld.config.fields import (
    FilePath,
    Kind,
    ListenOrPaths,
    Name,
    Quantity,
    endpoint_or_path,
)
from drld.config.plane_tables import PlaneTables
from drld.config.problems import Location, Problems, dotted, hint, must_be
from drld.config.schema import PlaneTable, Table
from drld.config.tls import read_tls
from drld.messages.frame import MAX_FRAME
from drld.messages.registered.limit_table import (
    MOST_BROKERS,
    MessageLimitTable,
    MessageMatchTable,
)
from drld.messages.spec import (
    DEFAULT_HOLD,
    DEFAULT_MAX_CONNECTIONS,
    NOTATIONS,
    Address,
    BrokerSpec,
    MessagesSpec,
)
from drld.messages.topics import check
from drld.spec import ServerTls, format_endpoint
from drld.units import parse_size

_read_hold = Quantity("size", parse_size, "64MiB", "1MiB", "16GiB")
_read_frame = Quantity("size", parse_size, "1MiB", "1KiB", "256MiB")
MOST_CONNECTIONS = 1_000_000


class BrokerTable(Table):
    """`[[broker]]`: a message broker behind this daemon.

    One table for each. Clients connect to drld instead of the broker (docs/messages-operations.md).
    A reload adds, moves, changes and removes brokers (docs/messages-operations.md#reload).
    """

    name: Name
    """Name of the broker, unique in the file: `match.broker` of limits."""
    protocol: Literal["mqtt", "nats"]
    """Protocol of the broker: MQTT 3.1.1 and 5, or NATS."""
    listen: ListenOrPaths
    """Addresses on which clients connect."""
    server: Annotated[
        Address, PlainValidator(endpoint_or_path), Kind("address or path of a unix socket")
    ]
    """Address of the broker itself. Only drld should reach it: other clients are not limited."""
    hold: Annotated[int, PlainValidator(_read_hold), _read_hold.described] = DEFAULT_HOLD
    """Memory for messages that wait, and for those that have begun. Above it, drld reads no more
    from their clients, and TCP slows them down. Default: `"64MiB"`."""
    timestamps: Literal["auto", "socket", "kernel", "read"] = "auto"
    """Source of messages' arrival times: a program at the socket, the kernel's stamps, or the time
    of reading. `"auto"` takes the first that the host has (docs/messages-arrival.md)."""
    accept_proxy: bool = False
    """Whether each connection begins with a header of the PROXY protocol, version 1 or 2, as a load
    balancer sends it. It says the client's address. drld refuses connections without it."""
    send_proxy: bool = False
    """Whether drld's connections to the broker begin with such a header, version 2. It has the
    client's real address."""
    max_connections: Annotated[int, Field(ge=1, le=MOST_CONNECTIONS)] = DEFAULT_MAX_CONNECTIONS
    """Clients that may be connected at a time; drld refuses more."""
    max_frame: Annotated[int, PlainValidator(_read_frame), _read_frame.described] = MAX_FRAME
    """Largest packet of MQTT, or message of NATS with its head. drld closes a connection with a
    larger one. At most `hold`. Default: `"2MiB"`, or `hold` if that is less."""
    certificate: FilePath | None = None
    """Certificate for TLS on all TCP addresses, and its chain (PEM); needs `key`. A reload reads
    all files again. Default: no TLS."""
    key: FilePath | None = None
    """Private key (PEM), which other users may not read. Default: no TLS."""
    client_ca: FilePath | None = None
    """Certificates (PEM) of authorities: clients need a certificate of one. Default: any client may
    connect."""

    _tls: ServerTls | None = PrivateAttr(default=None)
    """The context that `read_files` has made of the files."""

    def read_files(self, where: Location, problems: Problems) -> None:
        """Read the files for TLS."""
        self._tls = read_tls(where, self, problems)

    def spec(self) -> BrokerSpec:
        """The broker, with a frame that fits into `hold`."""
        values = self.model_dump(exclude={"certificate", "key", "client_ca"})
        values["max_frame"] = min(self.max_frame, self.hold)
        return BrokerSpec(**values, tls=self._tls)


class BrokersTable(PlaneTable):
    """The tables `[[broker]]` of a file."""

    broker: Annotated[list[BrokerTable], Field(max_length=MOST_BROKERS)] = Field(
        default_factory=list
    )

    def spec(self) -> MessagesSpec:
        """Return the brokers as the daemon's configuration has them."""
        return MessagesSpec(tuple(it.spec() for it in self.broker))

    def check(self, limits: Mapping[int, MessageLimitTable], problems: Problems) -> None:
        """Check that names and addresses are unique, and that limits name brokers.

        It also reads the files for TLS.
        """
        names: dict[str, Location] = {}
        listens: dict[Address, Location] = {}
        for index, broker in enumerate(self.broker):
            at: Location = [MessagesSpec.key, index]
            broker.read_files(at, problems)
            if "max_frame" in broker.model_fields_set and broker.max_frame > broker.hold:
                claim = f"at most hold, {broker.hold} bytes"
                problems.refuse([*at, "max_frame"], f"{broker.max_frame} bytes", claim)
            _unique([*at, "name"], broker.name, broker.name, names, problems)
            for address in broker.listen:
                where = [*at, "listen"]
                _unique(where, address, _written(address), listens, problems)
        for index, broker in enumerate(self.broker):
            own = next((listens[it] for it in _reached(broker.server) if it in listens), None)
            if own is not None:
                problems.refuse(
                    [MessagesSpec.key, index, "server"],
                    _written(broker.server),
                    f"the broker's own address, and not {dotted(own)}",
                )
        for index, limit in limits.items():
            self._check_limit(["limit", index, "match"], limit, problems)

    def _check_limit(self, where: Location, limit: MessageLimitTable, problems: Problems) -> None:
        """Check that a limit names brokers of one protocol, and a filter in its notation."""
        match = limit.match
        protocols = {broker.name: broker.protocol for broker in self.broker}
        for name in match.broker:
            if name not in protocols:
                known = hint(name, [*protocols])
                problems.refuse([*where, "broker"], name, f"the name of a [[broker]]; {known}")
        found = {protocols[name] for name in match.broker if name in protocols}
        if len(found) > 1:
            problems.refuse(
                [*where, "broker"], ", ".join(match.broker), "names of brokers of one protocol"
            )
        elif found:
            notation = NOTATIONS[found.pop()]
            limit.set_notation(notation)
            try:
                check(match.topic, notation)
            except ValueError as error:
                problems.add([*where, "topic"], must_be(str(error), match.topic))


def _unique(
    where: Location, value: Address, shown: str, seen: dict[Any, Location], problems: Problems
) -> None:
    if value in seen:
        problems.refuse(where, shown, f"unique, but {dotted(seen[value])} is the same")
    else:
        seen[value] = where


def _reached(server: Address) -> list[Address]:
    """The addresses of `listen` that certainly take connections to this one."""
    if isinstance(server, str) or not ip_address(server[0]).is_loopback:
        return [server]
    wildcard = "0.0.0.0" if ip_address(server[0]).version == 4 else "::"
    return [server, (wildcard, server[1])]


def _written(address: Address) -> str:
    return address if isinstance(address, str) else format_endpoint(*address)


TABLES = PlaneTables(
    MessagesSpec.key,
    BrokersTable,
    MessageLimitTable,
    MessageMatchTable,
    element=BrokerTable,
    traffic="messages",
    fabric="mesh",
)
"""The plane of messages."""
