"""The output of drlctl about a daemon, for people and for programs, and its refusals."""

from __future__ import annotations

import json
import re
from pathlib import Path

import trio

from drld.config_difference import differences
from drld.control.schema.status import RegistryReport
from drld.errors import ConfigError, DatapathError
from tests.control_fake import FPS_LIMIT, GRD_LIMIT, PEERS, STATUS, FakeDaemon, record
from tests.unit.cli.drlctl import drlctl, lines, output, refused

# For people


async def test_status_is_printed_for_people(control: Path) -> None:
    assert await output(control, "status") == lines(f"""
        limiter   lim1, drld 0.1.0, pid 4711, up 2h 03m
        state     ready
        datapath  nfqueue (asked for), firewall iptables, queue 17
        counters  overflow 2, truncated 0
        fabric    pushsum, branching 3, every 50.0 ms
        peers     1 of 2 connected
        probes    1 alive, 1 dead
        gossip    1200 sent (57.6 kB), 1180 received, 3 rejected (tag 2, value 1)
        sessions  1 begun; handshakes: 3 sent, 2 received; probes: 40 sent, 39 received
        limits    2
        config    /etc/drld/drld.toml, loaded 2023-11-14 22:13:20 UTC
        differs   lim2 has a different configuration: {differences(["customer-a"])}
    """)


async def test_the_status_shows_a_daemon_s_trouble(control: Path, daemon: FakeDaemon) -> None:
    daemon.report["ready"] = False
    assert daemon.report["probes"] is not None
    daemon.report["probes"]["isolated"] = True
    daemon.report["probes"]["disagreeing"] = {"lim3": []}
    daemon.report["datapath"]["queue"] = None
    daemon.report["datapath"]["counters"] = {}
    daemon.report["gossip"]["rejected"] = {}
    daemon.report["gossip"]["errors"] = {"EPERM": 3}
    daemon.report["config"]["reload_error"] = "drld.toml: a: missing\ndrld.toml: b: missing"
    assert await output(control, "status") == lines("""
        limiter   lim1, drld 0.1.0, pid 4711, up 2h 03m
        state     starting
        datapath  nfqueue (asked for), firewall iptables, queue -
        counters  -
        fabric    pushsum, branching 3, every 50.0 ms
        peers     1 of 2 connected
        probes    1 alive, 1 dead; no peer answers this limiter
        gossip    1200 sent (57.6 kB), 1180 received, 0 rejected; errors: EPERM 3
        sessions  1 begun; handshakes: 3 sent, 2 received; probes: 40 sent, 39 received
        limits    2
        config    /etc/drld/drld.toml, loaded 2023-11-14 22:13:20 UTC
        differs   lim3 has a different configuration: details pending
        reload    refused, so the configuration above stays in force:
                  drld.toml: a: missing
                  drld.toml: b: missing
    """)


async def test_the_status_shows_the_registry(control: Path, daemon: FakeDaemon) -> None:
    registry: RegistryReport = {
        "fleet": "edge",
        "state": "waiting",
        "since": 1_700_000_000.0,
        "endpoint": None,
        "error": "http://etcd1:2379: no answer",
        "revision": 0,
        "members": 1,
        "limits": 0,
        "joined": False,
        "waiting_for": [],
        "lost": 0,
        "problems": {},
        "problem_count": 0,
        "rejected": 0,
        "cache_error": None,
    }
    daemon.report["registry"] = registry
    said = await output(control, "status")
    assert "registry  waiting since 2023-11-14 22:13:20 UTC: http://etcd1:2379: no answer\n" in said
    assert "joining   nothing is limited here until the fleet is known\n" in said
    assert "static share" not in said
    registry["state"], registry["endpoint"] = "connected", "http://etcd1:2379"
    registry["waiting_for"] = ["lim2"]
    said = await output(control, "status")
    assert "joining   at its static share; not known to count it: lim2\n" in said
    registry["joined"], registry["lost"] = True, 2
    registry["problems"], registry["problem_count"] = {"k": "etcd k: no table"}, 1
    registry["cache_error"] = "/var/c: No space left on device"
    said = await output(control, "status")
    assert "joining" not in said
    assert "lost      2 keys, in force, being put into etcd again\n" in said
    assert re.search(r"^problems +1, not in force here:\n +etcd k: no table\n", said, re.M)
    assert re.search(r"^cache +/var/c: No space left on device\n", said, re.M)


