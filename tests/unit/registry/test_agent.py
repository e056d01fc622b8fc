"""The agent with a real etcd: members of the fleet, and limits that come into force."""

from __future__ import annotations

import json
import logging
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from drld.errors import ConfigError, DatapathError
from drld.registry import agent
from drld.registry.etcd import Etcd
from drld.registry.model import state
from drld.registry.model.state import Event
from drld.registry.records import read_alive, write_alive

from ...etcd_server import EtcdServer
from ...factories import limit_spec
from ...registry_agents import Host, until
from ...registry_factories import KEYS, address, file_spec, limit, member, registry_spec


async def test_a_full_disk_is_logged_and_harms_nothing(server: EtcdServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    host = Host(server, tmp_path, 1, cache=str(tmp_path / "file" / "cache"))
    async with host.running():
        await host.reports(joined=True)
        server.put(KEYS.limit(1), limit(1))
        await until(lambda: len(host.spec.limits) == 1)
        await until(lambda: host.agent.report()["cache_error"] is not None)
    assert list(tmp_path.glob("*cache*")) == []


async def test_one_server_of_several_is_enough_and_the_next_takes_over(
    server: EtcdServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    endpoints = ("http://127.0.0.1:1", server.url, "http://127.0.0.1:2")
    host = Host(server, tmp_path, 1, endpoints=endpoints)
    async with host.running():
        await host.reports(endpoint=server.url, joined=True)
        server.kill()
        await host.reports(endpoint=None, state="unreachable")
        server.start()
        await host.reports(endpoint=server.url, state="connected")
        await until(lambda: KEYS.alive("a") in server.get("/drld/f/"))
    assert caplog.text.count("no etcd") <= 1


async def test_a_limit_that_the_host_refuses_is_refused_alone_and_reported(
    server: EtcdServer, tmp_path: Path
) -> None:
    first, second = Host(server, tmp_path, 1), Host(server, tmp_path, 2)
    first.refuses = {"limit1"}
    async with first.running():
        for number in (1, 2):
            server.put(KEYS.limit(number), limit(number))
        await until(lambda: [found.id for found in first.spec.limits] == [2])
        async with second.running():
            await second.reports(joined=True)
            await until(lambda: first.spec.members == {"a", "b"})
        assert json.loads(server.get(KEYS.alive("a"))[KEYS.alive("a")])["refused"] == {
            KEYS.limit(1): "etcd /drld/f/limits/1: no limit1 here"
        }
        # A change that the host can do comes into force.
        server.put(KEYS.limit(1), limit(1, name="other"))
        await until(lambda: [found.id for found in first.spec.limits] == [1, 2])
        await first.reports(problem_count=0)


async def test_a_limiter_that_left_counts_the_last_known_fleet_while_etcd_is_away(
    server: EtcdServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The last limiter of a fleet that was shut down host by host knew only itself."""
    hosts = [Host(server, tmp_path, number) for number in (1, 2, 3)]
    first, second, third = hosts
    async with first.running():
        async with second.running():
            async with third.running():
                await third.reports(joined=True)
                await until(lambda: first.spec.members == second.spec.members == {"a", "b", "c"})
            await third.agent.leave()
            await until(lambda: second.spec.members == {"a", "b"})
        await second.agent.leave()
        await until(lambda: first.spec.members == {"a"})
    await first.agent.leave()
    server.kill()
    for number in (1, 2, 3):
        again = Host(server, tmp_path, number)
        async with again.running():
            assert again.spec.members == {"a", "b", "c"}
            assert not again.spec.joined
            await again.reports(state="unreachable", members=3)
    again = Host(server, tmp_path, 3)
    async with again.running():
        said = "c was not a member, so no limiter counts it: enforcing the static share of 3"
        await until(lambda: said in caplog.text)
        server.start()
        await again.reports(joined=True, members=1)
        await until(lambda: again.spec.members == {"c"})


async def test_a_leaving_limiter_does_not_wait_for_a_silent_server(
    server: EtcdServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The half of it that is left has to do on a host that is late, too.
    monkeypatch.setattr(agent, "LEAVE_TIMEOUT_S", 10.0)
    host = Host(server, tmp_path, 1)
    async with host.running():
        await host.reports(joined=True)
        path = tmp_path / "a.cache"
        await until(lambda: path.exists() and KEYS.member("a") in path.read_text())
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoints = (f"http://127.0.0.1:{silent.getsockname()[1]}", server.url)
        await Host(server, tmp_path, 1, endpoints=endpoints).agent.leave()
    assert server.get(KEYS.member("a")) == {}


async def test_a_limiter_leaves_although_its_key_changes_meanwhile(
    server: EtcdServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request of an ended session may be carried out after the next session has looked."""
    host = Host(server, tmp_path, 1)
    async with host.running():
        await host.reports(joined=True)
    late = [member(1, joined=False), member(1)]
    get = Etcd.get

    async def look(etcd: Etcd, key: str) -> Event | None:
        found = await get(etcd, key)
        if late:
            server.put(KEYS.member("a"), late.pop())
        return found

    monkeypatch.setattr(Etcd, "get", look)
    await host.agent.leave()
    assert server.get(KEYS.member("a")) == {}


async def test_a_cache_is_tried_again_when_the_disk_has_room(
    server: EtcdServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "RETRY_REFUSED_S", 0.1)
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "cache"
    host = Host(server, tmp_path, 1, cache=str(path))
    async with host.running():
        await until(lambda: host.agent.report()["cache_error"] is not None)
        (tmp_path / "file").unlink()
        await host.reports(cache_error=None)
        assert path.exists()


async def test_a_member_of_an_earlier_life_leaves_or_reports_that_it_cannot(
    server: EtcdServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Killed, started again while etcd was away, and stopped before it was back."""
    host = Host(server, tmp_path, 1)
    cache = tmp_path / "a.cache"
    async with host.running():
        await host.reports(joined=True)
        await until(lambda: cache.exists() and 'joined\\":true' in cache.read_text())
    server.kill()
    again = Host(server, tmp_path, 1)
    async with again.running():
        await again.reports(state="unreachable", joined=True)
    await again.agent.leave()
    assert "a stays a member of fleet f" in caplog.text
    server.start()
    assert KEYS.member("a") in server.get(KEYS.member("a"))
    await again.agent.leave()
    assert server.get(KEYS.member("a")) == {}
    server.put(KEYS.member("a"), member(9))
    await Host(server, tmp_path, 1).agent.leave()
    assert KEYS.member("a") in server.get(KEYS.member("a"))


async def test_a_member_that_is_away_too_long_is_forgotten_if_asked_for(
    server: EtcdServer, tmp_path: Path
) -> None:
    server.put(KEYS.member("z"), '{"address": "127.0.0.9:7946"}')
    patient, quick = Host(server, tmp_path, 1), Host(server, tmp_path, 2, forget_after_ns=10**8)
    async with patient.running():
        await patient.reports(members=2, waiting_for=["z"])
        async with quick.running():
            await quick.reports(members=2, joined=True)
        assert KEYS.member("z") not in server.get("/drld/f/")
        await patient.reports(joined=True)


async def test_a_file_is_reloaded_as_a_whole(server: EtcdServer, tmp_path: Path) -> None:
    host = Host(server, tmp_path, 1)
    async with host.running():
        server.put(KEYS.limit(1), limit(1))
        await until(lambda: len(host.spec.limits) == 1)
        own = file_spec("a", 1, registry=host.file.registry, limits=host.spec.limits)
        await host.agent.reload(own, host.reconfigure)
        await host.reports(problem_count=1)
        assert "unique, but drld.toml (limit[0].id)" in str(host.agent.report()["problems"])
        host.refuses = {"limit1"}
        with pytest.raises(DatapathError):
            await host.agent.reload(own, host.reconfigure)
        other = file_spec("a", 1, registry=registry_spec(fleet="g"))
        with pytest.raises(ConfigError, match="registry: cannot change"):
            await host.agent.reload(other, host.reconfigure)
        assert host.spec.listen == address(1)


async def test_no_file_is_reloaded_before_the_fleet_is_known(
    server: EtcdServer, tmp_path: Path
) -> None:
    """Alone, the limiter would have the whole of each limit."""
    host = Host(server, tmp_path, 1)
    with pytest.raises(ConfigError, match="no reload while the members of the fleet are unknown"):
        await host.agent.reload(replace(host.file, limits=(limit_spec(),)), host.reconfigure)
    assert host.specs == []


async def test_a_limit_that_the_file_has_no_more_does_not_stay_in_a_fleets_place(
    server: EtcdServer, tmp_path: Path
) -> None:
    host = Host(server, tmp_path, 1)
    own, other = limit_spec(id=1, name="own"), limit_spec(id=9, name="limit1")
    async with host.running():
        await host.agent.reload(replace(host.file, limits=(own,)), host.reconfigure)
        server.put(KEYS.limit(1), limit(1))
        await host.reports(problem_count=1)
        # The fleet's of that id has a name that is taken, and was never in force here.
        await host.agent.reload(replace(host.file, limits=(other,)), host.reconfigure)
        assert host.spec.limits == (other,)


async def test_unusable_records_are_logged_once(
    server: EtcdServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    host = Host(server, tmp_path, 1)
    async with host.running():
        await host.reports(joined=True)
        server.put(KEYS.limit(1), limit(1, rate="fast"))
        server.put(KEYS.limit(2), limit(2))
        await until(lambda: len(host.spec.limits) == 1)
        server.put(KEYS.limit(3), limit(3))
        await until(lambda: len(host.spec.limits) == 2)
        await until(lambda: "not in force" in caplog.text)
    (line,) = [line for line in caplog.messages if "not in force" in line]
    assert "etcd /drld/f/limits/1: rate: must be a rate such as" in line


async def test_a_reload_changes_the_interval_of_limits_without_their_own(
    server: EtcdServer, tmp_path: Path
) -> None:
    """A reload does as a restart: otherwise two limiters of one file would differ."""
    host = Host(server, tmp_path, 1)
    slower = replace(host.file, gossip=replace(host.file.gossip, interval_ns=100_000_000))

    def intervals() -> list[int]:
        return [found.policy.interval_ns for found in host.spec.limits]

    async with host.running():
        server.put(KEYS.limit(1), limit(1))
        server.put(KEYS.limit(2), limit(2, interval="20ms"))
        await until(lambda: intervals() == [50_000_000, 20_000_000])
        host.refuses = {"limit1"}
        with pytest.raises(DatapathError):
            await host.agent.reload(slower, host.reconfigure)
        host.refuses = set()
        server.put(KEYS.limit(3), limit(3))
        await until(lambda: intervals() == [50_000_000, 20_000_000, 50_000_000])
        await host.agent.reload(slower, host.reconfigure)
        assert intervals() == [100_000_000, 20_000_000, 100_000_000]
        server.put(KEYS.limit(4), limit(4))
        await until(lambda: intervals()[3:] == [100_000_000])


def test_a_host_that_refuses_a_thousand_limits_counts_newcomers() -> None:
    """`applied` is what they wait for."""
    limits = {KEYS.limit(number): "no interface" for number in range(1, 1101)}
    alive = read_alive(write_alive(KEYS, address(1), 7, limits), KEYS.alive("a"))
    assert (alive.applied, alive.uncounted, len(alive.unused)) == (7, [], 1100)
    members = {KEYS.member(f"m{number}"): "unique" for number in range(1001)}
    alive = read_alive(write_alive(KEYS, address(1), 7, members), KEYS.alive("a"))
    assert (alive.applied, len(alive.uncounted)) == (0, 1000)


async def test_a_limiter_with_unknown_problems_acknowledges_no_member(
    server: EtcdServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "MAX_PROBLEMS", 3)
    host = Host(server, tmp_path, 1)

    def applied() -> int:
        return int(json.loads(server.get(KEYS.alive("a"))[KEYS.alive("a")])["applied"])

    async with host.running():
        await host.reports(joined=True)
        await until(lambda: applied() > 0)
        for number in range(1, 4):
            server.put(KEYS.limit(number), "?")
        await until(lambda: applied() == 0)
        server.delete(KEYS.limit(3))
        await until(lambda: applied() > 0)
