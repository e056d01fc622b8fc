"""Whole runs on a real kernel: what they measure, and that nothing stays behind.

What a datapath does is tested elsewhere, so one of both carries most of these runs. A run counts
though the host disturbed it: what is asserted are states and bytes, and times that only grow.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import trio

from testbed import netns
from testbed.errors import MeasurementError
from testbed.harness import worker
from testbed.harness.progress import Progress
from testbed.link import DelayLineLinks, Links
from testbed.run import RunOptions, run_once
from tests.testbed_factories import experiment

MakeLinks = Callable[[], Links]

DEADLINE_S = 120.0
"""The time for steps that take seconds, s; an emulated machine is slow."""
FLOWS = [
    {"limiter": "l1", "count": 1, "rtt": "10ms"},
    {"limiter": "l2", "count": 2, "rtt": "10ms"},
]


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    assert netns.own() == []
    assert not netns.state_directory().exists()


async def run(
    make_links: MakeLinks, allocator: str, datapath: str, **changes: Any
) -> dict[str, Any]:
    small = experiment(**{"seconds": 3, "warmup": "1s", "flows": FLOWS, **changes})
    options = RunOptions(datapath, make_links, once=True)
    with Path(os.devnull).open("w", encoding="ascii") as silence:
        return await run_once(small, allocator, 1, options, Progress(silence))


async def test_the_rate_of_the_kernel_s_own_token_bucket_changes(
    make_links: MakeLinks,
) -> None:
    found = await run(
        make_links, "ctb", "tbf", seconds=4, warmup="2s", events=[{"at": "1s", "limit": "2mbit"}]
    )
    burst_bps = (75_000 + 3_000) * 8 / 2
    assert 0 < found["aggregate_bps"] <= 2e6 + burst_bps
    assert set(found["share"]) == {"l1", "l2"}
    assert found["share_of"] == "goodput"
    assert len(found["flows"]) == 3
    assert all(flow["connected_s"] >= flow["syn_s"] + 0.01 for flow in found["flows"])
    assert found["gossip"]["bytes_per_limiter_per_s"] == 0
    if make_links is DelayLineLinks:
        assert found["link"]["overflow"] == 0
        assert found["link"]["packets"] > 100


async def test_a_split_run_counts_every_limiter_by_itself(make_links: MakeLinks) -> None:
    found = await run(make_links, "static", "tbf", limit={
        "rate": "4mbit", "burst": "20kB", "shares": {"l1": 0.25, "l2": 0.75},
    })  # fmt: skip
    for limiter, rate in (("l1", 1e6), ("l2", 3e6)):
        forwarded = [row[1] for row in found["series"][limiter] if row[0] >= 1.0]
        mean = sum(forwarded) / len(forwarded)
        assert 0 < mean <= rate + 23_000 * 8 / 2
        assert all(row[2] >= 0 for row in found["series"][limiter])
    assert found["aggregate_bps"] == pytest.approx(
        sum(window for window in found["windows"][0]["bps"]) / 2, rel=1e-3
    )


async def test_a_timed_event_narrows_a_link(make_links: MakeLinks) -> None:
    found = await run(
        make_links, "static", "tbf", limit={"rate": "100mbit", "burst": "75kB"},
        seconds=4, flows=[{**FLOWS[0], "rate": "8mbit"}], warmup="2s",
        events=[{"at": "1s", "flows": "f1", "rate": "1mbit", "queue": "15kB"}],
    )  # fmt: skip
    # What left the router's queue in the measured time, and one depth of its bucket.
    assert 0 < found["aggregate_bps"] <= 1e6 + 2 * 3028 * 8 / 2


@pytest.mark.parametrize("datapath", ["nfqueue", "kernel"])
async def test_daemons_limit_and_gossip(make_links: MakeLinks, datapath: str) -> None:
    found = await run(make_links, "fps", datapath, seconds=4, warmup="2s")
    assert found["datapath"] == datapath
    assert 0 < found["aggregate_bps"] < 20e6
    assert min(found["share"].values()) > 0
    assert found["gossip"]["received"] > 0
    # An update every 50 ms of 48 bytes, and probes.
    assert found["gossip"]["bytes_per_limiter_per_s"] > 0.5 * 20 * 48
    assert all(rows[-1][3] is not None for rows in found["series"].values())


async def test_udp_falls_under_the_limit_beside_flows_of_several_kinds(
    make_links: MakeLinks,
) -> None:
    flows = [
        {"name": "cubic", "limiter": "l1", "count": 1, "rtt": "10ms", "congestion": "cubic"},
        {"name": "bbr", "limiter": "l2", "count": 1, "rtt": "10ms", "congestion": "bbr"},
        {"name": "direct", "limiter": "l2", "count": 1, "rtt": "0s", "gso": True, "ecn": True},
    ]
    steady = {"name": "steady", "limiter": "l1", "rate": "8mbit", "rtt": "10ms"}
    ports = {"name": "ports", "limiter": "l2", "rate": "400kbit", "ports": "each-packet"}
    drips = {
        "name": "drips", "limiter": "l2", "count": 20, "size": "60B", "burst": 2, "period": "100ms",
        "on": "500ms", "off": "500ms", "start": "1s",
    }  # fmt: skip
    found = await run(
        make_links, "fair", "kernel", seconds=4, warmup="2s", flows=flows,
        udp=[steady, {**ports, "size": "500B"}, drips], limit={"rate": "6mbit", "burst": "75kB"},
    )  # fmt: skip
    assert {flow["id"] for flow in found["flows"]} == {"cubic.1", "bbr.1", "direct.1"}
    assert all(flow["connected_s"] is not None for flow in found["flows"])
    sources = {source["id"]: source for source in found["udp"]}
    assert len(sources) == 22
    # They begin within an interval, and then send at their times, come what may.
    assert sources["steady.1"]["sent"] in (2666, 2667)
    assert sources["ports.1"]["sent"] == 400
    assert all(18 <= sources[f"drips.{n}"]["sent"] <= 30 for n in range(1, 21))
    received = {name: sum(row["goodput_series_bps"]) / 40 for name, row in sources.items()}
    assert 0 < received["steady.1"] < 2667 * 1472
    assert 0 < received["ports.1"] <= 400 * 472
    assert sum(received[f"drips.{n}"] for n in range(1, 21)) > 0
    assert all(sum(sources[f"drips.{n}"]["goodput_series_bps"][:5]) == 0 for n in range(1, 21))
    # The limit is on all of it: the UDP source alone sends more.
    assert 0 < found["aggregate_bps"] < 8e6


async def test_traffic_of_the_limited_hosts_own_falls_under_the_limit(
    make_links: MakeLinks,
) -> None:
    """A firewall tells own packets from forwarded ones; at an interface both are the same."""
    flows = [
        {"limiter": "l1", "count": 1, "rtt": "0s", "egress": True, "congestion": "cubic"},
        {"limiter": "l2", "count": 2, "rtt": "0s", "egress": True},
        {"limiter": "l2", "count": 1, "rtt": "10ms"},
    ]
    found = await run(make_links, "fair", "nfqueue", seconds=4, warmup="2s", flows=flows)
    assert len(found["flows"]) == 4
    assert all(flow["connected_s"] is not None for flow in found["flows"])
    assert min(sum(flow["goodput_series_bps"]) for flow in found["flows"]) > 0
    assert min(found["share"].values()) > 0
    assert 0 < found["aggregate_bps"] < 20e6


async def test_flows_and_callers_share_a_limit(make_links: MakeLinks) -> None:
    """The experiment of scripts/demo, too short to judge the shares."""
    calls = {"limiter": "l2", "count": 7, "rate": "3mbit", "size": "6kB"}
    found = await run(
        make_links, "fair", "auto", seconds=3, warmup="1s", flows=FLOWS[:1], calls=calls,
        allocators=["fair"],
    )  # fmt: skip
    assert len(found["calls"]["callers_bps"]) == 7
    assert min(found["calls"]["callers_bps"]) > 0
    assert min(found["share"].values()) > 0
    assert found["flows"][0]["goodput_bps"] > 0
    # What callers asked for came, and is not what passed.
    rows = found["series"]["l2"]
    assert statistics.fmean(row[2] for row in rows) == pytest.approx(21e6, rel=0.2)
    assert statistics.fmean(row[1] for row in rows) < 20e6


async def test_three_daemons_of_a_tree_share_a_limit(make_links: MakeLinks) -> None:
    """One of them is told what the others want by the third alone."""
    flows = [*FLOWS, {"limiter": "l3", "count": 3, "rtt": "10ms"}]
    found = await run(
        make_links, "fps", "auto", seconds=8, warmup="4s", gossip={"fabric": "tree"}, flows=flows,
        limiters=["l1", "l2", "l3"], limit={"rate": "6mbit", "burst": "75kB"},
    )  # fmt: skip
    assert 3e6 < found["aggregate_bps"] < 6e6 * 1.1
    assert min(found["share"].values()) > 0.03
    assert found["gossip"]["lost"] == 0
    # Each hears of the two others, whose shares are not taken out of the limit. At any one moment
    # weights may be on the move.
    assert found["gossip"]["believed_total"]["rms_error"] < 0.5
    sums = [sum(row[3] for row in rows) for rows in zip(*found["series"].values(), strict=True)]
    assert 4e6 < statistics.median(sums[len(sums) // 2 :]) < 6e6 * 1.3


async def test_the_limit_changes_on_all_limiters(make_links: MakeLinks) -> None:
    found = await run(
        make_links, "fps", "nfqueue", seconds=4, events=[{"at": "1500ms", "limit": "2mbit"}]
    )
    (event,) = found["events"]
    assert (event["kind"], event["limit_bps"]) == ("limit", 2e6)
    assert event["in_force_s"] is not None
    # While weights move the sum may be off, but no part is ever more than the new whole.
    assert all(0 < rows[-1][3] <= 2e6 for rows in found["series"].values())


async def test_a_daemon_is_killed_and_started_again(make_links: MakeLinks) -> None:
    found = await run(
        make_links, "fps", "kernel", allocators=["fps"], seconds=18, gossip={"fabric": "mesh"},
        events=[{"at": "1500ms", "kill": "l2"}, {"at": "4s", "start": "l2"}],
    )  # fmt: skip
    death, back = found["events"]
    assert (death["kind"], back["kind"]) == ("death", "return")
    # In a mesh of 50 ms the share of the dead leaves the limit after 0.85 s.
    assert death["in_force_s"] >= 0.7
    assert [flow["limiter"] for flow in death["flows"]] == ["l1"]
    assert back["in_force_s"] is not None


async def test_a_daemon_that_does_not_start_is_quoted(make_links: MakeLinks) -> None:
    with pytest.raises(MeasurementError, match=r"did not become ready(?s:.*)carrier-pigeon"):
        await run(make_links, "fps", "auto", gossip={"fabric": "carrier-pigeon"})


async def test_a_daemon_that_dies_in_the_middle_fails_the_run(
    make_links: MakeLinks,
) -> None:
    async def kill_when_running() -> None:
        namespace = netns.NETNS_DIRECTORY / netns.namespace("lim-l1")
        control = netns.state_directory() / "l1.sock"
        while not control.exists():
            await trio.sleep(0.05)
        # The firewall's tool may be at work beside the daemon.
        while len(pids := netns.run(["ip", "netns", "pids", namespace.name]).split()) != 1:
            await trio.sleep(0.05)
        (pid,) = pids
        await trio.sleep(1.5)
        os.kill(int(pid), signal.SIGKILL)

    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kill_when_running)
            with pytest.raises(MeasurementError, match=r"daemon l1 .*exit status -9"):
                await run(make_links, "fps", "nfqueue", seconds=10)


def workers(parent: int) -> dict[int, str]:
    """The processes that a process started, with the owner's part of their namespaces' names."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == parent:
            pid = int(stat.parent.name)
            found[pid] = f"{pid}.{fields[19]}"
    return found


