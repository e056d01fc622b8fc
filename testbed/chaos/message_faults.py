"""The faults of `scripts/chaos messages`, and how each is done to a fleet."""

from __future__ import annotations

import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

import trio

from drld.police.arrival_time import LATEST_NS
from testbed.chaos.message_clients import LostError, connected
from testbed.chaos.message_fleet import (
    BURST,
    HOLD_MIB,
    MOST_CONNECTIONS,
    NODES,
    OTHER_LIMIT,
    RATE,
    Scene,
)
from testbed.harness.finding import Check
from testbed.messages.real.frames import Message, greeting, unconfirmed

FLOODER = 2000
"""Number of the first publisher of a flood."""
_DOWN_S = 1.0
"""A broker is away for so long."""
_AWAY_S = 3.0
"""A daemon is away at least until its peers have noticed: else its static share comes on top."""
_FLOODERS, _FLOOD = 4, 10
"""Connections of a flood, and its rate over that of the limit."""
_MEMORY_MIB = HOLD_MIB + 50
_SLOW = 4
_ROOM_BYTES = 4096
"""Buffers of the sockets of floods and slow subscribers: little waits in the kernel."""
_BULK_BYTES, _BULK_EVERY_S = 32_768, 0.025
"""Size and interval of messages to slow subscribers: in some seconds more than all sockets take."""
_VANISHED = "127.0.9.9"
"""The address of clients that vanish."""
_KEEP_ALIVE_S = 2
_EACH = 20
_GONE_S = 15.0
"""The time until vanished clients are gone: 10 s for one without a CONNECT; otherwise 1.5 times the
keep-alive, or three pings of a NATS server, plus 5 s to read the rest, plus the broker's own pauses
between two looks."""
_MOVED = 0.8
"""Part of the publishers that a shift moves."""
_FOLLOWED = 0.05
"""Distance from the parts of the publishers at which the parts of the rate have followed."""
_NEWS_S = 1.3
"""The age of news in a mesh: 25 rounds, and an interval (docs/messages.md)."""


@dataclass
class Seen:
    """A fault's record of itself: its times, and the effects that it explains."""

    more: float = 0.0
    """Messages that may come beyond the bucket because of it."""
    late_s: float = 0.0
    """Time by which the fault may delay the bucket, beside messages that do not wait, s."""
    warm_ns: int = 0
    """Monotonic time at which messages have begun to wait; earlier ones do not count."""
    begin_ns: int = 0
    end_ns: int = 0
    """Monotonic times of the fault's begin and end."""
    spared: tuple[int, ...] = tuple(range(NODES))
    """The limiters that it does not touch."""
    promises: list[Check] = field(default_factory=list)
    """The promises of this fault alone."""


@dataclass(frozen=True)
class Fault:
    """The action on the fleet, which lasts for some seconds."""

    title: str
    do: Callable[[Scene, float, Seen], Awaitable[None]]
    demand: float = 1.2
    """Rate of the publishers over the limit's rate."""
    times: float = 1.0
    """Duration of the fault over that of the others."""
    pings_s: int = 120
    """Between two pings of a NATS server: its default."""


async def _nothing(on: Scene, seconds: float, seen: Seen) -> None:  # noqa: ARG001 -- a fault
    await trio.sleep(seconds)


async def _restart(on: Scene, seconds: float, seen: Seen) -> None:
    """A broker stops while messages wait for it, and starts again."""
    seen.spared = (1, 2)
    await trio.to_thread.run_sync(on.brokers[0].stop)
    await trio.sleep(_DOWN_S)
    await trio.to_thread.run_sync(on.brokers[0].start)
    await trio.sleep(max(seconds - _DOWN_S, 0))


async def _kill(on: Scene, seconds: float, seen: Seen) -> None:
    """A daemon is killed, and starts again."""
    seen.spared = (1, 2)
    # The bucket of the new daemon begins full.
    seen.more = BURST / NODES
    await on.kill(0)
    await trio.sleep(max(seconds, _AWAY_S))
    await on.start(0)


async def _freeze(on: Scene, seconds: float, seen: Seen) -> None:
    """A daemon stands still, and goes on."""
    seen.spared = (1, 2)
    # Messages are charged at most this long before they are read.
    seen.late_s = LATEST_NS / 1e9
    on.send(0, signal.SIGSTOP)
    await trio.sleep(seconds)
    # Until its first tick it has its old part, which the others use by then: `late_s` has that.
    on.without(0)
    on.send(0, signal.SIGCONT)


async def _partition(on: Scene, seconds: float, seen: Seen) -> None:  # noqa: ARG001 -- a fault
    on.cut(2)
    await trio.sleep(seconds)
    on.heal()


async def _lose(on: Scene, seconds: float, seen: Seen) -> None:  # noqa: ARG001 -- a fault
    on.lose(0.2)
    await trio.sleep(seconds)
    on.heal()


async def _shift(on: Scene, seconds: float, seen: Seen) -> None:
    """Publishers move from one limiter to another, while a fifth of the gossip is lost."""
    on.lose(0.2)
    moved = round(_MOVED * len(on.limited[0]))
    since_s = time.time()
    for publisher in on.limited[0][:moved]:
        publisher.move(on.fronts[1])
    # The window, a step that has begun and one that ends, and the age of news.
    most_s = on.window_s + 2 + _NEWS_S
    await trio.sleep(max(seconds, most_s + 1))
    on.heal()
    each = 1 / NODES / len(on.limited[0])
    there = len(on.limited[0]) - moved, len(on.limited[0]) + moved, len(on.limited[0])
    found = on.shares.followed_s([count * each for count in there], since_s, _FOLLOWED)
    seen.promises.append(Check("parts have followed", found, "s", most=most_s))


