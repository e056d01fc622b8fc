"""The bounds of runs in namespaces: experiments beyond them need the simulator."""

from __future__ import annotations

from drld.errors import ConfigError
from testbed.datagrams import PORTS
from testbed.experiment import Experiment
from testbed.experiment_tables import PHANTOM_QUEUES

_MOST_LINKS = 250
"""Most limiters, and most groups of flows: each has a network numbered by one byte."""
_MOST_PACKETS = 20_000
"""UDP packets a second that one process sends in time on a slow host."""


def refuse(experiment: Experiment) -> None:
    """Refuse an experiment that needs the simulator.

    Raises:
        ConfigError: it needs the simulator; one line for each reason.
    """
    gossip = experiment.table.gossip
    problems = [
        f"gossip.{key}: only the simulator has it (python -m testbed.sim)"
        for key in ("jitter", "duplicate", "known")
        if getattr(gossip, key)
    ]
    if experiment.table.costs:
        problems.append("costs: only the simulator measures them (python -m testbed.sim)")
    if PHANTOM_QUEUES in experiment.table.allocators:
        problems.append(
            f"allocators: only the simulator has {PHANTOM_QUEUES} (python -m testbed.sim)"
        )
    if any(group.table.count > PORTS for group in experiment.udp):
        problems.append(
            f"udp.count: more than {PORTS} sources in a group are for the simulator "
            "(python -m testbed.sim)"
        )
    if sum(group.packets_per_s for group in experiment.udp) > _MOST_PACKETS:
        problems.append(
            f"udp: more than {_MOST_PACKETS} packets a second in all are for the simulator "
            "(python -m testbed.sim)"
        )
    groups = len(experiment.sources) + len(experiment.udp)
    if max(len(experiment.limiters), groups) > _MOST_LINKS:
        problems.append(
            f"limiters: more than {_MOST_LINKS} of them, or of groups, are for the simulator "
            "(python -m testbed.sim)"
        )
    if problems:
        raise ConfigError(problems)
