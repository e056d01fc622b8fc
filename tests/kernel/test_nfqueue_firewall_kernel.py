"""The nfqueue datapath's rules: beside those of others and of killed runs, and tools that fail."""

from __future__ import annotations

import operator
import os
import threading
from functools import partial
from pathlib import Path

import pytest

from drld.capture.iptables_rules import ChainState, iptables_install
from drld.capture.nft_rules import nft_install
from drld.capture.queue_hooks import Point, plan
from drld.errors import DatapathError

from .nfqueue import (
    Start,
    before_the_hosts,
    last_tool,
    our_rules,
    plant_other_rules,
    queues,
    refusing_tools,
    rules,
)
from .packets import (
    NOTHING,
    SINK,
    SINK_TOO,
    UNLIMITED,
    limit,
    only,
    send_udp,
)
from .remote import RemoteNfqueueDatapath
from .topology import Topology, wait_for


def test_rules_of_others_stay_as_they_are(topology: Topology, start: Start) -> None:
    plant_other_rules(topology)
    before = rules(topology)
    datapath = start()
    datapath.attach((limit(1, "out0"), UNLIMITED), (limit(2, "in0"), UNLIMITED))
    during = rules(topology)
    assert [line for line in before if line not in during] == []
    assert len(during) > len(before)
    datapath.attach((limit(1, "out0", SINK[4]), UNLIMITED))
    after = rules(topology)
    assert [line for line in before if line not in after] == []
    datapath.detach()
    datapath.detach()
    assert rules(topology) == before
    assert queues(topology) == []


def test_marks_are_seen_and_stay(topology: Topology, start: Start) -> None:
    plant_other_rules(topology)
    datapath = start()
    datapath.attach(
        (limit(1, "in0", mark=(0x05, 0x0F)), UNLIMITED),
        (limit(2, "out0", mark=(0x15, 0xFF)), UNLIMITED),
        (limit(3, "out0", mark=(0x00, 0xFF)), UNLIMITED),
    )
    send_udp(topology, SINK[4], 3, port=7000)
    send_udp(topology, SINK[4], 2, port=7001)
    assert datapath.wait(2, 3).arrived_items == 3
    assert datapath.wait(3, 2).arrived_items == 2
    assert datapath.total(1).arrived_items == 3
    seen = topology.run("limiter", "iptables", "-nvxL", "FORWARD")
    (row,) = [line.split() for line in seen.splitlines() if "0x15" in line]
    assert row[0] == "3"


def test_a_queue_of_another_process_is_left_alone(topology: Topology, start: Start) -> None:
    first = start("lim1")
    first.attach((limit(1, "out0", SINK[4]), UNLIMITED))
    taken = first.queue()
    before = rules(topology)

    stranger = start("lim2", queue=taken)
    with pytest.raises(DatapathError, match=f"NFQUEUE {taken}"):
        stranger.attach((limit(1, "out0", SINK[4]), UNLIMITED))
    assert (rules(topology), queues(topology)) == (before, [taken])

    # The same name asks for the same number; the next one is free.
    first.kill()
    holder = start("lim2", queue=taken)
    holder.attach((limit(1, "out0", SINK_TOO[4]), UNLIMITED))
    second = start("lim1")
    second.attach((limit(1, "out0", SINK[4]), UNLIMITED))
    assert second.queue() == taken + 1
    assert queues(topology) == [taken, taken + 1]
    send_udp(topology, SINK[4], 3)
    assert second.wait(1, 3).arrived_items == 3
    second.detach()
    assert queues(topology) == [taken]


def test_two_limiters_share_a_host(topology: Topology, start: Start) -> None:
    one, two = start("lim1"), start("lim2")
    one.attach((limit(1, "in0", SINK[4]), only(6)))
    two.attach((limit(1, "out0", SINK[4]), only(4)))
    with topology.capture() as capture:
        send_udp(topology, SINK[4], 10)
        assert one.wait(1, 10).forwarded_items == 6
        assert two.wait(1, 6).forwarded_items == 4
        one.detach()
        send_udp(topology, SINK[4], 5)
        assert two.wait(1, 11).arrived_items == 11
        assert len(capture.wait(4)) == 4


def test_two_limiters_share_an_interface(topology: Topology, start: Start, firewall: str) -> None:
    """What one of them accepts leaves the built-in chain of iptables, and so passes the other."""
    one, two = start("lim1"), start("lim2")
    one.attach((limit(1, "out0", SINK[4]), only(6)))
    two.attach((limit(1, "out0", SINK[4]), only(4)))
    with topology.capture() as capture:
        send_udp(topology, SINK[4], 10)
        assert one.wait(1, 10).forwarded_items == 6
        if firewall == "nft":
            assert two.wait(1, 6).forwarded_items == 4
            assert len(capture.wait(4)) == 4
        else:
            assert len(capture.wait(6)) == 6
            assert two.total(1).arrived_items == 0