@contextlib.contextmanager
def running_testbed(*command: str) -> Iterator[tuple[subprocess.Popen[bytes], dict[int, str]]]:
    """A campaign in the middle of its runs: the process and its workers."""
    # Its own session, or an interrupt might come from elsewhere.
    call = [sys.executable, "-m", *command]
    with subprocess.Popen(call, stderr=subprocess.PIPE, start_new_session=True) as process:
        try:
            deadline = time.monotonic() + DEADLINE_S
            jobs = 2 if "--jobs" in command else 1
            found: dict[int, str] = {}
            # Sampler, receiver, two senders, and daemons.
            while len(found) < jobs or not all(len(inside(it)) >= 6 for it in found.values()):
                assert process.poll() is None, process.communicate()[1]
                assert time.monotonic() < deadline, found
                time.sleep(0.05)
                found = workers(process.pid)
            yield process, found
        finally:
            process.kill()
            process.wait()
            netns.remove_stale()


def inside(owner: str) -> list[int]:
    """The processes in the namespaces of an owner."""
    paths = netns.NETNS_DIRECTORY.glob(f"{netns.PREFIX}-{owner}-*")
    listed = [netns.run(["ip", "netns", "pids", path.name], check=False) for path in paths]
    return [int(pid) for text in listed for pid in text.split()]


