"""The flows of an experiment over a real link: when they run, and what they are.

Only the tests of when flows run need to know how late packets are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from testbed import netns
from testbed.errors import HostError, MeasurementError
from testbed.link import Links
from testbed.linkcheck import LINK, Line, line
from testbed.topology import WAN, set_offloads
from testbed.traffic import FIRST_PORT, check_congestion

from .topology import DEADLINE_S

MakeLinks = Callable[[], Links]

DELAY_NS = 5_000_000
STEP_NS = 200_000_000
PORT = 5001
SOURCE = "10.1.1.2"


@pytest.fixture(autouse=True)
def workspace() -> Iterator[None]:
    with netns.workspace():
        yield
    assert netns.own() == []


def ask_for_ecn() -> None:
    Path("/proc/sys/net/ipv4/tcp_ecn").write_text("1", encoding="ascii")


def received_by_sink() -> tuple[int, int]:
    """Bytes and packets that came in at the sink's interface."""
    table = Path("/proc/thread-self/net/dev").read_text(encoding="ascii")
    (row,) = (row for row in table.splitlines() if row.strip().startswith("in:"))
    carried, packets = row.split()[1:3]
    return int(carried), int(packets)


def flow(number: int, start_s: float, end_s: float) -> dict[str, Any]:
    return {
        "id": f"f{number}",
        "port": FIRST_PORT + number,
        "start_ns": round(start_s * 1e9),
        "end_ns": round(end_s * 1e9),
    }


async def carry(
    wired: Line,
    flows: list[dict[str, Any]],
    seconds: float,
    destination_port: int = PORT,
    window: int | None = None,
    **kind: Any,
) -> tuple[list[dict[str, Any]], dict[int, list[int]]]:
    """Run the flows; return the sender's reports and the received bytes by source port."""
    receiver = await wired.crew.start_module(
        "receiver", wired.sink, "traffic",
        {"port": PORT, "step_ns": STEP_NS, "duration_ns": round(seconds * 1e9),
         "flows": len(flows), "window": window}, "receive",
    )  # fmt: skip
    job = {
        "source": SOURCE,
        "destination": wired.address,
        "destination_port": destination_port,
        "flows": flows,
        **kind,
    }
    sender = await wired.crew.start_module("sender", wired.source, "traffic", job, "send")
    for process in (receiver, sender):
        await process.receive(DEADLINE_S)
    start_ns = time.monotonic_ns() + 300_000_000
    for process in (receiver, sender):
        await process.send({"start_ns": start_ns})
    sent = (await sender.receive(DEADLINE_S))["result"]
    received = (await receiver.receive(DEADLINE_S))["result"]
    assert all(item["source"] == SOURCE for item in received)
    return sent, {item["port"]: item["bytes"] for item in received}


async def test_flows_run_from_their_start_to_their_end(make_links: MakeLinks) -> None:
    links = make_links()
    async with line(links, DELAY_NS) as wired:
        links.set_rate("down", 500_000, None)
        # With windows that all fit into the link's queue nothing is lost, no SYN either.
        flows = [flow(0, 0.0, 2.8), flow(1, 0.6, 2.0)]
        sent, received = await carry(wired, flows, 2.8, window=4000)
    long, short = received[FIRST_PORT], received[FIRST_PORT + 1]
    assert len(long) == len(short) == 14
    assert sum(long) > 0
    assert sum(short) > 0
    assert short[:3] == [0, 0, 0]
    # A reset ends it at once: a step later, for what was under way, nothing more comes.
    assert short[11:] == [0, 0, 0]
    assert [report["error"] for report in sent] == [None, None]
    assert [report["id"] for report in sent] == ["f0", "f1"]
    assert sent[1]["syn_s"] >= 0.6
    for report in sent:
        assert report["connected_s"] >= report["syn_s"] + DELAY_NS / 1e9
        assert report["rtt_ms"] >= DELAY_NS / 1e6


