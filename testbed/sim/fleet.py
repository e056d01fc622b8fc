"""The limiters of a run: drld's own code, one engine each, connected from the start.

The testbed begins a run when all its daemons are connected. In a simulated fleet of hundreds, the
gossip until then would cost half a minute. So each simulated limiter is set up as if it had heard
all others long ago and just now. Each then ticks at a phase of its own. In a tree, no sum has come
before the first round, so a run begins after `Fleet.settling_ns`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from drld import config
from drld.gossip.fabrics import FABRICS
from drld.gossip.fabrics.tree import Tree
from drld.node import membership
from drld.police.policer import Policer
from drld.spec import LimiterSpec, PeerSpec
from testbed.experiment import Experiment
from testbed.experiment_tables import CENTRAL, PHANTOM_QUEUES
from testbed.fleet import daemon_document
from testbed.sim.cost import WITNESSES, costs
from testbed.sim.host import Host
from testbed.sim.known import AllConnected, KnownMembership, KnownTree, families
from testbed.sim.mailbox import Datagram
from testbed.sim.network import Conditions, Network
from testbed.sim.phantom_queues import PhantomQueues
from testbed.tcp.clock import Clock
from testbed.topology import Plan

_ADDRESS = "10.3.1.2"


def run_limiters(experiment: Experiment, allocator: str) -> tuple[str, ...]:
    """Names of the running limiters: the configured ones, or the central one."""
    return (allocator,) if allocator in CENTRAL else experiment.limiters


def limiter_specs(experiment: Experiment, allocator: str) -> list[LimiterSpec]:
    """Each limiter's validated configuration.

    Raises:
        ConfigError: drld refuses the configuration.
    """
    names = run_limiters(experiment, allocator)
    alone = Plan(
        veths=(), commands={}, links=(), limiters=names[:1], path={}, source_address={},
        sink_address={}, gossip_address={names[0]: _ADDRESS},
    )  # fmt: skip
    document = daemon_document(experiment, allocator, alone, names[0], "auto")
    # These are checked against the peers, and this document has none.
    of_limiters = {key: document["limit"][0].pop(key, {}) for key in ("shares", "weights")}
    # No limiter fails in an experiment; `testbed.probes` measures probes.
    first = replace(config.from_document(document, experiment.table.name), probes=None)
    (limit,) = first.limits
    limits = (replace(limit, policy=replace(limit.policy, **of_limiters)),)
    if experiment.table.gossip.known:
        return [replace(first, name=name, limits=limits) for name in names]
    everybody = [PeerSpec(name, (_ADDRESS, 1)) for name in names]
    return [
        replace(
            first,
            name=name,
            limits=limits,
            peers=(*everybody[:index], *everybody[index + 1 :]),
        )
        for index, name in enumerate(names)
    ]


class Fleet:
    """All limiters, and the network between them."""

    def __init__(self, experiment: Experiment, allocator: str, clock: Clock, seed: int) -> None:
        gossip = experiment.table.gossip
        conditions = Conditions(
            delay_ns=gossip.rtt // 2, jitter_ns=gossip.jitter, loss=gossip.loss,
            duplicate=gossip.duplicate,
        )  # fmt: skip
        self.network: Network[Datagram] = Network(seed, conditions)
        rng = Random(f"{seed}/limiters")
        policer = PhantomQueues if allocator == PHANTOM_QUEUES else Policer
        self.hosts = [
            Host(spec, clock, self.network, rng, policer)
            for spec in limiter_specs(experiment, allocator)
        ]
        self.witnesses = self.hosts[:WITNESSES] if experiment.table.costs else []
        for host in self.witnesses:
            host.tick_ns = []
        if gossip.known:
            self._have_known()
        self._clock = clock
        self._rng = rng

    def _have_known(self) -> None:
        """Give all but the witnesses a membership that costs nothing."""
        names = [host.name for host in self.hosts]
        gossip = self.hosts[0].engine.spec.gossip
        fabric, interval_ns = FABRICS[gossip.fabric], gossip.interval_ns
        fanout = fabric.fanout(gossip.branching)
        tree = families(names, gossip.branching) if fabric is Tree else {}
        for me, host in enumerate(self.hosts):
            if me < len(self.witnesses):
                host.engine.node.use(membership(host.name, names, gossip))
            elif fabric is Tree:
                host.engine.node.use(KnownTree(names, me, tree[host.name], interval_ns))
            else:
                host.engine.node.use(KnownMembership(names, me, fanout, interval_ns))

    def costs(self) -> dict[str, float] | None:
        """A limiter's cost, if the experiment asks for it."""
        shared = (self._clock, self.network, self._rng)
        return costs(self.witnesses, shared) if self.witnesses else None

    @property
    def settling_ns(self) -> int:
        """The time after `start` until sums have spread and then every share is in force, ns."""
        return 2 * self.hosts[0].engine.membership.rise_ns

    def start(self) -> None:
        """Connect all limiters, and start each at a phase of its own."""
        acquaint(self.hosts, self._clock)
        for host in self.hosts:
            interval_ns = host.engine.spec.gossip.interval_ns
            host.start(self._clock.now_ns - self._rng.randrange(interval_ns))


def acquaint(hosts: Sequence[Host], clock: Clock) -> None:
    """Set up every pair of limiters as connected for so long that it counts as steady."""
    for host in hosts:
        known = host.engine.membership
        if not known.peers or isinstance(known, AllConnected):
            continue
        long_ago_ns = clock.now_ns - known.timeouts.fresh_ns
        for now_ns in (long_ago_ns, clock.now_ns):
            for peer in known.peers:
                known.hear(peer, True, now_ns)
            known.connected(now_ns)