def left_of(owners: Iterable[str]) -> list[Path]:
    return [
        path
        for owner in owners
        for directory in (netns.NETNS_DIRECTORY, netns.STATE_DIRECTORY)
        for path in directory.glob(f"{netns.PREFIX}-{owner}*")
    ]


def wait_until_gone(pids: Iterable[int]) -> None:
    """Wait until these processes, which are not our children, have ended."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            with selectors.DefaultSelector() as selector:
                selector.register(descriptor, selectors.EVENT_READ)
                assert selector.select(DEADLINE_S), f"process {pid} is still there"
            os.close(descriptor)


RUN = ("testbed", "run", "baseline", "--seconds", "60", "--allocator", "fps", "--repeat", "1")
FIGURE = ("testbed.reproduce", "fig3", "--quick", "--jobs", "2")


@pytest.mark.parametrize(
    ("command", "number"),
    [
        ((*RUN, "--datapath", "nfqueue"), signal.SIGTERM),
        ((*FIGURE, "--datapath", "kernel"), signal.SIGINT),
    ],
    ids=["run", "reproduce"],
)
def test_an_interrupted_campaign_leaves_nothing(
    tmp_path: Path, command: tuple[str, ...], number: signal.Signals
) -> None:
    with running_testbed(*command, "--out", str(tmp_path / "out")) as (process, found):
        children = [pid for owner in found.values() for pid in inside(owner)]
        process.send_signal(number)
        _, said = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 128 + number, said
        assert b"interrupted; everything is removed" in said
        wait_until_gone([*children, *found])
        assert left_of(found.values()) == []
        (result,) = tmp_path.rglob("result.json")
        assert json.loads(result.read_text())["runs"] == []


def test_an_interrupted_suite_of_faults_leaves_nothing() -> None:
    """Daemons and brokers in a namespace, and their small file systems."""
    call = [sys.executable, "-m", "testbed.chaos.messages", "kill", "--broker", "nats"]
    with subprocess.Popen(call, stderr=subprocess.PIPE, start_new_session=True) as process:
        try:
            owner = netns.owner(process.pid)
            deadline = time.monotonic() + DEADLINE_S
            # Three daemons and three brokers.
            while len(children := inside(owner)) < 6:
                assert process.poll() is None, process.communicate()[1]
                assert time.monotonic() < deadline, children
                time.sleep(0.05)
            process.terminate()
            _, said = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
            process.wait()
            netns.remove_stale()
        assert process.returncode == 128 + signal.SIGTERM, said
        wait_until_gone(children)
        assert left_of([owner]) == []


@pytest.mark.alone
def test_the_next_run_removes_leftovers_of_a_killed_one() -> None:
    """The run's own process: its campaign would clean up after it."""
    small = experiment(seconds=60, flows=FLOWS)
    job = worker.Job(small.definition, "fps", 1, False, "nfqueue", "auto", True)
    command = [sys.executable, "-m", worker.__name__]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{json.dumps(asdict(job))}\n")
        process.stdin.flush()
        next(line for line in process.stdout if "left" in line)
        owner = netns.owner(process.pid)
        children = inside(owner)
        assert len(children) >= 6  # sampler, receiver, two senders, two daemons
        process.kill()
        process.wait()
        # The kernel ends the children of a dead process.
        wait_until_gone(children)
        assert left_of([owner])
        assert any(owner in name for name in netns.remove_stale())
        assert left_of([owner]) == []


def test_the_command_writes_result_figures_and_table(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "testbed", "run", "baseline", "--once", "--seconds", "3"]
    command += ["--set", "warmup=1s", "--allocator", "ctb", "--repeat", "1"]
    command += ["--datapath", "tbf", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    title, heads, row, *_ = done.stdout.splitlines()
    assert title == "10.0 Mbit/s: 3 flows at one limiter, 7 at the other"
    assert heads.startswith("allocator")
    assert row.startswith("ctb")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["baseline-ctb.png", "result.json"]
    assert json.loads((tmp_path / "result.json").read_text())["runs"][0]["allocator"] == "ctb"
