"""`[http]`: what its keys are together."""

from __future__ import annotations

from ipaddress import ip_address

from drld.config.problems import Location, Problems
from drld.config.schema import HttpTable
from drld.config.tls import read_tls
from drld.spec import HttpSpec


def read_http(where: Location, table: HttpTable, problems: Problems) -> HttpSpec | None:
    """The settings of a table; None: it has mistakes."""
    before = len(problems.lines)
    local = all(ip_address(host).is_loopback for host, _ in table.listen)
    if table.page and table.certificate is None and not local:
        # Without TLS, a stranger's page in an operator's browser could read it (DNS rebinding).
        needs = f"must be false without {where[0]}.certificate, but on loopback addresses"
        problems.add([*where, "page"], needs)
    tls = read_tls(where, table, problems)
    if len(problems.lines) > before:
        return None
    return HttpSpec(table.listen, tls, table.page)
