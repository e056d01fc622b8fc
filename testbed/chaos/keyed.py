"""`scripts/chaos requests`: faults done to three real daemons with a limit for each user.

The daemons are in a namespace of their own, with addresses of its loopback; clients ask over unix
sockets, which no fault touches. A fault changes the paths between the limiters: loss, duplicates,
a partition; or it kills a daemon. Alice asks all three, at several times her rate. Bob asks
at half of his. What was admitted is in the clients' own log, and one exact bucket
(`drld.requests.buckets.gcra`) judges it.

Promises (docs/requests-per-user.md, "Guarantees"), with N limiters, c and r of a key, and alice's
rate of requests lambda, even over the limiters:

- *excess*: at most the tokens that the others admit in the time G in which news get through,
  `(N - 1) / N lambda G + 1`; in a partition of T seconds `c + r T` more; after a kill
  `lambda / N` times the time until the new daemon was told. G is a delay, the longest time that an
  answer took (a late host delays news as well), and a repeat for each datagram lost in a row, as
  often as happens once in a thousand times.
- *after*: some seconds after the fault nothing more is admitted than one bucket would.
- *bob* is never refused.
"""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import click
import httpx
import trio

from drld.requests.buckets.gcra import admit
from drld.requests.buckets.policy import Policy
from testbed import netns

NODES = 3
CAPACITY, RATE_S = 60, 5
"""Of each key."""
DEMAND_S = 30
"""Alice's requests a second, at all limiters together."""
BUCKET = Policy(CAPACITY, RATE_S)
ROUND_S = 0.05
REPEAT_S = 4 * ROUND_S
"""`drld.requests.keyed_limit.REPEAT_ROUNDS`."""
DELAY_S = 0.01
"""Of news without a fault: two milliseconds, and the daemons' turns."""
RARE = 0.001
BACK_S = 3.0
"""After a fault, until all know everything again: contact takes a ping of a second."""
TOLD_S = 2.0
"""Until a daemon that is ready again was told everything by its peers, the same."""
PORT = 7946
_TWICE = (
    "add table ip twice",
    "add chain ip twice some { type filter hook output priority 0; }",
    "add rule ip twice some udp dport 7947 numgen random mod 4 == 0 dup to 127.0.0.1 device lo",
)


@dataclass
class Log:
    """What the clients saw."""

    admitted: list[tuple[float, int]] = field(default_factory=list)
    """When, and at which limiter, of alice's."""
    asked: int = 0
    failed: int = 0
    slowest_s: float = 0.0
    bob_refused: int = 0

    def excess(self, since_s: float = 0.0) -> float:
        """The largest level of one exact bucket beyond its capacity, from a time on."""
        tat, worst = 0, 0.0
        for at_s, _ in sorted(self.admitted):
            now = round(at_s * 1e9) * BUCKET.rate
            tat = admit(BUCKET, tat, now, 1)
            if at_s >= since_s:
                worst = max(worst, (tat - now) / BUCKET.per_ns - CAPACITY)
        return worst


@dataclass(frozen=True)
class Fault:
    """What is done to the fleet for some seconds, and what it may cost."""

    title: str
    loss: float = 0.0
    twice: bool = False
    cut: bool = False
    kill: bool = False


FAULTS = {
    "none": Fault("nothing is done"),
    "loss-20": Fault("20 % of datagrams are lost", loss=0.2),
    "loss-40": Fault("40 % of datagrams are lost", loss=0.4),
    "duplicates": Fault("a quarter of the datagrams comes twice", twice=True),
    "partition": Fault("one limiter is cut off from the others", cut=True),
    "kill": Fault("a daemon is killed, and starts again", kill=True),
}


