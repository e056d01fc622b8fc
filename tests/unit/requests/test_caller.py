"""Who calls, where a question does not say it."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from drld.requests.caller import caller_of

TRUSTED = (ip_network("10.0.0.0/24"), ip_network("fd00::/64"))


@pytest.mark.parametrize(
    ("client", "forwarded", "caller"),
    [
        ("192.0.2.1", [], "192.0.2.1"),
        ("uid 33", ["192.0.2.9"], "uid 33"),
        ("2001:db8::1:2:3:4", [], "2001:db8::/64"),
        # Nobody believes a stranger.
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
        ("10.0.0.1", ["x," * 10_000 + "192.0.2.9"], "192.0.2.9"),
    ],
)
def test_the_last_address_that_is_no_trusted_proxy_s(
    client: str, forwarded: list[str], caller: str
) -> None:
    assert caller_of(client, forwarded, TRUSTED) == caller


def test_without_trusted_proxies_nobody_is_believed() -> None:
    assert caller_of("10.0.0.1", ["192.0.2.9"], ()) == "10.0.0.1"
