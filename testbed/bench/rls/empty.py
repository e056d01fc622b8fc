"""A server of grpcio's without work: `python -m testbed.bench.rls.empty aio|threads PORT`."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from drld.requests.grpc.schema import RATE_LIMIT_RESPONSE

THREADS = 2
_OPTIONS = [("grpc.http2.ping_timeout_ms", 3_600_000)]
"""The client reads no ping while others are measured. On a busy host that may last for longer than
the minute after which a server hangs up by default."""
_NAME = "envoy.service.ratelimit.v3.RateLimitService"
_YES = RATE_LIMIT_RESPONSE.encode(
    {
        "overall_code": 1,
        "statuses": [
            {
                "code": 1,
                "current_limit": {"requests_per_unit": 100, "unit": 1, "name": "free"},
                "limit_remaining": 99,
                "duration_until_reset": {"seconds": 1},
            }
        ],
    }
)


def _handlers(answer: Any) -> Any:
    # Bytes are passed on as they are: nothing is decoded or encoded.
    method = grpc.unary_unary_rpc_method_handler(answer)
    return grpc.method_handlers_generic_handler(_NAME, {"ShouldRateLimit": method})


async def _aio(port: int) -> None:
    async def answer(_: bytes, __: Any) -> bytes:
        return _YES

    server = grpc.aio.server(options=_OPTIONS)
    server.add_generic_rpc_handlers((_handlers(answer),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


def _threads(port: int) -> None:
    server = grpc.server(ThreadPoolExecutor(THREADS), options=_OPTIONS)
    server.add_generic_rpc_handlers((_handlers(lambda _, __: _YES),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    if sys.argv[1] == "aio":
        asyncio.run(_aio(int(sys.argv[2])))
    else:
        _threads(int(sys.argv[2]))
