"""`[requests]`: the table of a configuration with the addresses that answer requests."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_network
from typing import Annotated

from pydantic import Field, PlainValidator, PrivateAttr

from drld.config.fields import FilePath, Kind, ListenOrPaths, each
from drld.config.plane_tables import PlaneTables
from drld.config.problems import Problems
from drld.config.schema import PlaneTable
from drld.config.tls import read_tls
from drld.requests.registered.limit_table import RequestLimitTable, RequestMatchTable
from drld.requests.spec import Network, RequestsSpec
from drld.spec import ServerTls


def _network(value: object) -> Network:
    try:
        if isinstance(value, str):
            return ip_network(value)
    except ValueError:
        pass
    raise ValueError('an address, or a prefix without host bits, such as "10.0.0.1" or "fd00::/64"')


def _networks(value: object) -> tuple[Network, ...]:
    if not isinstance(value, list):
        raise ValueError('an array of addresses or prefixes such as ["10.0.0.1", "fd00::/64"]')
    return each(_network, value)


class RequestsTable(PlaneTable):
    """`[requests]`: where this daemon answers requests.

    The table may be left out; the daemon then has no limits on requests (docs/requests.md).
    """

    listen: ListenOrPaths = ()
    """Addresses for questions of clients. Any process that reaches one of them may use up the
    limits. A change needs a restart. Default: none."""
    trusted_proxies: Annotated[
        tuple[Network, ...], PlainValidator(_networks), Kind("array of addresses or prefixes")
    ] = ()
    """Clients whose `X-Forwarded-For` names the caller, if the question names none. Default:
    none."""
    peer_port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """UDP port of all limiters for limits with `match.per` (docs/requests-per-user.md); needs a
    restart. Default: each limiter's port for gossip plus 1."""
    certificate: FilePath | None = None
    """Certificate for TLS on all TCP addresses, and its chain (PEM); needs `key`. A reload reads
    all files again. Default: no TLS."""
    key: FilePath | None = None
    """Private key (PEM), which other users may not read. Default: no TLS."""
    client_ca: FilePath | None = None
    """Certificates (PEM) of authorities: clients need a certificate of one. Its name is the caller
    if nothing else names one. Default: any client may ask."""

    _tls: ServerTls | None = PrivateAttr(default=None)
    """The contents of the files, which `check` reads."""

    def spec(self) -> RequestsSpec:
        """Return the addresses, and the settings of this daemon's answers."""
        files = {"certificate", "key", "client_ca"}
        return RequestsSpec(**self.model_dump(exclude=files), tls=self._tls)

    def check(self, limits: Mapping[int, RequestLimitTable], problems: Problems) -> None:
        """Refuse limits without an address for questions, and read the files for TLS."""
        self._tls = read_tls([RequestsSpec.key], self, problems)
        if limits and not self.listen:
            first = min(limits)
            problems.add(["requests", "listen"], f"is required: limit[{first}] is about requests")


TABLES = PlaneTables(RequestsSpec.key, RequestsTable, RequestLimitTable, RequestMatchTable)
