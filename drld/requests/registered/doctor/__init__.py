"""What `drlctl doctor` finds of requests: the UDP port of limits with keys."""

from __future__ import annotations

from collections.abc import Iterator

from drld.doctor import host
from drld.doctor.facts import host as facts
from drld.doctor.finding import Examined, Finding
from drld.requests.spec import RequestsSpec


def findings(examined: Examined) -> Iterator[Finding]:
    """Return the findings on the port; there are none if no limit here has keys."""
    spec, status = examined.spec, examined.status
    if spec is None:
        return
    in_use = status is not None and status["deltas"] is not None
    if not in_use and all(limit.policy.keyed is None for limit in spec.limits):
        return
    address, gossip = spec.listen
    number = spec.plane(RequestsSpec).port_of_keys(gossip)
    if in_use or status is None:
        pid = status["pid"] if status else None
        yield host.port(facts.port(address, number, pid), "port of keys", "requests.peer_port")
    # Rules that cannot be read are reported once, with the port of gossip.
    if (chains := facts.chains()) is not None:
        yield from host.firewall(chains, number)
