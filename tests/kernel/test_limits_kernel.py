"""Limits that are changed while the daemon runs: what packets meet, and what a restart finds."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from . import preloaded
from .daemon_host import CENTRAL, SHARED, DaemonHost, Daemons, on_one
from .topology import DEADLINE_S, Topology, wait_for

SINK = "10.91.2.1"
PAYLOAD = 972
WIDE = 'rate = "1gbit"\nallocator = "ctb"\nmatch = { out = "out0", protocol = "udp" }'

PATIENCE_S = 1.0
"""The time to wait for a packet before the host's own drops are counted, s."""


def passed(topology: Topology, daemon: DaemonHost, count: int) -> tuple[int, Any]:
    """How many of so many packets at once pass, and the limit's report after them."""
    before = daemon.limit("customer-a")
    with topology.udp("source", "10.91.1.1") as source:
        for _ in range(count):
            source.sendto(bytes(PAYLOAD), (SINK, 9))
    arrived = before["arrived_packets"] + count
    report = daemon.counted("customer-a", arrived)
    return report["forwarded_packets"] - before["forwarded_packets"], report


class Traffic:
    """Packets, one after another: how many were sent, came, and were dropped by the host itself."""

    def __init__(self, topology: Topology) -> None:
        self.sent = self.came = 0
        self._topology = topology
        self._dropped_before = topology.host_drops()
        self.host_drops = 0

    def run(self, stop: threading.Event, pause_s: float) -> None:
        """Send until told to stop, or until a packet is lost that the host did not drop."""
        with (
            self._topology.udp("source", "10.91.1.1") as source,
            self._topology.udp("sink", SINK, 9) as sink,
        ):
            sink.settimeout(PATIENCE_S)
            arrived = True
            while arrived and not stop.wait(pause_s):
                source.sendto(bytes(PAYLOAD), (SINK, 9))
                self.sent += 1
                # Each is waited for, so that this traffic fills no queue of the host.
                arrived = wait_for(lambda: self._receive(sink), bool)

    def _receive(self, sink: socket.socket) -> bool:
        """Receive a packet; whether each packet has come, or was dropped by the host."""
        try:
            self.came += len(sink.recv(2000)) == PAYLOAD
        except TimeoutError:
            self.host_drops = self._topology.host_drops() - self._dropped_before
        return self.came + self.host_drops == self.sent


@contextlib.contextmanager
def traffic(topology: Topology, pause_s: float = 0.0) -> Iterator[Traffic]:
    """Packets through the limiter, until this is left; each has come, or was dropped, by then."""
    stop = threading.Event()
    counts = Traffic(topology)
    thread = threading.Thread(target=counts.run, args=(stop, pause_s))
    thread.start()
    try:
        yield counts
    finally:
        stop.set()
        thread.join()


def test_a_change_is_in_force_at_once_and_a_restart_reverts_it(
    topology: Topology, daemons: Daemons
) -> None:
    daemon = daemons("lim1").started({"customer-a": CENTRAL})
    before = daemon.config.read_text()
    # Ten at once, and one more for each 0.8 s that this takes.
    assert passed(topology, daemon, 30)[0] < 30
    assert daemon.ctl("limit", "shadow", "customer-a").returncode == 0
    forwarded, report = passed(topology, daemon, 30)
    assert report["mode"] == "shadow"
    assert report["dropped_packets"] >= 40
    assert report["unsaved"] == ["mode"]
    assert daemon.ctl("limit", "pause", "customer-a").returncode == 0
    # From the next tick on, nothing counts as dropped.
    wait_for(lambda: daemon.limit("customer-a"), lambda seen: seen["depth_bytes"] is None)
    forwarded, paused = passed(topology, daemon, 30)
    assert forwarded == 30
    assert paused["dropped_packets"] == report["dropped_packets"]
    assert daemon.ctl("limit", "set", "customer-a", "--rate", "20kbit").returncode == 0
    assert daemon.ctl("limit", "enforce", "customer-a").returncode == 0
    wait_for(lambda: daemon.limit("customer-a"), lambda seen: seen["fill_rate_bps"] == 20_000)
    forwarded, report = passed(topology, daemon, 60)
    assert forwarded < 60
    # The counters are still those of the start.
    assert report["arrived_packets"] == 150
    assert report["rate_bps"] == 20_000
    assert daemon.stop() == 0
    daemon.start()
    assert daemon.limit("customer-a")["rate_bps"] == 10_000
    assert daemon.config.read_text() == before
    assert "Traceback" not in daemon.log


