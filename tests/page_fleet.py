"""A fleet in virtual time, and the daemon of one of its limiters as the page's backend.

The limiters are drld's own engines (`testbed.sim.host`). Their flows halve their windows after a
loss or a mark, as TCP does. Each answer to the page lets some time pass.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from random import Random

from drld.capture.spec import Match
from drld.control.ranking import Rank
from drld.control.schema.limits import LimitReport, SortKey
from drld.control.schema.live import LiveLimit, PeerHealth
from drld.control.schema.status import StatusReport
from drld.daemon import fleet_report, limit_report, live
from drld.daemon.peer_log import PeerLog
from drld.fleet_rates import FleetRates
from drld.gossip.wire.counts_codec import Counts
from drld.model import NS_PER_S
from drld.planes.plane import Plane
from drld.police.direction import Direction
from drld.police.policer import FORWARD, Excess
from drld.spec import LimitSpec, PeerSpec, ProbeSpec
from testbed.sim.host import Host
from testbed.sim.mailbox import Datagram
from testbed.sim.network import MS, Conditions, Network
from testbed.tcp.clock import Clock

from .control_fake import STATUS, FakeDaemon
from .factories import MBIT, flow, gossip_spec, limiter_spec, policy

PACKET = 1500
RTT_NS = 40 * MS
BEGAN_S = 1_700_000_000.0


class Site(Host):
    """A limiter of any number of limits, whose daemon may die, and tells what it forwards."""

    def planes(self) -> list[Plane]:
        """See `Host`."""
        self.rates = FleetRates(self._counted)
        return [*super().planes(), self.rates]

    def _counted(self, limit_id: int, now_ns: int) -> Counts | None:
        return self.engine.counted(limit_id, now_ns)

    def start(self, began_ns: int) -> None:
        """See `Host`."""
        self.engine.start(began_ns)
        self._clock.at(self.engine.next_due_ns(), self._tick, self._life)

    def kill(self) -> None:
        """The daemon dies, and its traffic ends: the host is gone."""
        self.alive = False
        self._life += 1


@dataclass
class Flow:
    """A flow of one limit at one site, from one second to another."""

    site: str
    limit: str
    number: int
    ceiling: float = 1e9
    """Bottleneck elsewhere, bytes/s."""
    begin_s: float = 0.0
    end_s: float = 1e9
    capable: bool = False
    """Whether it knows congestion marks."""
    window: float = 2.0


def limit(number: int, name: str, mbit: float, excess: Excess = Excess.DROP) -> LimitSpec:
    """A limit of so many Mbit/s."""
    rate = round(mbit * MBIT)
    made = policy("fair", id=number, name=name, rate=rate, burst=rate // 4, excess=excess)
    return LimitSpec(made, Match(interface="out", direction=Direction.OUT))


class PageDaemon(FakeDaemon):
    """The daemon of the first site; other answers than the page's are canned."""

    def __init__(
        self,
        sites: Collection[str],
        limits: Iterable[LimitSpec],
        flows: Iterable[Flow],
        fabric: str = "tree",
    ) -> None:
        super().__init__()
        self.clock = Clock()
        self.step_s = 1.0
        """Time that passes with each answer to the page."""
        self._rng = Random(7)
        network: Network[Datagram] = Network(7, Conditions(delay_ns=10 * MS))
        self._limits = {it.name: it for it in limits}
        addresses = {name: (f"10.0.0.{place}", 7946) for place, name in enumerate(sites, 1)}
        self.sites: Mapping[str, Site] = {
            name: Site(
                replace(
                    limiter_spec(*self._limits.values(), name=name, probes=ProbeSpec()),
                    listen=addresses[name],
                    peers=tuple(PeerSpec(it, addresses[it]) for it in sites if it != name),
                    gossip=gossip_spec(fabric),
                ),
                self.clock,
                network,
                Random(f"{name}/7"),
            )
            for name in sites
        }
        self.here = next(iter(self.sites.values()))
        for site in self.sites.values():
            site.start(-self._rng.randrange(50 * MS))
        for it in flows:
            start_ns = round(it.begin_s * NS_PER_S) + self._rng.randrange(RTT_NS)
            self.clock.at(start_ns, self._send, it)
        self._log = PeerLog()

    def _send(self, it: Flow) -> None:
        """Send a packet; a window is sent in a round trip, evenly."""
        site, now_ns = self.sites[it.site], self.clock.now_ns
        if now_ns > it.end_s * NS_PER_S:
            return
        window = min(it.window, it.ceiling * RTT_NS / NS_PER_S / PACKET)
        gap_ns = round(RTT_NS / max(window, 1.0))
        if site.alive:
            policer = site.datapath.policers[self._limits[it.limit].id]
            verdict = policer.police(flow(it.number), PACKET, now_ns, self._rng, it.capable)
            # A loss or a mark halves the window, and a round trip without one adds one.
            hit = verdict != FORWARD
            it.window = max(it.window / 2, 1.0) if hit else it.window + 1 / max(it.window, 1.0)
        self.clock.at(now_ns + gap_ns, self._send, it)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.run(self.clock.now_ns + round(seconds * NS_PER_S))
        for line in self._log.lines(self.here.engine, self.clock.now_ns):
            self.event_log.add("peer", line.text)

    def status(self) -> StatusReport:
        engine, now_ns = self.here.engine, self.clock.now_ns
        connected = engine.membership.connected(now_ns)
        configured = len(engine.spec.peers)
        return StatusReport(
            **{
                **STATUS,
                "name": self.here.name,
                "uptime_s": now_ns / NS_PER_S,
                "fabric": {"name": engine.spec.gossip.fabric, "branching": 3, "interval_s": 0.05},
                "datapath": {**STATUS["datapath"], "name": "kernel"},
                "peers": {"configured": configured, "connected": len(connected)},
                "probes": fleet_report.probes_report(engine, now_ns),
                "limits": len(engine.limits),
            }
        )

    def ranks(self, by: SortKey) -> Iterable[Rank]:
        self.advance(self.step_s)
        return limit_report.ranks(self.here.engine, by)

    def limit(self, name: str) -> LimitReport:
        return self.live_limits([self._limits[name].id])[0]

    def look(self, limit_id: int) -> None:
        live.look(self.here.engine, self.here.rates, limit_id, self.clock.now_ns)

    def live_limits(self, ids: Collection[int]) -> list[LiveLimit]:
        return live.live_limits(self.here.engine, self.here.rates, self.clock.now_ns, {}, ids)

    def health(self) -> list[PeerHealth]:
        return live.health(self.here.engine, self.clock.now_ns)
