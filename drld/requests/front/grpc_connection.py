"""One connection of a gRPC client: moves its bytes, and has its calls answered in turns.

What is spoken, and its bounds: drld.requests.grpc.exchange. The stream may be any of trio's.
"""

from __future__ import annotations

import logging
from contextlib import suppress

import trio

from drld.control.connection import WRITE_S
from drld.control.turns import Turns
from drld.errors import InputError
from drld.log_event import event
from drld.requests.caller import Client
from drld.requests.datapath import RequestDatapath
from drld.requests.front.app import Clock, Trusted
from drld.requests.grpc import health, reflection
from drld.requests.grpc.call import CallError, Handler, Handlers, Status
from drld.requests.grpc.exchange import Asked, Exchange
from drld.requests.grpc.ratelimit import TOO_LARGE, RateLimitService
from drld.requests.grpc.schema import HEALTH, REFLECTION, RLS, File

log = logging.getLogger("drld.requests")

_READ_BYTES = 4096
"""The bytes of one read: a hundred frames of floods, or twenty calls."""
_TURN_S = 0.002
"""The time for calls before other tasks run."""
_HOLD_S = 0.01
"""The longest time for which answers wait for other answers, since one system call for many costs
less: half of Envoy's default timeout."""


def grpc_handlers(datapath: RequestDatapath, clock: Clock, trusted: Trusted) -> Handlers:
    """Return the handlers of all services; the arguments are those of `make_app`."""
    rls = RateLimitService(datapath, clock, trusted)
    return {
        _path(RLS): Handler(rls.should_rate_limit, too_large=TOO_LARGE),
        _path(HEALTH): Handler(health.check),
        _path(HEALTH, 1): Handler(health.watch, farewell=health.NOT_SERVING),
        **{_path(it): Handler(reflection.reflect, streams=True) for it in REFLECTION},
    }


def _path(file: File, method: int = 0) -> bytes:
    """Return the path of a method, by its place in the file."""
    (service,) = file.services
    return f"/{file.package}.{service.name}/{service.methods[method].name}".encode()


class GrpcConnection:
    """One client; `serve` ends with it."""

    def __init__(
        self, handlers: Handlers, turns: Turns, stream: trio.abc.Stream, peer: object
    ) -> None:
        """`peer` is the client of the connection."""
        assert isinstance(peer, Client)
        self._turns = turns
        self._stream = stream
        self._peer = peer
        self._exchange = Exchange(handlers, peer, trio.current_time())
        self._waiting = trio.CancelScope()

    async def serve(self) -> None:
        """Answer until the client closes the connection or is too slow."""
        async with self._stream:
            with suppress(trio.BrokenResourceError):
                while await self._send() and await self._receive():
                    await self._answer()

    def drain(self) -> None:
        """End the connection after the calls that have begun."""
        self._exchange.drain(trio.current_time())
        self._waiting.cancel()

    async def _receive(self) -> bool:
        """Take the next bytes of the client; return False if none come in time."""
        exchange = self._exchange
        self._waiting = trio.CancelScope(deadline=exchange.deadline)
        data = None
        with self._waiting:
            data = bytes(await self._stream.receive_some(_READ_BYTES))
        if data is None:
            exchange.expire(trio.current_time())
            return True
        # The daemon may be late, not the client: bytes that have come are read.
        await self._turns.wait()
        exchange.receive(data, trio.current_time())
        return bool(data)

    async def _answer(self) -> None:
        """Answer the complete calls, and send the answers that have waited."""
        exchange = self._exchange
        now = trio.current_time()
        until, send_at = now + _TURN_S, now + _HOLD_S
        while (asked := exchange.next(now)) is not None:
            self._one(asked, now)
            if (now := trio.current_time()) >= until:
                if now >= send_at:
                    if not await self._send():
                        return
                    send_at = now + _HOLD_S
                await self._turns.wait()
                # A client may have stopped waiting meanwhile.
                now = trio.current_time()
                until = now + _TURN_S

    def _one(self, asked: Asked, now: float) -> None:
        exchange = self._exchange
        try:
            answer = asked.handler.answer(asked.message, asked.origin)
        except CallError as error:
            exchange.fail(asked.stream, error.status, str(error))
        except InputError as error:
            exchange.fail(asked.stream, Status.INVALID_ARGUMENT, str(error))
        except Exception:
            log.exception(
                "a gRPC call ended with an error",
                extra=event("requests.call-failed", client=str(self._peer)),
            )
            exchange.fail(asked.stream, Status.INTERNAL, "internal error")
        else:
            exchange.reply(asked, answer, now)

    async def _send(self) -> bool:
        """Send the pending bytes; return whether the connection goes on."""
        if data := self._exchange.output():
            with trio.move_on_after(WRITE_S) as writing:
                await self._stream.send_all(data)
            if writing.cancelled_caught:
                return False
        return not self._exchange.over
