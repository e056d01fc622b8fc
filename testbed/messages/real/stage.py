"""Real brokers behind real daemons, in a network namespace, and messages sent on a schedule."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from drld.config.toml_text import toml
from testbed import netns
from testbed.crew import crew
from testbed.errors import MeasurementError
from testbed.local_fleet import LocalFleet
from testbed.messages.real.frames import TOPIC, Protocol
from testbed.messages.servers import mosquitto, nats_server
from testbed.server_process import PATIENCE_S

_FRONT, _SERVER = 1883, 2000
"""Ports; brokers differ in theirs, as their files are called by them."""


class Limit(NamedTuple):
    """A limit on a topic, in messages."""

    rate: int
    burst: int
    allocator: str | Mapping[str, object] = "static"
    """Its name, or a table of its name and parameters."""


class Stage(LocalFleet):
    """Brokers, each with a daemon in front; all daemons share the limits."""

    def __init__(
        self,
        directory: Path,
        protocol: Protocol,
        brokers: int,
        limits: Mapping[str, tuple[str, Limit]],
        **broker: object,
    ) -> None:
        """`limits`: topics and their limits, by name; `broker`: more keys of `[[broker]]`."""
        self.protocol = protocol
        self.fronts = [(self.address(number), _FRONT) for number in range(brokers)]
        """Where publishers connect."""
        self.servers = [(self.address(number), _SERVER + number) for number in range(brokers)]
        """Where the brokers themselves listen."""
        super().__init__(directory, "messages", [
            toml({
                "broker": [{
                    "name": "broker", "protocol": protocol, "listen": "{}:{}".format(*front),
                    "server": "{}:{}".format(*server), **broker,
                }],
                "limit": [
                    {
                        "id": number, "name": name, "unit": "messages", "rate": f"{limit.rate}/s",
                        "burst": f"{limit.burst}msg", "allocator": limit.allocator,
                        "match": {"broker": "broker", "topic": topic},
                    }
                    for number, (name, (topic, limit)) in enumerate(limits.items(), 1)
                ],
            })
            for front, server in zip(self.fronts, self.servers, strict=True)
        ])  # fmt: skip

    async def limit(self, number: int) -> dict[str, Any]:
        """What a daemon says of its limit."""
        return await self.control(number, "/v1/limits/topic")

    async def waits(self, number: int) -> dict[str, Any]:
        """What a daemon says of the messages that waited."""
        found: dict[str, Any] = (await self.limit(number))["waits"]
        return found


@asynccontextmanager
async def staged(
    directory: Path, protocol: Protocol, brokers: int, limit: Limit, hold: str = "64MiB"
) -> AsyncIterator[Stage]:
    """Brokers, each with a daemon in front, all connected; the caller is in their namespace.

    The limit is on `TOPIC`. `hold`: most bytes that may wait at each broker; the product's default.

    Raises:
        MeasurementError: one has ended, or is not ready in time.
    """
    made = Stage(directory, protocol, brokers, {"topic": (TOPIC[protocol], limit)}, hold=hold)
    start = mosquitto if protocol == "mqtt" else nats_server
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(made.running())
        stack.enter_context(netns.entered(made.namespace))
        for host, port in made.servers:
            stack.enter_context(start(directory, port, host=host))
        yield made


async def carried(
    stage: Stage, place_of: Sequence[int], schedule: Sequence[tuple[int, int]]
) -> tuple[list[tuple[int, int, int, int]], list[int]]:
    """Have messages sent at their times, and received at the brokers themselves.

    Args:
        stage: the brokers and daemons.
        place_of: for each publisher, the number of its broker.
        schedule: when which publisher sends, ns since the begin.

    Returns:
        What came: publisher, number, scheduled time and time of arrival, ns. And by how much each
        message was sent late, ns.

    Raises:
        MeasurementError: a message was lost, doubled or overtaken by one of its publisher.
    """
    longest_s = schedule[-1][0] / 1e9 + PATIENCE_S
    jobs: dict[str, dict[str, Any]] = {
        "subscribe": {
            "protocol": stage.protocol, "addresses": stage.servers, "messages": len(schedule),
        },
        "publish": {
            "protocol": stage.protocol, "addresses": stage.fronts, "place_of": place_of,
            "schedule": schedule,
        },
    }  # fmt: skip
    async with crew(stage.directory) as members:
        subscriber, publisher = [
            await members.start_module(role, stage.namespace, "messages.real.load", job, role)
            for role, job in jobs.items()
        ]
        for helper in (subscriber, publisher):
            await helper.receive(PATIENCE_S)
        begin_ns = time.monotonic_ns() + 500_000_000
        await subscriber.send(begin_ns + int(longest_s * 1e9))
        await publisher.send(begin_ns)
        # The subscriber gives up before the testbed does, and then says what came.
        lags = (await publisher.receive(longest_s + PATIENCE_S))["lags"]
        came = (await subscriber.receive(longest_s + PATIENCE_S))["came"]
    _check(stage.protocol, came, len(place_of), len(schedule))
    return came, lags


def _check(
    protocol: Protocol, came: Sequence[tuple[int, int, int, int]], publishers: int, sent: int
) -> None:
    """See that each message came once, and each publisher's in their order."""
    following = [0] * publishers
    for publisher, number, _, _ in came:
        if number != following[publisher]:
            before = following[publisher]
            raise MeasurementError(
                f"{protocol}: {before} messages of a publisher came before its {number}th"
            )
        following[publisher] += 1
    if len(came) != sent:
        raise MeasurementError(f"{protocol}: {len(came)} of {sent} messages came")
