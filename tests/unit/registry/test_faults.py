"""A registry in use, with a real etcd, under mistakes of people and faults of servers."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from drld.registry import agent
from drld.registry.etcd import Etcd

from ...etcd_server import EtcdServer
from ...registry_agents import Host, until
from ...registry_factories import KEYS, address, limit, member, registry_spec

SHORT_TTL_NS = 10**9
TTL_NS = 5 * 10**9
"""A lease that outlives a short pause of the host, ns."""


async def test_keys_that_are_deleted_by_hand_are_put_again(
    server: EtcdServer, tmp_path: Path
) -> None:
    first, second = (Host(server, tmp_path, n, ttl_ns=SHORT_TTL_NS) for n in (1, 2))
    async with first.running(), second.running():
        for host in (first, second):
            await host.reports(members=2, joined=True)
        server.put(KEYS.limit(1), limit(1))
        # What comes next is seen by itself.
        for name in ("a", "b"):
            path = tmp_path / f"{name}.cache"
            await until(lambda: path.exists() and KEYS.limit(1) in path.read_text())  # noqa: B023 -- called at once
        # A member that lives registers again, and joins like a new one.
        before = len(second.specs)
        server.delete(KEYS.member("b"))
        await until(lambda: any(not spec.joined for spec in second.specs[before:]))
        await second.reports(members=2, joined=True)
        await until(lambda: first.spec.members == {"a", "b"} and second.spec.joined)
        # That it lives is said again.
        server.delete(KEYS.alive("b"))
        await until(lambda: KEYS.alive("b") in server.get("/drld/f/alive/"))
        server.put(KEYS.alive("b"), "?")
        await until(lambda: server.get("/drld/f/alive/").get(KEYS.alive("b"), b"?") != b"?")
        # Which registry it is is said again, and what is deleted meanwhile stays.
        identity = server.get(KEYS.fleet)
        server.delete(KEYS.fleet)
        await until(lambda: server.get(KEYS.fleet) == identity)
        # A limit is gone.
        server.delete(KEYS.limit(1))
        for host in (first, second):
            await until(lambda: not host.spec.limits)  # noqa: B023 -- called at once


async def test_only_one_of_two_limiters_of_a_name_is_a_member_until_it_is_gone(
    server: EtcdServer, tmp_path: Path
) -> None:
    other = Host(server, tmp_path, 1)
    twins = [
        Host(server, tmp_path, 2, ttl_ns=TTL_NS, cache=str(tmp_path / f"{n}.cache")) for n in (1, 2)
    ]
    twins[1].file = replace(twins[1].file, listen=address(3))
    twins[1].agent = agent.Agent(twins[1].file, "drld.toml", twins[1].prepare, twins[1].reconfigure)
    async with other.running():
        await other.reports(joined=True)
        # Both at once.
        async with twins[0].running(), twins[1].running():
            await until(lambda: any(twin.agent.report()["joined"] for twin in twins))
            winner, loser = sorted(twins, key=lambda twin: not twin.agent.report()["joined"])
            await loser.reports(joined=False, problem_count=1)
            said = str(loser.agent.report()["problems"])
            assert f"etcd {KEYS.alive('b')}: address: " in said
            assert "another limiter has the name 'b' (limiter.name): not registered" in said
            revision = server.revision
            # Neither writes over the other.
            await until(lambda: loser.agent._upkeep is not None)
            server.put(KEYS.limit(1), limit(1))
            for host in (other, winner, loser):
                await until(lambda: len(host.spec.limits) == 1)  # noqa: B023 -- called at once
            assert server.revision - revision < 12
            assert other.spec.members == {"a", "b"}
            await winner.reports(joined=True, problem_count=0)
            await loser.reports(joined=False)
            await loser.agent.leave()
            assert KEYS.member("b") in server.get(KEYS.member("b"))
        # Neither runs, and neither has left: the one that returns is the member.
        async with loser.running():
            await loser.reports(joined=True, problem_count=0)
            await until(lambda: [peer.address for peer in other.spec.peers] == [loser.file.listen])


async def test_a_limiter_that_was_renamed_waits_until_its_old_name_is_removed(
    server: EtcdServer, tmp_path: Path
) -> None:
    server.put(KEYS.member("old"), member(2))
    # Nothing else that is wrong hides that it is not counted.
    for number in range(1, 30):
        server.put(KEYS.limit(number), "?")
    first, renamed = Host(server, tmp_path, 1), Host(server, tmp_path, 2)
    async with first.running():
        await until(lambda: first.spec.members == {"a", "old"})
        async with renamed.running():
            await until(lambda: KEYS.member("b") in first.agent.report()["problems"])
            assert (
                "address: must be unique, but etcd /drld/f/members/old is the"
                in (first.agent.report()["problems"][KEYS.member("b")])
            )
            await until(lambda: KEYS.member("old") in renamed.agent.report()["problems"])
            said = renamed.agent.report()["problems"][KEYS.member("old")]
            assert said.endswith(
                "unique, but drld.toml (limiter.listen) is the same (got '127.0.0.2:7946')"
            )

            def told() -> bool:
                found = json.loads(server.get(KEYS.alive("a"))[KEYS.alive("a")])
                return bool(found.get("uncounted") == ["b"])

            await until(told)
            await renamed.reports(joined=False, waiting_for=["a", "old"])
            server.delete(KEYS.member("old"))
            await renamed.reports(joined=True)
            await until(lambda: first.spec.members == {"a", "b"})


async def test_a_backup_that_is_older_than_what_is_known(
    server: EtcdServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, third = (Host(server, tmp_path, n) for n in (1, 2, 3))
    async with first.running(), second.running():
        await first.reports(members=2, joined=True)
        await second.reports(joined=True)
        server.put(KEYS.limit(1), limit(1))
        backup = server.back_up()
        async with third.running():
            await third.reports(members=3, joined=True)
            server.put(KEYS.limit(1), limit(1, rate="20mbit"))
            server.put(KEYS.limit(2), limit(2))
            for host in (first, second, third):
                await until(lambda: len(host.spec.limits) == 2 and len(host.spec.peers) == 2)  # noqa: B023 -- called at once
            seen = [len(host.specs) for host in (first, second)]
            server.kill()
        server.restore(backup)
        # What came later is put again, what stands there counts.
        for host in (first, second):
            await host.reports(state="connected", lost=0, members=3, limits=2, joined=True)
            await until(lambda: host.spec.limits[0].policy.rate == 1_250_000)  # noqa: B023 -- called at once
        assert KEYS.member("c") in server.get("/drld/f/members/")
        assert all(
            spec.members == {"a", "b", "c"} and [found.id for found in spec.limits] == [1, 2]
            for host, start in zip((first, second), seen, strict=True)
            for spec in host.specs[start:]
        )
    assert caplog.text.count("etcd has lost") >= 1


async def test_a_backup_that_others_have_written_to_since(
    server: EtcdServer, tmp_path: Path
) -> None:
    first, second = Host(server, tmp_path, 1), Host(server, tmp_path, 2)
    async with first.running():
        await first.reports(joined=True)
        backup = server.back_up()
        async with second.running():
            await second.reports(joined=True)
            await until(lambda: first.spec.members == {"a", "b"})
            server.put(KEYS.limit(1), limit(1))
            await until(lambda: len(first.spec.limits) == 1)
            server.kill()
    server.restore(backup)

    def remembered() -> int:
        return int(json.loads((tmp_path / "a.cache").read_text())["revision"])

    known = remembered()
    while server.revision <= known:
        server.put("/another/application", "busy")
    # The revision is higher than ever, and the fleet is the same: and yet nothing was deleted.
    again = Host(server, tmp_path, 1)
    async with again.running():
        await again.reports(state="connected", joined=True, members=2, limits=1, lost=0)
        assert server.get(KEYS.member("b"))
        assert server.get(KEYS.limit(1))
        await until(lambda: remembered() == again.agent.report()["revision"])
    # What is deleted while a limiter is not there is gone, also where the history is.
    for key, compact, left in (
        (KEYS.limit(1), False, {"limits": 0, "members": 2}),
        (KEYS.member("b"), True, {"limits": 0, "members": 1}),
    ):
        server.delete(key)
        if compact:
            server.compact()
        again = Host(server, tmp_path, 1)
        async with again.running():
            await again.reports(state="connected", lost=0, **left)
        assert not server.get(key)


async def test_an_etcd_that_can_only_be_read_is_followed_and_complained_of_once(
    server: EtcdServer,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agent, "LONGEST_RETRY_S", 0.3)
    server.put(KEYS.fleet, "0123456789abcdef" * 2)
    for user in ("root", "reader"):
        server.call("auth/user/add", {"name": user, "password": "word"})
    server.call("auth/role/add", {"name": "reads"})
    span = {"key": "L2RybGQv", "range_end": "L2RybGQw"}
    server.call("auth/role/grant", {"name": "reads", "perm": {"permType": "READ", **span}})
    server.call("auth/user/grant", {"user": "reader", "role": "reads"})
    server.call("auth/user/grant", {"user": "root", "role": "root"})
    server.call("auth/enable", {})
    file = tmp_path / "password"
    file.write_text("word")
    caplog.set_level(logging.INFO)
    host = Host(server, tmp_path, 1, user="reader", password_file=str(file))
    async with host.running():
        await host.reports(state="unreachable", joined=False)
        await until(
            lambda: "permission denied (registry.user)" in str(host.agent.report()["error"])
        )
        root = registry_spec(user="root", password_file=str(file))
        for number in (1, 2, 3):
            async with Etcd(server.url, root) as etcd:
                await etcd.commit({KEYS.limit(number): limit(number)})
            await until(lambda: len(host.spec.limits) == number)  # noqa: B023 -- called at once
        assert host.agent.report()["state"] == "unreachable"
    told = [record for record in caplog.records if record.name == "drld.registry"]
    assert [record.levelname for record in told] == ["WARNING"]