def test_the_operator_may_install_the_rules(
    topology: Topology, start: Start, firewall: str
) -> None:
    spec = limit(1, "out0", SINK[4])
    datapath = start(tool="none")
    datapath.attach((spec, only(2)))
    queue = datapath.queue()
    assert our_rules(topology) == []
    nothing = dict.fromkeys(Point, ChainState())
    if firewall == "nft":
        topology.run("limiter", "nft", "-f", "-", stdin=nft_install("lim1", plan([spec]), queue))
    else:
        script = iptables_install("lim1", plan([spec]), queue, 4, nothing)
        topology.run("limiter", "iptables-restore", "--noflush", stdin=script)
    installed = our_rules(topology)
    send_udp(topology, SINK[4], 5)
    assert datapath.wait(1, 5).forwarded_items == 2
    datapath.detach()
    assert our_rules(topology) == installed


def test_leftovers_of_a_killed_run_are_replaced(topology: Topology, start: Start) -> None:
    first = start()
    first.attach((limit(1, "in0"), NOTHING), (limit(2, "out0"), NOTHING))
    installed = our_rules(topology)
    first.kill()
    assert our_rules(topology) == installed

    second = start()
    second.attach((limit(1, "in0"), UNLIMITED), (limit(2, "out0"), UNLIMITED))
    assert our_rules(topology) == installed
    second.attach((limit(2, "out0", SINK[4]), only(2)))
    with topology.capture() as capture:
        send_udp(topology, SINK[4], 5)
        assert second.wait(2, 5).forwarded_items == 2
        assert len(capture.wait(2)) == 2
    assert second.total(2).arrived_items == 5  # once each, not once for each leftover
    second.detach()
    assert our_rules(topology) == []


def plant_leftovers_of_the_other_tool(topology: Topology, firewall: str) -> None:
    if firewall == "iptables":
        topology.run("limiter", "nft", "add table inet drld-lim1")
    else:
        for tool in ("iptables", "ip6tables"):
            for arguments in ("-N drld-lim1-in", "-A PREROUTING -j drld-lim1-in"):
                topology.run("limiter", tool, "-t", "mangle", *arguments.split())


def test_leftovers_of_the_other_tool_are_removed(
    topology: Topology, start: Start, firewall: str
) -> None:
    plant_other_rules(topology)
    before = rules(topology)
    plant_leftovers_of_the_other_tool(topology, firewall)
    assert rules(topology) != before
    datapath = start()
    datapath.attach((limit(1, "in0"), UNLIMITED))
    datapath.detach()
    assert rules(topology) == before


def test_packets_flow_while_a_tool_takes_its_time(
    topology: Topology, start: Start, firewall: str, tmp_path: Path
) -> None:
    datapath = start(environment=before_the_hosts(tmp_path))
    datapath.attach((limit(1, "out0"), only(4)))
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    tool = "nft" if firewall == "nft" else "iptables-restore"
    script = tmp_path / tool
    script.write_text(f'#!/bin/sh\nread _ <{gate}\nPATH=/usr/sbin:/sbin exec {tool} "$@"\n')
    script.chmod(0o755)
    reload = threading.Thread(target=lambda: datapath.attach((limit(1, "out0"), UNLIMITED)))
    with topology.capture() as capture:
        reload.start()
        with gate.open("w") as opened:  # the tool has begun
            send_udp(topology, SINK[4], 5)
            assert len(capture.wait(4)) == 4
            assert reload.is_alive()
            opened.write("go on\n")
        reload.join()
        assert datapath.wait(1, 5).forwarded_items == 4
        send_udp(topology, SINK[4], 3)
        assert len(capture.wait(7)) == 7


def test_a_failed_attach_leaves_nothing_behind(
    topology: Topology, start: Start, firewall: str, tmp_path: Path
) -> None:
    plant_other_rules(topology)
    before = rules(topology)
    switch = refusing_tools(tmp_path, last_tool(firewall))
    switch.touch()
    datapath = start(environment=before_the_hosts(tmp_path))
    with pytest.raises(DatapathError, match=r"(nft -f -|ip6tables-restore .*): out of cheese"):
        datapath.attach((limit(1, "out0"), UNLIMITED))
    assert (rules(topology), queues(topology)) == (before, [])
    switch.unlink()
    datapath.attach((limit(1, "out0"), UNLIMITED))
    send_udp(topology, SINK[4], 2)
    assert datapath.wait(1, 2).arrived_items == 2


