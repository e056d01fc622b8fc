"""A run of the simulator with its TCP (`testbed.sim.run`), with faults and samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from drld.model import NS_PER_S
from testbed.experiment import Experiment
from testbed.sim.run import Simulation


class TcpFleet:
    """The limiters of an experiment. Times are those since its begin."""

    def __init__(self, experiment: Experiment, allocator: str) -> None:
        self._run = Simulation(experiment, allocator, 1)
        self.hosts = {host.name: host for host in self._run.fleet.hosts}
        self.network = self._run.fleet.network
        self.clock = self._run._clock
        self._begin_ns = self.clock.now_ns + NS_PER_S

    def at(self, time_s: float, what: Callable[[], object]) -> None:
        """Do something at that time."""
        self.clock.at(self._begin_ns + round(time_s * NS_PER_S), lambda _: what())

    def sample(self, times_ns: Iterable[int]) -> list[tuple[float, int]]:
        """(time, s, bytes that all limiters have forwarded); `carry_out` fills the list."""
        samples: list[tuple[float, int]] = []

        def take(time_s: float) -> None:
            samples.append((time_s, sum(host.forwarded for host in self.hosts.values())))

        for time_ns in times_ns:
            self.clock.at(self._begin_ns + time_ns, take, time_ns / NS_PER_S)
        return samples

    def carry_out(self) -> None:
        """Let all of it happen."""
        self._run.carry_out()