def test_traffic_loses_no_packet_by_changes(topology: Topology, daemons: Daemons) -> None:
    daemon = daemons("lim1").started({"customer-a": WIDE})
    other = ("--name", "b", "--rate", "1gbit", "--out", "out0")
    with traffic(topology) as packets:
        for verb in (
            ("set", "customer-a", "--rate", "900mbit"),
            ("add", *other),
            ("shadow", "customer-a"),
            ("pause", "customer-a"),
            ("enforce", "customer-a", "--save"),
            ("set", "b", "--out", "in0"),
            ("remove", "b"),
        ):
            enough = packets.sent + 10
            assert daemon.ctl("limit", *verb).returncode == 0
            sent = wait_for(lambda: packets.sent, lambda now: now > enough)  # noqa: B023 -- at once
            assert sent > enough, f"{packets.came} of {sent} packets came after {verb}"
    assert packets.came + packets.host_drops == packets.sent > 70
    report = wait_for(
        lambda: daemon.limit("customer-a"), lambda seen: seen["arrived_packets"] >= packets.came
    )
    assert report["dropped_packets"] == 0
    assert packets.came <= report["forwarded_packets"] <= packets.sent


@on_one
def test_saved_changes_are_read_by_a_restart_a_check_and_a_reload(
    daemons: Daemons, tmp_path: Path
) -> None:
    daemon = daemons("lim1")
    daemon.environment["STATE_DIRECTORY"] = str(tmp_path)
    daemon.arguments = ("--log-format", "json")
    daemon.configure({"customer-a": CENTRAL})
    daemon.start()
    own = daemon.config.read_text()
    added = ("--name", "b", "--rate", "1mbit", "--in", "in0")
    assert daemon.ask("limit", "add", *added, "--save")["saved"].endswith(".d/99-drlctl.toml")
    assert daemon.ctl("limit", "set", "customer-a", "--rate", "20kbit", "--save").returncode == 0
    assert daemon.stop() == 0
    checked = preloaded.run("drld", "--config", str(daemon.config), "--check")
    assert checked.stdout == f"{daemon.config}: ok (limits: 2, peers: 0)\n"
    daemon.start()
    rates = {limit["name"]: limit["rate_bps"] for limit in daemon.get("/v1/limits")}
    assert rates == {"customer-a": 20_000, "b": 1_000_000}
    # What is not saved goes with a reload, which says so.
    assert daemon.ctl("limit", "remove", "b").returncode == 0
    assert daemon.ask("status")["config"]["unsaved"] == ["b"]
    assert daemon.ctl("diff", check=False).stdout == "limit b: added\n"
    assert "unsaved changes are dropped: b" in daemon.ctl("reload").stdout
    assert "unsaved changes are dropped by the reload: b" in daemon.log
    assert [limit["name"] for limit in daemon.get("/v1/limits")] == ["customer-a", "b"]
    assert daemon.ctl("diff").stdout == ""
    assert daemon.config.read_text() == own
    # A bad drop-in is named by a check, and refused by a reload.
    bad = Path(f"{daemon.config}.d") / "50-bad.toml"
    bad.write_text('[[limit]]\nid = 1\nburst = "much"\n')
    for done in (
        preloaded.run("drld", "--config", str(daemon.config), "--check"),
        daemon.ctl("reload", check=False),
    ):
        assert done.returncode != 0
        assert f"{bad}: limit[0].burst: must be " in done.stderr
    assert daemon.limit("customer-a")["rate_bps"] == 20_000
    # The history survives the restart, and has no refused change.
    made = [
        (it["change"], it["limit"], it["via"], it["uid"], it["saved"])
        for it in reversed(daemon.ask("history"))
    ]
    assert made == [
        ("started", "", "start", None, False),
        ("added", "b", "control", 0, True),
        ("changed", "customer-a", "control", 0, True),
        ("started", "", "start", None, False),
        ("removed", "b", "control", 0, False),
        ("added", "b", "reload", 0, False),
    ]
    (change,) = (it for it in daemon.ask("history") if it["change"] == "changed")
    assert change["keys"] == {"rate": ["10kbit", "20kbit"]}
    assert change["user"] == "root"
    bad.unlink()
    drop_in = Path(f"{daemon.config}.d") / "99-drlctl.toml"
    drop_in.unlink()
    daemon.signal(signal.SIGHUP)
    wait_for(lambda: daemon.limit("customer-a")["rate_bps"], lambda rate: rate == 10_000)
    assert daemon.stop() == 0
    entries = (tmp_path / "lim1.history.jsonl").read_text().splitlines()
    assert [json.loads(entry)["via"] for entry in entries[6:]] == ["signal", "signal"]
    # The log has an event for each of it, with stable names.
    events = [json.loads(line) for line in daemon.log.splitlines() if line.startswith("{")]
    assert {it["event"] for it in events if "event" in it} >= {
        *("daemon.ready", "daemon.stopping", "control.request"),
        *("limit.changed", "limit.reverted", "config.reloaded"),
    }
    (logged,) = (it for it in events if it.get("change") == "changed")
    assert (logged["limit"], logged["old"]) == ("customer-a", {"rate": "10kbit"})
    assert logged["new"] == {"rate": "20kbit"}