async def _flood(on: Scene, seconds: float, seen: Seen) -> None:
    """Publishers without receipts send ten times the rate, as far as TCP lets them.

    They are the only ones of the topic at their limiter: others would wait behind them.
    """
    on.stops[0].set()
    before_mib = on.resident_mib(0)
    on.forget_memory(0)
    sent = [0] * _FLOODERS

    async def flood(own: int) -> None:
        async with connected(on.protocol, on.fronts[0], f"flood{own}", room=_ROOM_BYTES) as client:
            begin_s = trio.current_time()
            with trio.move_on_after(seconds):
                while True:
                    due = (trio.current_time() - begin_s) * _FLOOD * RATE / _FLOODERS
                    while sent[own] < due:
                        message = Message(FLOODER + own, sent[own], time.monotonic_ns())
                        on.published.sent[message.publisher, message.number] += 1
                        sent[own] += 1
                        with trio.CancelScope(shield=True):
                            await client.send(
                                unconfirmed(on.protocol, on.topics["limited"], message.payload())
                            )
                    await trio.sleep(0.01)
            on.published.confirmed |= {(FLOODER + own, number) for number in range(sent[own])}
            # It ends its side, and stays until all is delivered.
            await client.end()

    async with trio.open_nursery() as nursery:
        for own in range(_FLOODERS):
            nursery.start_soon(flood, own)
        await trio.sleep(seconds)
        seen.end_ns = time.monotonic_ns()
        for stop in on.stops:
            stop.set()
        grown = on.resident_mib(0) - before_mib
        seen.promises.append(Check("memory grows", grown, "MiB", most=_MEMORY_MIB))


async def _slow(on: Scene, seconds: float, seen: Seen) -> None:
    """Subscribers at a limiter read nothing, while a topic of theirs has large messages."""
    before_mib = on.resident_mib(0)
    on.forget_memory(0)
    topic = on.topics["bulk"]

    async def stall(own: int) -> None:
        name = f"slow{own}"
        with suppress(LostError):
            async with connected(on.protocol, on.fronts[0], name, room=_ROOM_BYTES) as client:
                await client.subscribe(topic)
                await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        for own in range(_SLOW):
            nursery.start_soon(stall, own)
        broker = on.brokers[0].host, on.brokers[0].port
        bulk = unconfirmed(on.protocol, topic, bytes(_BULK_BYTES))
        with trio.move_on_after(seconds):
            async with connected(on.protocol, broker, "bulk") as client:
                while True:
                    await client.send(bulk)
                    await trio.sleep(_BULK_EVERY_S)
        nursery.cancel_scope.cancel()
    grown = on.resident_mib(0) - before_mib
    seen.promises.append(Check("memory grows", grown, "MiB", most=_MEMORY_MIB))


async def _half_open(on: Scene, seconds: float, seen: Seen) -> None:
    """Clients vanish without a word: before, in and behind their greeting, and in a message; and
    they are more than may connect."""
    before, refused = await on.connections(0), await on.refused(0)
    hello = greeting(on.protocol, "vanishes", keep_alive_s=_KEEP_ALIVE_S)
    part = unconfirmed(on.protocol, on.topics["limited"], bytes(100))[:50]
    streams = []
    for said in (b"", hello[:5], hello, hello + part):
        for _ in range(_EACH):
            with suppress(OSError):
                stream = await trio.open_tcp_stream(*on.fronts[0], local_address=_VANISHED)
                streams.append(stream)
                with suppress(trio.BrokenResourceError):
                    await stream.send_all(said.replace(b"vanishes", b"gone%04d" % len(streams)))
    await trio.sleep(0.5)
    more = await on.refused(0) - refused
    for way in ("-s", "-d"):
        on.inside("iptables", "-A", "INPUT", way, _VANISHED, "-j", "DROP")
    since_s = trio.current_time()
    for stream in streams:
        await stream.aclose()
    while await on.connections(0) > before and trio.current_time() - since_s < 4 * _GONE_S:
        await trio.sleep(0.1)
    gone_s = trio.current_time() - since_s
    await trio.sleep(max(seconds - gone_s, 0))
    on.heal()
    beyond = before + 4 * _EACH - MOST_CONNECTIONS
    seen.promises += [
        Check("vanished clients are gone", gone_s, "s", most=_GONE_S),
        Check("connections refused", more, least=beyond, most=beyond),
    ]


async def _full(on: Scene, seconds: float, seen: Seen) -> None:
    """The disks of a broker, and of a daemon's configuration, are full."""
    for place in on.small:
        with suppress(OSError), (place / "full").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
    status, answer = await on.change(0, "other", {"rate": "90k/s"})
    await trio.sleep(seconds)
    rate = (await on.control(0, "/v1/limits/other"))["rate_bps"]
    refused = status >= 400 and str(on.small[1]) in answer and rate == OTHER_LIMIT
    seen.promises.append(Check("changes that cannot be kept are refused", refused, least=1))


FAULTS = {
    "none": Fault("nothing is done", _nothing),
    "restart": Fault("a broker stops while messages wait, and starts again", _restart),
    "kill": Fault("a daemon is killed, and starts again", _kill),
    "freeze": Fault("a daemon stands still, and goes on", _freeze),
    "partition": Fault("one limiter is cut off from the others", _partition),
    "loss-20": Fault("20 % of the gossip is lost", _lose),
    "shift": Fault("80 % of a limiter's publishers move, and 20 % of the gossip is lost", _shift,
                   demand=1 / 1.1),
    "flood": Fault("publishers send ten times the rate", _flood, times=7.5),
    "slow": Fault("subscribers read nothing", _slow),
    "half-open": Fault("clients vanish without a word", _half_open, pings_s=1),
    "full": Fault("the disks of a broker and of a daemon are full", _full),
}  # fmt: skip