class Scene:
    """Three daemons in a namespace, and their clients."""

    def __init__(self, directory: Path, name: str) -> None:
        self.directory = directory
        self.namespace = netns.namespace(name)
        self.log = Log()
        self.processes: list[trio.Process | None] = [None] * NODES
        self.clients: list[httpx.AsyncClient] = []
        self.asking = True

    def inside(self, *command: str) -> None:
        """Run a command in the daemons' namespace."""
        subprocess.run(["ip", "netns", "exec", self.namespace, *command], check=True)

    def configure(self) -> None:
        """Write the files of all daemons."""
        for own in range(NODES):
            peers = "".join(
                f'[[peer]]\nname = "chaos{other}"\naddress = "127.0.0.{1 + other}:{PORT}"\n'
                for other in range(NODES) if other != own
            )  # fmt: skip
            self.file(own).write_text(f"""
[limiter]
name = "chaos{own}"
listen = "127.0.0.{1 + own}:{PORT}"
control = "{self.directory}/{own}.control"
[requests]
listen = "{self.directory}/{own}.front"
[[limit]]
id = 1
name = "user"
rate = "{RATE_S}/s"
burst = {CAPACITY}
match = {{ namespace = "api", per = "user" }}
{peers}""")

    def file(self, own: int) -> Path:
        """A daemon's configuration."""
        return self.directory / f"{own}.toml"

    async def start(self, own: int) -> None:
        """Start a daemon, and wait until it answers."""
        command = ["ip", "netns", "exec", self.namespace, sys.executable, "-m", "drld"]
        self.processes[own] = await trio.lowlevel.open_process(
            [*command, "--config", str(self.file(own))], stderr=subprocess.DEVNULL
        )
        while not await self.ready(own):
            await trio.sleep(0.05)

    async def ready(self, own: int) -> bool:
        """Whether a daemon answers."""
        try:
            return (await self.clients[own].get(_query("nobody", 0))).status_code == 200
        except httpx.TransportError:
            return False

    async def told(self, own: int) -> bool:
        """Whether all peers of a daemon are in contact."""
        found = await self.control(own, "/v1/limits/user/keys")
        return bool(found["peers"] == NODES - 1)

    async def replayed(self, own: int) -> int:
        """Datagrams that came twice, as a daemon counts them."""
        status = await self.control(own, "/v1/status")
        return int(status["deltas"]["rejected"].get("replayed", 0))

    async def control(self, own: int, path: str) -> dict[str, Any]:
        """What a daemon says of itself."""
        transport = httpx.AsyncHTTPTransport(uds=str(self.directory / f"{own}.control"))
        async with httpx.AsyncClient(transport=transport, base_url="http://drld") as client:
            found: dict[str, Any] = (await client.get(path)).json()
        return found

    async def ask(self, own: int, user: str, every_s: float, rng: Random) -> None:
        """One client: requests at random times, whatever the answers."""
        while self.asking:
            await trio.sleep(rng.expovariate(1 / every_s))
            begin_s = time.monotonic()
            try:
                answer = await self.clients[own].get(_query(user, 1))
            except httpx.TransportError:
                self.log.failed += 1
                continue
            end_s = time.monotonic()
            self.log.asked += 1
            self.log.slowest_s = max(self.log.slowest_s, end_s - begin_s)
            admitted = answer.status_code == 200
            if user == "bob":
                self.log.bob_refused += not admitted
            elif admitted:
                self.log.admitted.append(((begin_s + end_s) / 2, own))


def _query(user: str, cost: int) -> str:
    return f"/v1/check?namespace=api&user={user}&cost={cost}"


@asynccontextmanager
async def scene(directory: Path, name: str) -> AsyncIterator[Scene]:
    """Three daemons that know each other; in the end all are gone."""
    found = Scene(directory, name)
    subprocess.run(["ip", "netns", "add", found.namespace], check=True)
    async with AsyncExitStack() as stack:
        stack.callback(netns.remove, [found.namespace])
        found.inside("ip", "link", "set", "lo", "up")
        found.configure()
        for own in range(NODES):
            transport = httpx.AsyncHTTPTransport(uds=str(directory / f"{own}.front"))
            client = httpx.AsyncClient(transport=transport, base_url="http://drld", timeout=30)
            found.clients.append(await stack.enter_async_context(client))
        async with trio.open_nursery() as nursery:
            for own in range(NODES):
                nursery.start_soon(found.start, own)
        for own in range(NODES):
            while not await found.told(own):
                await trio.sleep(0.05)
        yield found
        found.asking = False


