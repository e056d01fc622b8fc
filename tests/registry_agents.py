"""Agents of the registry on a real etcd, without a daemon around them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from drld.errors import DatapathError
from drld.registry.agent import Agent
from drld.spec import LimiterSpec

from .etcd_server import EtcdServer
from .registry_factories import file_spec, registry_spec

DEADLINE_S = 60


async def until(true: Callable[[], bool]) -> None:
    with trio.fail_after(DEADLINE_S):
        while not true():
            await trio.sleep(0.01)


class Host:
    """A daemon as its agent sees it: it records the limits in force, and refuses some."""

    def __init__(self, server: EtcdServer, directory: Path, number: int, **changes: Any) -> None:
        self.refuses: set[str] = set()
        self.specs: list[LimiterSpec] = []
        self.prepared: LimiterSpec | None = None
        name = "abcdef"[number - 1]
        registry = registry_spec(
            **{
                "endpoints": (server.url,),
                "ttl_ns": 20 * 10**9,
                "cache": str(directory / f"{name}.cache"),
                **changes,
            }
        )
        self.file = file_spec(name, number, registry=registry)
        self.agent = Agent(self.file, "drld.toml", self.prepare, self.reconfigure)

    async def prepare(self, spec: LimiterSpec) -> None:
        await trio.lowlevel.checkpoint()
        self.prepared = spec

    def reconfigure(self, spec: LimiterSpec) -> None:
        # What takes long of it was done while ticks went on, and nothing came between.
        assert spec.limits == self.spec.limits or spec == self.prepared
        bad = [limit.name for limit in spec.limits if limit.name in self.refuses]
        if bad:
            raise DatapathError(f"no {bad[0]} here")
        self.specs.append(spec)

    @property
    def spec(self) -> LimiterSpec:
        return self.specs[-1]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.agent.run)
            with trio.fail_after(DEADLINE_S):
                await self.agent.known.wait()
            self.specs.append(self.agent.spec())
            self.agent.started(self.spec)
            yield
            nursery.cancel_scope.cancel()

    async def reports(self, **wanted: object) -> None:
        await until(lambda: wanted.items() <= dict(self.agent.report()).items())
