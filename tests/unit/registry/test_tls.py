"""An etcd that asks for client certificates: accepted clients, and errors of the others."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio

from drld.errors import RegistryError
from drld.registry import agent
from drld.registry.etcd import Etcd

from ...certificates import Certificate, authority, signed
from ...etcd_server import EtcdServer
from ...registry_agents import DEADLINE_S, Host, until
from ...registry_factories import KEYS, limit, registry_spec

BOTH = ("serverAuth", "clientAuth")
"""The gateway is a client of its own server, and shows it the server's certificate."""


class Secured(NamedTuple):
    """A server, an authority that it trusts, and one that it does not."""

    server: EtcdServer
    ca: Certificate
    other: Certificate
    shown: Certificate
    """The certificate that the server shows."""
    ours: Certificate

    def options(self, **changes: Any) -> dict[str, Any]:
        """The keys of [registry] that are right, but for these."""
        cert, key = self.ours
        return {"ca": str(self.ca.cert), "cert": str(cert), "key": str(key), **changes}

    async def refusal(self, url: str = "", **changes: Any) -> str:
        """The error of a client with these options."""
        with trio.fail_after(DEADLINE_S), pytest.raises(RegistryError) as caught:
            async with Etcd(
                url or self.server.url, registry_spec(**self.options(**changes))
            ) as etcd:
                await etcd.get("a")
        return str(caught.value)


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    ca, other = authority(tmp_path, "ca"), authority(tmp_path, "other")
    shown, ours = signed(tmp_path, "shown", ca, *BOTH), signed(tmp_path, "ours", ca, "clientAuth")
    server = EtcdServer(
        tmp_path / "etcd",
        *("--cert-file", str(shown.cert), "--key-file", str(shown.key)),
        *("--client-cert-auth", "--trusted-ca-file", str(ca.cert)),
        scheme="https",
    )
    try:
        server.start()
        yield Secured(server, ca, other, shown, ours)
    finally:
        server.kill()


async def test_refusals_name_the_wrong_certificate(secured: Secured, tmp_path: Path) -> None:
    url = secured.server.url
    async with Etcd(url, registry_spec(**secured.options())) as etcd:
        assert await etcd.commit({"a": b"1"}) is not None

    untrusted = f"{url}: its certificate does not pass (registry.ca): "
    assert (await secured.refusal(ca=str(secured.other.cert))).startswith(untrusted)
    assert (await secured.refusal(ca=None)).startswith(untrusted)
    elsewhere = f"https://localhost:{secured.server.port}"
    said = await secured.refusal(elsewhere)
    assert said.startswith(f"{elsewhere}: its certificate does not pass (registry.ca): Hostname")

    stranger = signed(tmp_path, "stranger", secured.other, "clientAuth")
    for cert, key in ((None, None), stranger, signed(tmp_path, "x", secured.ca, "serverAuth")):
        said = await secured.refusal(cert=cert and str(cert), key=key and str(key))
        assert said.startswith(
            f"{url}: it refuses our certificate, or that we have none (registry.cert): "
        )

    said = await secured.refusal(url.replace("https", "http"), ca=None, cert=None, key=None)
    assert said.endswith(": the connection was closed without an answer")


async def test_files_that_cannot_be_used_are_named(secured: Secured) -> None:
    ours, other = secured.ours, str(secured.other.key)
    assert (
        await secured.refusal(ca="/nowhere") == "registry.ca: /nowhere: No such file or directory"
    )
    assert (await secured.refusal(ca=other)).startswith(
        f"registry.ca: {other}: TLS: no certificate"
    )
    files = f"registry.cert, registry.key: {ours.cert}"
    assert await secured.refusal(key="/nowhere") == f"{files}, /nowhere: No such file or directory"
    assert await secured.refusal(key=other) == f"{files}, {other}: TLS: key values mismatch"
    assert (await secured.refusal(key=None)).startswith(f"{files}: ")


async def test_the_fleet_goes_on_while_certificates_are_wrong(
    secured: Secured,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agent, "LONGEST_RETRY_S", 0.4)
    server = secured.server
    hosts = [Host(server, tmp_path, number, **secured.options()) for number in (1, 2)]
    good = {path: path.read_bytes() for path in (*secured.shown, *secured.ours)}
    bad_server = signed(tmp_path, "bad", secured.other, *BOTH)
    bad_client = signed(tmp_path, "foreign", secured.other, "clientAuth")
    async with hosts[0].running(), hosts[1].running():
        async with Etcd(server.url, registry_spec(**secured.options())) as etcd:
            await etcd.commit({KEYS.limit(1): limit(1)})
        for host in hosts:
            await host.reports(members=2, limits=1, joined=True)
        for (wrong, right), said in (
            ((bad_server, secured.shown), "its certificate does not pass"),
            ((bad_client, secured.ours), "it refuses our certificate"),
        ):
            caplog.clear()
            server.kill()
            for source, destination in zip(wrong, right, strict=True):
                shutil.copy(source, destination)
            server.start()
            for host in hosts:
                await until(lambda: said in str(host.agent.report()["error"]))  # noqa: B023 -- called at once
                await host.reports(state="unreachable", members=2, limits=1, joined=True)
                assert [found.id for found in host.spec.limits] == [1]
            assert caplog.text.count("no etcd") == len(hosts)
            for path, content in good.items():
                path.write_bytes(content)
            for host in hosts:
                # What is read again is put right without a restart.
                await host.reports(state="connected", error=None)
