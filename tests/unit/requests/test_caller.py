"""The caller of a question that does not name one."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

import pytest

from drld.requests.caller import Client, caller_of, certificate_name

TRUSTED = (ip_network("10.0.0.0/24"), ip_network("fd00::/64"))


@pytest.mark.parametrize(
    ("client", "forwarded", "caller"),
    [
        ("192.0.2.1", [], "192.0.2.1"),
        ("uid 33", ["192.0.2.9"], "uid 33"),
        ("2001:db8::1:2:3:4", [], "2001:db8::/64"),
        # A stranger's statement has no effect.
        ("192.0.2.1", ["192.0.2.9"], "192.0.2.1"),
        ("10.0.0.1", ["192.0.2.9"], "192.0.2.9"),
        ("10.0.0.1", ["192.0.2.8, 192.0.2.9"], "192.0.2.9"),
        ("10.0.0.1", ["192.0.2.9, 10.0.0.2"], "192.0.2.9"),
        ("10.0.0.1", ["192.0.2.8", "192.0.2.9,fd00::1"], "192.0.2.9"),
        ("fd00::9", ["2001:db8::1"], "2001:db8::/64"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["10.0.0.3"], "10.0.0.3"),
        ("10.0.0.1", ["192.0.2.9, unknown"], "10.0.0.1"),
        ("10.0.0.1", ["192.0.2.9, unknown, 10.0.0.2"], "10.0.0.2"),
        ("10.0.0.1", [""], "10.0.0.1"),
        # As proxies that listen for IPv4 and IPv6 on one socket write it.
        ("10.0.0.1", ["::ffff:192.0.2.9"], "192.0.2.9"),
        ("10.0.0.1", ["192.0.2.9, ::ffff:10.0.0.2"], "192.0.2.9"),
        ("::ffff:10.0.0.1", ["192.0.2.9"], "192.0.2.9"),
        # As some load balancers write it, with the client's port.
        ("10.0.0.1", ["192.0.2.9:4711"], "192.0.2.9"),
        ("10.0.0.1", ["192.0.2.9:4711, 10.0.0.2:80"], "192.0.2.9"),
        ("10.0.0.1", ["[2001:db8::1]:4711"], "2001:db8::/64"),
        ("10.0.0.1", ["[::ffff:192.0.2.9]"], "192.0.2.9"),
        ("10.0.0.1", ["192.0.2.9, :4711"], "10.0.0.1"),
        ("10.0.0.1", ["x," * 10_000 + "192.0.2.9"], "192.0.2.9"),
    ],
)
def test_the_last_address_that_is_no_trusted_proxy_s(
    client: str, forwarded: list[str], caller: str
) -> None:
    assert caller_of(Client(client), forwarded, TRUSTED) == caller


def test_without_trusted_proxies_no_header_is_believed() -> None:
    assert caller_of(Client("10.0.0.1"), ["192.0.2.9"], ()) == "10.0.0.1"


def test_a_certificate_names_its_client_and_not_the_client_of_a_trusted_proxy() -> None:
    stranger, proxy = (Client(host, "web") for host in ("192.0.2.1", "10.0.0.1"))
    assert caller_of(stranger, ["192.0.2.9"], TRUSTED) == "web"
    assert caller_of(proxy, ["192.0.2.9"], TRUSTED) == "192.0.2.9"
    assert caller_of(proxy, [], TRUSTED) == "web"
    assert caller_of(proxy, ["unknown"], TRUSTED) == "web"


@pytest.mark.parametrize(
    ("certificate", "name"),
    [
        ({}, None),
        ({"subject": ((("countryName", "CH"),), (("commonName", "web"),))}, "web"),
        ({"subject": ((("commonName", "web"),),), "subjectAltName": (("IP", "::1"),)}, "web"),
        (
            {
                "subject": ((("commonName", "c"),),),
                "subjectAltName": (("DNS", "a.b"), ("DNS", "c")),
            },
            "a.b",
        ),
        ({"subjectAltName": (("DNS", "a.b"), ("URI", "spiffe://fleet/web"))}, "spiffe://fleet/web"),
        ({"subject": ((("commonName", ""),),)}, None),
        ({"subject": ((("commonName", "\u00e9" * 200),),)}, "\u00e9" * 128),
        ({"subject": ((("commonName", "x\ud800"),),)}, "x"),
    ],
)
def test_a_certificate_names_the_caller(certificate: dict[str, Any], name: str | None) -> None:
    assert certificate_name(certificate) == name