@asynccontextmanager
async def done(fault: Fault, on: Scene) -> AsyncIterator[None]:
    """The fault, while the context lasts."""
    drop = ["INPUT", "-p", "udp", "-j", "DROP"]
    cut = "127.0.0.3"
    if fault.loss:
        random = ["-m", "statistic", "--mode", "random", "--probability", str(fault.loss)]
        on.inside("iptables", "-A", "INPUT", "-p", "udp", *random, "-j", "DROP")
    if fault.twice:
        for line in _TWICE:
            on.inside("nft", line)
    if fault.cut:
        # Its own datagrams to itself do not exist; of all others, one end is another address.
        on.inside("iptables", "-A", *drop, "-s", cut)
        on.inside("iptables", "-A", *drop, "-d", cut)
    killed = on.processes[0]
    if fault.kill and killed is not None:
        killed.send_signal(signal.SIGKILL)
        await killed.wait()
    yield
    if fault.twice:
        on.inside("nft", "delete table ip twice")
    on.inside("iptables", "-F", "INPUT")
    if fault.kill:
        await on.start(0)


def news_s(fault: Fault, slowest_s: float) -> float:
    """The longest time in which news get through a fault, but once in a thousand times."""
    in_a_row = math.ceil(math.log(RARE) / math.log(fault.loss)) if fault.loss else 0
    return DELAY_S + slowest_s + in_a_row * REPEAT_S


async def carry_out(name: str, fault: Fault, seconds: float, seed: int) -> dict[str, object]:
    """Do one fault; return what was seen, and whether the promises hold."""
    with netns.workspace() as directory:
        async with scene(directory, name) as on, trio.open_nursery() as nursery:
            for own in range(NODES):
                rng = Random(f"{seed} {own}")
                nursery.start_soon(on.ask, own, "alice", NODES / DEMAND_S, rng)
                nursery.start_soon(on.ask, own, "bob", NODES * 2 / RATE_S, rng)
            # Alice's bucket is empty when the fault begins: all that is admitted is contended.
            await trio.sleep(4 * CAPACITY / DEMAND_S)
            begin_s = time.monotonic()
            async with done(fault, on):
                await trio.sleep(seconds)
                ended_s = time.monotonic()
            after_s = time.monotonic() + BACK_S
            await trio.sleep(BACK_S + seconds)
            on.asking = False
            replayed = [await on.replayed(own) for own in range(NODES)]
        log = on.log
    usual = (NODES - 1) / NODES * DEMAND_S * news_s(FAULTS["none"], log.slowest_s) + 1
    bound = (NODES - 1) / NODES * DEMAND_S * news_s(fault, log.slowest_s) + 1
    if fault.cut:
        bound += CAPACITY + RATE_S * (ended_s - begin_s)
    if fault.kill:
        bound += DEMAND_S / NODES * TOLD_S
    settled = max(usual, min(bound, log.excess() - RATE_S * (after_s - ended_s)))
    return {
        "fault": name,
        "title": fault.title,
        "asked": log.asked,
        "failed": log.failed,
        "admitted": len(log.admitted),
        "slowest_answer_s": round(log.slowest_s, 3),
        "excess": round(log.excess(), 2),
        "bound": round(bound, 2),
        "after": round(log.excess(after_s), 2),
        "after_bound": round(settled, 2),
        "bob_refused": log.bob_refused,
        "replayed": replayed,
        "holds": log.excess() <= bound and log.excess(after_s) <= settled and log.bob_refused == 0,
    }


@click.command()
@click.argument("names", nargs=-1, type=click.Choice([*FAULTS]), metavar="[FAULT]...")
@click.option("--seconds", type=click.FloatRange(2), default=8.0, help="Length of a fault.")
@click.option("--seed", type=click.IntRange(0), default=1, help="Of the requests' times.")
@click.option("--json", "as_json", is_flag=True, help="An object a line.")
def main(names: tuple[str, ...], seconds: float, seed: int, as_json: bool) -> None:
    """Do faults to three real daemons with a limit for each user, and check the promises.

    Exit status: 1 if one does not hold.

    \b
    scripts/chaos requests loss-40 partition
    """
    held = True
    for name in names or FAULTS:
        found = trio.run(carry_out, name, FAULTS[name], seconds, seed)
        held = held and bool(found["holds"])
        if as_json:
            click.echo(json.dumps(found))
        else:
            click.echo(
                f"{name:<11} {'holds ' if found['holds'] else 'FAILED'} "
                f"excess {found['excess']} of {found['bound']}, later {found['after']} of "
                f"{found['after_bound']}; bob refused {found['bob_refused']}; "
                f"{found['admitted']} of {found['asked']} admitted, {found['failed']} failed, "
                f"slowest answer {found['slowest_answer_s']} s, came twice {found['replayed']}"
            )
    raise SystemExit(0 if held else 1)


if __name__ == "__main__":
    main()
