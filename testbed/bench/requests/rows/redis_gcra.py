"""Redis with a Lua script that is GCRA, as many services have it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from testbed.bench.requests.contest import Entry, Result, Scene, Slice
from testbed.bench.requests.exchange import exchange
from testbed.bench.requests.load import DEBT, EMPTIED, POLICY, Asked
from testbed.bench.requests.redis_server import SETTINGS, command, pipeline, redis

TOKEN_S = POLICY.per_ns / POLICY.rate / 1e9
SCRIPT = f"""
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local tat = tonumber(redis.call('GET', KEYS[1]) or now)
if tat < now then tat = now end
tat = tat + ARGV[1] * {TOKEN_S!r}
if tat - now > {POLICY.capacity * TOKEN_S!r} then return 0 end
redis.call('SET', KEYS[1], string.format('%.6f', tat), 'EX', math.ceil(tat - now))
return 1
"""


@contextmanager
def contestant(scene: Scene) -> Iterator[Slice]:
    """A server with the script."""
    name = hashlib.sha1(SCRIPT.encode()).hexdigest()

    def ask(it: Asked) -> bytes:
        return command("EVALSHA", name, 1, it.user, it.cost)

    with redis(scene) as (sock, _):
        sock.sendall(command("SCRIPT", "LOAD", SCRIPT))
        assert name.encode() in sock.recv(4096)
        debt_s = time.time() + DEBT * TOKEN_S
        emptied = [command("SET", Asked(key, 1).user, f"{debt_s:.6f}") for key in range(EMPTIED)]
        full = (Asked(key, 1) for key in range(EMPTIED, scene.keys))
        pipeline(sock, [*emptied, *map(ask, full)])

        def decide(asked: Sequence[Asked]) -> Result:
            return exchange(
                sock, [ask(it) for it in asked],
                lambda answer: answer.endswith(b"\r\n"), lambda answer: answer == b":0\r\n",
            )  # fmt: skip

        yield decide


ENTRY = Entry("one at a time", "Redis, Lua GCRA", contestant, place=0, note=SETTINGS)
