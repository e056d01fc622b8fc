"""The PyPI package `limits` on Redis, with its fixed window: it has no bucket."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version

from testbed.bench.requests.contest import Entry, Result, Scene, Slice
from testbed.bench.requests.load import DEBT, EMPTIED, POLICY, Asked
from testbed.bench.requests.redis_server import SETTINGS, command, pipeline, redis


@contextmanager
def contestant(scene: Scene) -> Iterator[Slice]:
    """Yield a fixed window of the package, in a Redis in which each key has its count."""
    from limits import RateLimitItemPerDay
    from limits.storage import RedisStorage
    from limits.strategies import FixedWindowRateLimiter

    item = RateLimitItemPerDay(POLICY.capacity)
    with redis(scene) as (sock, path):
        storage = RedisStorage(f"redis+unix://{path}")
        taken = ((Asked(key, 1).user, DEBT if key < EMPTIED else 1) for key in range(scene.keys))
        pipeline(sock, [
            command("INCRBY", storage.prefixed_key(item.key_for(user)), cost)
            for user, cost in taken
        ])  # fmt: skip
        hit = FixedWindowRateLimiter(storage).hit

        def decide(asked: Sequence[Asked]) -> Result:
            prepared = [(it.user, it.cost) for it in asked]
            latencies, refused, clock = [], 0, time.perf_counter
            began = clock()
            for user, cost in prepared:
                before = clock()
                refused += not hit(item, user, cost=cost)
                latencies.append(clock() - before)
            return Result(clock() - began, refused, latencies)

        yield decide


ENTRY = Entry(
    "one at a time", "limits on Redis", contestant, place=2,
    note=f"limits {version('limits')}, redis-py {version('redis')}, fixed window a day; {SETTINGS}",
)  # fmt: skip