async def test_limits_are_a_table(control: Path) -> None:
    assert await output(control, "limits") == lines("""
        NAME        ALLOCATOR  MODE     ID         RATE          BURST     IN FORCE       DEMAND  LOCAL LIMIT  DROP P  FLOWS  FORWARDED  DROPPED
        customer-a  fps        enforce   1  10.0 Mbit/s  312 kB (auto)  6.67 Mbit/s  3.12 Mbit/s  3.05 Mbit/s   0.000      3     129 MB  1.20 MB
        b           grd        shadow   20  1.50 Gbit/s        2.00 MB  1.50 Gbit/s      0 bit/s            -   0.125      0        0 B      0 B
    """)  # noqa: E501 -- as wide as it is


async def test_a_table_without_limits_says_so(control: Path, daemon: FakeDaemon) -> None:
    daemon.reports = []
    headings, none = (await output(control, "limits")).splitlines()
    assert (headings.split()[0], none) == ("NAME", "(none)")


async def test_a_limit_is_shown_with_all_its_figures(control: Path) -> None:
    assert await output(control, "limit", "show", "customer-a") == lines("""
        limit        customer-a (id 1), fps, enforce, on failure share, excess drop
        rate         10.0 Mbit/s, burst 312 kB (auto), every 50.0 ms
        match        in eth1
        flow         5-tuple
        in force     6.67 Mbit/s
        demand       3.12 Mbit/s, 3 flows sampled
        fleet        weight 3.02 here, 7.10 elsewhere (lim2, 2 more), age 43.0 ms
        local limit  3.05 Mbit/s
        enforcement  drop probability 0, fill 3.05 Mbit/s, depth 22.9 kB
        arrived      130 MB in 90123 packets
        forwarded    129 MB in 89300 packets
        dropped      1.20 MB in 823 packets
    """)


async def test_drops_of_other_limits_are_named(control: Path, daemon: FakeDaemon) -> None:
    daemon.reports[0]["arrived_bytes"] += 2000
    daemon.reports[0]["arrived_packets"] += 2
    said = await output(control, "limit", "show", "customer-a")
    assert said.endswith("refused      2.00 kB in 2 packets, by other limits\n")


async def test_marks_are_named(control: Path, daemon: FakeDaemon) -> None:
    daemon.reports[0] |= {"marked_bytes": 3000.0, "marked_packets": 2}
    said = await output(control, "limit", "show", "customer-a")
    assert "89300 packets\nmarked       3.00 kB in 2 packets\ndropped" in said


async def test_limit_show_without_bucket_and_fleet(control: Path) -> None:
    assert await output(control, "limit", "show", "b") == lines("""
        limit        b (id 20), grd, shadow, on failure open, excess mark
        rate         1.50 Gbit/s, burst 2.00 MB, every 500 ms
        weights      lim1 2, lim3 0.25, others 1
        match        out eth1, protocol tcp
        flow         source/24/64
        unsaved      mode, match (until a restart or a reload)
        in force     1.50 Gbit/s
        demand       0 bit/s, 0 flows sampled
        fleet        rate 0 bit/s here, 1.00 Gbit/s elsewhere (no limiter), age -
        local limit  -
        enforcement  drop probability 0.125, no bucket
        arrived      0 B in 0 packets
        forwarded    0 B in 0 packets
        dropped      0 B in 0 packets
    """)


async def test_peers_are_a_table(control: Path) -> None:
    assert await output(control, "peers") == lines("""
        NAME  ADDRESS        STATE         VERDICT  LAST UPDATE  RECEIVED  LOST  LATE  REJECTED
        lim2  10.0.0.2:7946  connected     alive    43.0 ms ago      1180    12     3         0
        lim3  10.0.0.3:7946  disconnected  dead           never         0     0     0         1
    """)


async def test_a_trace_is_a_table_with_a_line_a_tick(control: Path, daemon: FakeDaemon) -> None:
    daemon.ticks_for_readers = 5
    assert await output(control, "trace", "b", "--count", 2) == lines("""
        TIME (UTC)        ARRIVED    FORWARDED      DROPPED       DEMAND    LOCAL   REMOTE     IN FORCE  LOCAL LIMIT  DROP P  FLOWS
        22:13:20.000  3.20 Mbit/s  3.10 Mbit/s   100 kbit/s  3.12 Mbit/s     3.02      7.1  10.0 Mbit/s  3.05 Mbit/s   0.000      0
        22:13:20.050  3.20 Mbit/s  3.10 Mbit/s   100 kbit/s  3.12 Mbit/s     3.02      7.1  10.0 Mbit/s            -   0.000      1
    """)  # noqa: E501 -- as wide as it is
    with trio.fail_after(10):
        await daemon.has_readers(0)