def test_a_failed_attach_keeps_the_rules_of_a_killed_run(
    topology: Topology, start: Start, firewall: str, tmp_path: Path
) -> None:
    switch = refusing_tools(tmp_path, last_tool(firewall))
    first = start()
    first.attach((limit(1, "in0"), NOTHING), (limit(2, "out0", SINK[4]), NOTHING))
    plant_leftovers_of_the_other_tool(topology, firewall)
    first.kill()
    left = sorted(rules(topology))

    switch.touch()
    second = start(environment=before_the_hosts(tmp_path))
    with topology.capture() as capture:
        with pytest.raises(DatapathError, match="out of cheese"):
            second.attach((limit(1, "in0", SINK_TOO[4]), UNLIMITED), (limit(3, "out0"), UNLIMITED))
        assert (sorted(rules(topology)), queues(topology)) == (left, [])
        send_udp(topology, SINK[4], 5)
        switch.unlink()
        second.attach((limit(2, "out0", SINK[4]), UNLIMITED))
        send_udp(topology, SINK[4], 2)
        assert second.wait(2, 2).arrived_items == 2
        assert len(capture.wait(2)) == 2
    second.detach()
    assert our_rules(topology) == []


def test_a_failed_reload_changes_nothing(
    topology: Topology, start: Start, firewall: str, tmp_path: Path
) -> None:
    switch = refusing_tools(tmp_path, last_tool(firewall))
    datapath = start(environment=before_the_hosts(tmp_path))
    datapath.attach((limit(1, "out0"), UNLIMITED))
    before = our_rules(topology)
    switch.touch()
    with pytest.raises(DatapathError, match="out of cheese"):
        datapath.attach((limit(1, "in0"), UNLIMITED))
    # Chains that were made again are listed in another order.
    assert sorted(our_rules(topology)) == sorted(before)
    send_udp(topology, SINK[4], 2)
    assert datapath.wait(1, 2).arrived_items == 2
    switch.unlink()
    datapath.detach()
    assert our_rules(topology) == []


def reattached(datapath: RemoteNfqueueDatapath) -> int:
    """How often rules were put back, after another tick."""
    datapath.flush()
    return datapath.counters()["reattached"]


def test_rules_that_another_program_removes_are_put_back(
    topology: Topology, start: Start, firewall: str
) -> None:
    """A restart of the service nftables flushes all rules of the host."""
    datapath = start()
    datapath.attach((limit(1, "out0"), only(4)), (limit(2, "in0"), UNLIMITED))
    installed = sorted(our_rules(topology))
    flushes = [["nft", "flush", "ruleset"]]
    if firewall == "iptables":
        flushes += [["iptables", "-t", "mangle", "-F", "PREROUTING"]]
    for flush in flushes:
        before = datapath.counters()["reattached"]
        topology.run("limiter", *flush)
        assert sorted(our_rules(topology)) != installed
        count = wait_for(partial(reattached, datapath), partial(operator.lt, before))
        assert count == before + 1
        assert sorted(our_rules(topology)) == installed
    with topology.capture() as capture:
        send_udp(topology, SINK[4], 7)
        assert datapath.wait(1, 7).forwarded_items == 4
        assert datapath.wait(2, 7).arrived_items == 7
        assert len(capture.wait(4)) == 4
    datapath.detach()
    assert our_rules(topology) == []


def test_rules_that_cannot_be_put_back_are_tried_again(
    topology: Topology, start: Start, firewall: str, tmp_path: Path
) -> None:
    switch = refusing_tools(tmp_path, last_tool(firewall))
    datapath = start(environment=before_the_hosts(tmp_path))
    datapath.attach((limit(1, "out0"), only(2)))
    installed = sorted(our_rules(topology))
    switch.touch()
    topology.run("limiter", "nft", "flush", "ruleset")
    assert reattached(datapath) == 0
    assert sorted(our_rules(topology)) != installed
    switch.unlink()
    assert wait_for(lambda: reattached(datapath), lambda seen: seen == 1) == 1
    assert sorted(our_rules(topology)) == installed
    send_udp(topology, SINK[4], 5)
    assert datapath.wait(1, 5).forwarded_items == 2


def test_rules_of_others_that_go_are_no_reason_to_put_back_ours(
    topology: Topology, start: Start, firewall: str
) -> None:
    plant_other_rules(topology)
    datapath = start()
    datapath.attach((limit(1, "out0"), UNLIMITED))
    installed = our_rules(topology)
    for tool in ("iptables", "ip6tables"):
        topology.run("limiter", tool, "-t", "mangle", "-D", "POSTROUTING", "-j", "theirs")
    topology.run("limiter", "nft", "delete table inet drld-lim10")
    assert reattached(datapath) == 0
    assert [line for line in our_rules(topology) if "lim1-" in line] == [
        line for line in installed if "lim1-" in line
    ]
