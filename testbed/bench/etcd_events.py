"""Prints the changes of a fleet's registry as JSON lines: `python -m testbed.bench.etcd_events`.

Reads `{"url": …, "prefix": …}`. Each change of a key below the prefix has the time at which it
arrived, by the monotonic clock that all processes of a host share.
"""

from __future__ import annotations

import time

import trio

from drld.errors import RegistryError
from drld.registry.etcd import Etcd
from drld.registry.model.state import Event
from drld.spec import RegistrySpec
from testbed import child

_RETRY_S = 0.05


async def _follow(url: str, prefix: str) -> None:
    span = prefix, f"{prefix[:-1]}0"

    def told(events: list[Event]) -> None:
        at = time.monotonic()
        for key, value, revision in events:
            text = None if value is None else value.decode()
            child.send(at=at, key=key.removeprefix(prefix), value=text, revision=revision)

    spec = RegistrySpec(endpoints=(url,), fleet="-", ttl_ns=0, cache="/nowhere")
    while True:
        # Until etcd is there.
        try:
            async with Etcd(url, spec) as etcd:
                await etcd.watch(span, 1, told)
        except RegistryError:
            await trio.sleep(_RETRY_S)


def _work() -> None:
    job = child.receive()
    trio.run(_follow, job["url"], job["prefix"])


if __name__ == "__main__":
    child.main(_work)