async def test_a_reload_names_the_file_in_force(control: Path, daemon: FakeDaemon) -> None:
    assert await output(control, "reload") == "/etc/drld/drld.toml is in force\n"
    assert daemon.reloads == 1


# For programs


async def test_reports_are_printed_as_json(control: Path) -> None:
    assert json.loads(await output(control, "status", "--json")) == STATUS
    assert json.loads(await output(control, "limits", "--json")) == [FPS_LIMIT, GRD_LIMIT]
    assert json.loads(await output(control, "limit", "show", "b", "--json")) == GRD_LIMIT
    assert json.loads(await output(control, "peers", "--json")) == PEERS
    assert json.loads(await output(control, "reload", "--json")) == STATUS["config"]


async def test_a_trace_as_json_has_an_object_a_tick(control: Path, daemon: FakeDaemon) -> None:
    daemon.ticks_for_readers = 3
    text = await output(control, "trace", "b", "--count", 3, "--json")
    assert [json.loads(line) for line in text.splitlines()] == [
        {**record("b", number), "number": number} for number in range(3)
    ]


# Refusals: one line, status 1


async def test_an_unknown_limit_is_an_error(control: Path) -> None:
    for command in (["limit", "show", "zzz"], ["trace", "zzz"]):
        said = refused(await drlctl(control, *command))
        assert said == "drlctl: the daemon refuses: no limit is named 'zzz'\n"


async def test_a_limit_name_is_no_path(control: Path) -> None:
    refused(await drlctl(control, "limit", "show", "../status"))


async def test_a_refused_configuration_is_explained_and_the_old_one_kept(
    control: Path, daemon: FakeDaemon
) -> None:
    daemon.reload_error = ConfigError(["drld.toml: a: missing", "drld.toml: b: missing"])
    result = await drlctl(control, "reload")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == lines("""
        drlctl: the daemon keeps its configuration, because the file cannot be used:
        drld.toml: a: missing
        drld.toml: b: missing
    """)
    result = await drlctl(control, "reload", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {
        "problems": ["drld.toml: a: missing", "drld.toml: b: missing"]
    }


async def test_a_host_that_refuses(control: Path, daemon: FakeDaemon) -> None:
    daemon.reload_error = DatapathError("iptables: no such chain")
    said = refused(await drlctl(control, "reload"))
    assert said == "drlctl: the daemon refuses: iptables: no such chain\n"


async def test_a_trace_that_the_daemon_ends(control: Path, daemon: FakeDaemon) -> None:
    daemon.ticks_for_readers = 1

    async def end() -> None:
        await daemon.has_readers(1)
        daemon.hub.retain([])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(end)
        result = await drlctl(control, "trace", "b", "--json")
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 1
    assert result.stderr == (
        "drlctl: the daemon ended the trace: was it stopped, or the limit removed?\n"
    )


async def test_skipped_records_are_reported(control: Path, daemon: FakeDaemon) -> None:
    daemon.ticks_for_readers = 1000
    result = await drlctl(control, "trace", "b", "--count", 1)
    assert result.exit_code == 0
    assert result.stderr == "drlctl: 872 records skipped: the reader is too slow\n"


async def test_limit_show_of_requests(control: Path, daemon: FakeDaemon) -> None:
    match = {"namespace": "api", "where": {"plan": "free", "region": "eu"}, "per": ["user", "org"]}
    report = daemon.reports[1]
    report["unit"] = report["items"] = "requests"
    report["match"], report["overrides_in_all"] = match, 7
    report["overrides"] = [
        {"key": ["bigco", "x"], "rate_bps": 1000.0, "burst_bytes": 1.0},
        {"key": ["a", "b"], "rate_bps": 1.0, "burst_bytes": 20.0},
    ]
    shown = await output(control, "limit", "show", "b")
    assert (
        """
match        namespace api, where plan=free,region=eu, per user,org
overrides    bigco, x: 1.00 k requests/s, burst 1 request
             a, b: 1 request/s, burst 20 requests
             and 5 more
"""
        in shown
    )
