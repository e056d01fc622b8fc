"""`python -m testbed.probes`: the time until probes find a death, and the rate of false verdicts.

Each simulated fleet (`testbed.sim.probe_fleet`) runs for a minute, and then one of its limiters
dies. `--plain` leaves out Lifeguard's longer waiting and longer suspicions.
"""

from __future__ import annotations

import argparse
import statistics

from drld.gossip.wire.control_codec import State
from drld.model import NS_PER_S
from drld.spec import ProbeSpec
from testbed.harness.markdown import bar, table
from testbed.sim.network import Conditions
from testbed.sim.probe_fleet import ProbeFleet, false_verdicts

WARMUP_S, QUIET_S, DEADLINE_S = 10.0, 60.0, 400.0
PLAIN = ProbeSpec(patience=0, suspicion_max=1.0)


def case(size: int, loss: float, unwell: float, runs: int, spec: ProbeSpec) -> str:
    """One row of the table."""
    took: list[float] = []
    suspicions = deaths = messages = isolated = 0
    for seed in range(runs):
        fleet = ProbeFleet(size, seed, Conditions(loss=loss), spec)
        fleet.run(WARMUP_S)
        sick = fleet.names[1 : 1 + round(unwell * size)]
        fleet.overloaded = dict.fromkeys(sick, 0.8)
        fleet.changes.clear()
        before = sum(host.sent for host in fleet.hosts.values())
        for _ in range(round(QUIET_S)):
            fleet.run(1)
            isolated += sum(host.isolated for host in fleet.hosts.values())
        messages += sum(host.sent for host in fleet.hosts.values()) - before
        fleet.changes = [change for change in fleet.changes if change.peer not in sick]
        suspicions += false_verdicts(fleet, State.SUSPECT)
        deaths += false_verdicts(fleet, State.DEAD)
        if size > 2 and not sick:
            fleet.kill("l0")
            took.append(fleet.run_until(fleet.others("l0"), "l0", State.DEAD, DEADLINE_S))
    seconds = QUIET_S * runs
    detection = f"{statistics.mean(took):.1f} ({min(took):.1f} to {max(took):.1f})" if took else "-"
    # Every limiter holds the same suspicion, so the count is divided by the number of limiters.
    return bar(
        [
            str(size),
            f"{loss:.0%}",
            f"{fleet.times.suspicion_min_ns / NS_PER_S:.1f}",
            detection,
            f"{suspicions / max(1, size - 1) / size / seconds * 3600:.2f}",
            str(deaths),
            f"{isolated / size / seconds:.2%}",
            f"{messages / size / seconds:.2f}",
        ]
    )


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[3, 10, 50])
    parser.add_argument("--loss", type=float, nargs="+", default=[0.0, 0.2, 0.4])
    parser.add_argument("--unwell", type=float, default=0.0, help="part that loses 80 %% of input")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--plain", action="store_true", help="without Lifeguard's times")
    args = parser.parse_args()
    headers = [
        *("limiters", "loss", "R + Q + F, s", "a death is known to all after (least, most), s"),
        *("false suspicions of a limiter, in an hour", "false verdicts of death"),
        *("time cut off by mistake", "messages a limiter sends in a second"),
    ]
    print("\n".join(table(headers, [])))
    for size in args.sizes:
        for loss in args.loss:
            row = case(size, loss, args.unwell, args.runs, PLAIN if args.plain else ProbeSpec())
            print(row, flush=True)


if __name__ == "__main__":
    main()