@on_one
def test_a_change_that_the_host_refuses_is_neither_in_force_nor_saved(daemons: Daemons) -> None:
    daemon = daemons("lim1").started({"customer-a": CENTRAL})
    before = daemon.limit("customer-a")
    refused = daemon.ctl("limit", "set", "customer-a", "--out", "nowhere0", "--save", check=False)
    assert refused.returncode == 1
    assert "nowhere0" in refused.stderr
    assert list(Path(f"{daemon.config}.d").iterdir()) == []
    assert daemon.limit("customer-a")["unsaved"] == before["unsaved"] == []
    assert daemon.ctl("diff").returncode == 0


@on_one
def test_changes_from_many_shells_at_once_are_all_made(daemons: Daemons) -> None:
    daemon = daemons("lim1").started({"customer-a": CENTRAL})

    def add(number: int) -> None:
        match = {"out": "out0", "destination": f"10.92.{number}.0/24"}
        limit = {"id": number, "name": f"c{number}", "rate": "1mbit", "match": match}
        daemon.post("/v1/limits", {"limits": [limit], "save": number % 2 == 0})

    threads = [threading.Thread(target=add, args=(number,)) for number in range(2, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = {limit["name"] for limit in daemon.get("/v1/limits")}
    assert names == {"customer-a", *(f"c{number}" for number in range(2, 10))}
    assert daemon.stop() == 0
    daemon.start()
    names = {limit["name"] for limit in daemon.get("/v1/limits")}
    assert names == {"customer-a", "c2", "c4", "c6", "c8"}


@on_one
def test_garbage_gets_one_error_as_its_answer(daemons: Daemons) -> None:
    daemon = daemons("lim1").started({"customer-a": CENTRAL})
    before = daemon.get("/v1/config")
    transport = httpx.HTTPTransport(uds=str(daemon.socket), verify=False)
    with httpx.Client(transport=transport, base_url="http://drld", timeout=DEADLINE_S) as client:
        for path in ("/v1/limits", "/v1/limits/customer-a/set", "/v1/limits/customer-a/remove"):
            for body in (b"", b"\xff", b"[" * 9999, b'{"save": 3}', b'{"set": 1, "limits": 1}'):
                answer = client.post(path, content=body)
                assert answer.status_code == 422
                assert answer.json()["error"].startswith("the body must be {")
        odd: tuple[dict[str, object], ...]
        odd = ({"rate": {}}, {"match": None}, {"name": "b"}, {"\0": 1}, {"id": 2})
        for keys in odd:
            answer = client.post("/v1/limits/customer-a/set", json={"set": keys})
            assert answer.status_code == 422
            assert answer.json()["problems"][0].startswith("limit[0].")
        assert client.post("/v1/limits/nix/remove", json={}).status_code == 404
    assert daemon.get("/v1/config") == before
    assert "Traceback" not in daemon.log


@on_one
def test_a_change_that_peers_must_share_names_them(daemons: Daemons) -> None:
    addresses = {"lim1": "127.0.0.1:7946", "lim2": "127.0.0.2:7946"}
    first, second = fleet = [daemons(name) for name in addresses]
    for daemon in fleet:
        daemon.configure(
            {"customer-a": SHARED},
            listen=addresses[daemon.name],
            peers={name: at for name, at in addresses.items() if name != daemon.name},
        )
        daemon.start()
    assert first.ask("limit", "pause", "customer-a")["needed_at"] == []
    faster = ("limit", "set", "customer-a", "--rate", "20mbit")
    said = first.ctl(*faster)
    assert said.stderr.endswith("that has the limit: lim2\n")

    def disagreeing() -> Any:
        return first.get("/v1/status")["probes"]["disagreeing"]

    assert wait_for(disagreeing, lambda found: found == {"lim2": ["customer-a"]})
    assert second.ask(*faster)["needed_at"] == ["lim1"]
    assert wait_for(disagreeing, lambda found: found == {}) == {}