async def test_a_window_bounds_the_bytes_under_way(make_links: MakeLinks) -> None:
    window = 20_000
    async with line(make_links(), DELAY_NS) as wired:
        _, received = await carry(wired, [flow(0, 0.0, 1.6)], 1.6, window=window)
    steps = received[FIRST_PORT]
    assert sum(steps) > 10 * window
    # The kernel advertises somewhat more than it was told.
    assert max(steps) <= 1.5 * window * (STEP_NS / DELAY_NS + 1)


@pytest.mark.parametrize(
    ("kind", "states"),
    [
        ({}, {"reno"}),
        ({"congestion": "cubic"}, {"cubic"}),
        ({"congestion": "bbr", "ecn": True}, {"bbr", "ecn"}),
    ],
)
async def test_flows_use_the_planned_options_and_selective_acknowledgements(
    make_links: MakeLinks, kind: dict[str, Any], states: set[str]
) -> None:
    async def look(source: str) -> None:
        while True:
            shown = netns.run(["ip", "netns", "exec", source, "ss", "-tinoH"]).split()
            if {"sack", "ts", *states} <= set(shown):
                break
            await trio.sleep(0.05)

    async with line(make_links(), DELAY_NS) as wired, trio.open_nursery() as nursery:
        if kind.get("ecn"):
            netns.within(wired.source, ask_for_ecn)
        nursery.start_soon(look, wired.source)
        with trio.fail_after(60):
            sent, received = await carry(wired, [flow(0, 0.0, 3.0)], 3.2, **kind)
        assert len(nursery.child_tasks) == 0, "the kernel never showed such a flow"
    assert sent[0]["error"] is None
    assert sum(received[FIRST_PORT]) > 0


async def test_a_flow_without_selective_acknowledgements_is_an_error(
    make_links: MakeLinks,
) -> None:
    def turn_sack_off() -> None:
        Path("/proc/sys/net/ipv4/tcp_sack").write_text("0", encoding="ascii")

    async with line(make_links(), DELAY_NS) as wired:
        netns.within(wired.sink, turn_sack_off)
        sent, _ = await carry(wired, [flow(0, 0.0, 1.6)], 1.8)
    assert sent[0]["error"] == "selective acknowledgements were not agreed on"


@pytest.mark.parametrize("asked", [False, True])
async def test_ecn_other_than_planned_is_an_error(make_links: MakeLinks, asked: bool) -> None:
    async with line(make_links(), DELAY_NS) as wired:
        if asked:
            netns.within(wired.source, ask_for_ecn)
        sent, _ = await carry(wired, [flow(0, 0.0, 1.6)], 1.8, ecn=not asked)
    wanted = "was agreed on, and not asked for" if asked else "was not agreed on"
    assert sent[0]["error"] == f"ECN {wanted}"


async def test_a_congestion_control_that_the_kernel_does_not_offer_is_named(
    make_links: MakeLinks,
) -> None:
    wanted = r"does not offer the congestion control nonesuch \(.*reno"
    async with line(make_links(), DELAY_NS) as wired:
        with pytest.raises(MeasurementError, match=wanted):
            await carry(wired, [flow(0, 0.0, 1.6)], 1.8, congestion="nonesuch")
    with pytest.raises(HostError, match=wanted):
        check_congestion(["reno", "nonesuch"])


async def test_super_packets_stay_whole_if_the_experiment_says_so(make_links: MakeLinks) -> None:
    async with line(make_links(), DELAY_NS) as wired:
        for namespace, device in ((wired.source, "eth0"), (netns.namespace(WAN), LINK)):
            leave = partial(set_offloads, [device], ("tso", "gso"), on=True)
            netns.within(namespace, leave)
        _, received = await carry(wired, [flow(0, 0.0, 1.6)], 1.8)
        carried, packets = netns.within(wired.sink, received_by_sink)
    assert carried > sum(received[FIRST_PORT]) > 100_000
    assert carried > 2 * 1514 * packets


async def test_a_flow_that_is_refused_is_an_error(make_links: MakeLinks) -> None:
    async with line(make_links(), DELAY_NS) as wired:
        sent, received = await carry(wired, [flow(0, 0.0, 1.6)], 1.8, destination_port=PORT + 1)
    assert sent[0]["error"] == "cannot connect: Connection refused"
    assert sent[0]["connected_s"] is None
    assert received == {}
