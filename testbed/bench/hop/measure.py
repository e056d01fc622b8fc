"""`scripts/bench hop`: what a hop to a nats-server costs, beside other proxies and none.

Each contestant is a process on the second processor; broker, publishers and subscriber have the
first. In a round each gets the same messages in turn, and every other round goes backward. The
processor time is the kernel's account of the proxy's process: system calls are in it. Ratios and
added delays are medians of those within a round.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from testbed.bench.hop.client import CONNECTIONS, PROTOCOL, Publishers, quantile
from testbed.bench.hop.proxies import BROKER, Hop, broker, drld, hop
from testbed.bench.lanes import Setting
from testbed.bench.summary import Outcome, Row
from testbed.messages.real.frames import SIZE, TOPIC, Message, publication
from testbed.programs import environment, program

PROCESSOR, RATE = ("processor time of a message", "us"), ("messages a second and core", "")
RATIO = ("of drld's processor time", "")
P50, P99 = ("added median delay", "us"), ("added p99", "us")
DIRECT, NAIVE, HAPROXY = "direct", "trio proxy", "haproxy, TCP mode"
READ, STAMPS = "drld, reading time", "drld, stamps"
GOALS = {1: 20_000.0, 10: 40_000.0}
"""Messages a second and core, by those that are sent at once."""
PACED = 3_000
"""Messages/s of the load under which delays are measured."""
_NOTHING = Message(0, 0, 0)
_PORTS = {DIRECT: BROKER, NAIVE: 2001, HAPROXY: 2002, READ: 2003, STAMPS: 2004}
_HAPROXY = """
global
    nbthread 1
defaults
    mode tcp
    timeout connect 60s
    timeout client 60s
    timeout server 60s
listen broker
    bind 127.0.0.1:{port}
    server broker 127.0.0.1:{broker}
"""


async def measure(setting: Setting) -> Outcome:
    """All contestants in turn."""
    rounds = setting.choose(15, 3)
    flood, paced = setting.choose(20_000, 5_000), setting.choose(6_000, 2_000)
    times: dict[tuple[str, int], list[float]] = {}
    delays: dict[tuple[str, float], list[float]] = {}
    paced_times: dict[str, list[float]] = {}
    with ExitStack() as stack:
        hops = _hops(setting, stack)
        for number in range(rounds + 1):
            setting.progress.step(f"round {number} of {rounds}")
            for each in hops if number % 2 == 0 else reversed(hops):
                for batch in GOALS:
                    before = each.processor_s()
                    each.publishers.send(
                        [publication(PROTOCOL, _NOTHING) * batch] * (flood // batch)
                    )
                    taken = each.processor_s() - before
                    # The first round warms up.
                    if number:
                        times.setdefault((each.name, batch), []).append(1e6 * taken / flood)
                before = each.processor_s()
                found = each.publishers.pace(paced, PACED)
                taken = each.processor_s() - before
                if number:
                    paced_times.setdefault(each.name, []).append(1e6 * taken / paced)
                    for part in (0.5, 0.99):
                        delays.setdefault((each.name, part), []).append(quantile(found, part))
    rows = []
    for batch, goal in GOALS.items():
        group = "single messages" if batch == 1 else f"batches of {batch}"
        rows += costs(group, {name: times[name, batch] for name in _PORTS}, goal)
    rows += costs(f"{PACED:,}/s, single", paced_times, None)
    for name in list(_PORTS)[1:]:
        for part, metric in ((0.5, P50), (0.99, P99)):
            pairs = zip(delays[name, part], delays[DIRECT, part], strict=True)
            rows.append(
                Row(f"{PACED:,}/s, single", name, *metric, [it - than for it, than in pairs])
            )
    direct = [sorted(delays[DIRECT, part])[rounds // 2] for part in (0.5, 0.99)]
    notes = [
        f"{CONNECTIONS} connections; payloads of {SIZE} bytes; one limit, which never binds",
        f"direct: median {direct[0]:.0f} us, p99 {direct[1]:.0f} us from the scheduled time",
    ]
    return Outcome(rows, RATE[0], notes)


def costs(group: str, times: dict[str, list[float]], goal: float | None) -> list[Row]:
    """Processor time, and what follows from it, of each contestant that is a process."""
    rows = []
    for name, its in times.items():
        if name == DIRECT:
            continue
        rows.append(Row(group, name, *PROCESSOR, its))
        rates = [1e6 / it for it in its]
        rows.append(Row(group, name, *RATE, rates, at_least=goal if name == STAMPS else None))
        if name != STAMPS:
            ratios = [it / ours for it, ours in zip(its, times[STAMPS], strict=True)]
            rows.append(Row(group, name, *RATIO, ratios))
    return rows


def _hops(setting: Setting, stack: ExitStack) -> list[Hop]:
    """All contestants before one broker."""
    stack.enter_context(broker(setting))
    direct = stack.enter_context(contextlib.closing(Publishers(BROKER, BROKER)))
    hops = [Hop(DIRECT, None, direct)]
    for name, port in list(_PORTS.items())[1:]:
        command, variables = _command(setting.state, name)
        hops.append(stack.enter_context(hop(setting, name, port, command, variables)))
    return hops


def _command(state: Path, name: str) -> tuple[Sequence[str], Mapping[str, str] | None]:
    """The command of a contestant, and its environment if it needs one."""
    port = _PORTS[name]
    if name == NAIVE:
        module = "testbed.bench.hop.naive"
        return [sys.executable, "-m", module, str(port), str(BROKER)], None
    if name == HAPROXY:
        file = state / "haproxy.cfg"
        file.write_text(_HAPROXY.format(port=port, broker=BROKER))
        return [program("haproxy"), "-f", str(file)], environment("haproxy")
    timestamps = "read" if name == READ else "socket"
    return drld(state, port, [TOPIC[PROTOCOL]], timestamps), None
