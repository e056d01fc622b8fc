"""A decorator for functions whose calls are limited.

    @limited("emails", "100/minute", client=client, key=lambda user: {"user": user})
    def send_email(user): ...

The namespace and the key choose the limits of the fleet that decide, at the fleet's rates. This
process itself enforces the decorator's rate for each key if the fleet has no such limit, if no
limiter has ever answered, or without a client. So a call is never unlimited. If the decorator's
rate differs from the fleet's, the log says so once. A call above a limit raises `RateLimitedError`.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from time import monotonic_ns
from typing import Any, TypeVar, cast

from drld.client.base import AsyncClient
from drld.client.on_threads import Client
from drld.client.protocol.fallback import Fallback
from drld.client.protocol.limit_table import LimitInfo, LimitTable
from drld.client.protocol.model import NO_PAIRS, Answer, Question
from drld.client.protocol.rate import parse_rate

log = logging.getLogger("drld.client")

F = TypeVar("F", bound=Callable[..., Any])


class RateLimitedError(Exception):
    """A call is above a limit."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.error or f"above the limit {answer.limit or ''}".rstrip())
        self.answer = answer

    @property
    def retry_after_s(self) -> float | None:
        """The time after which the call may pass, s; None: it never will under the present
        limits."""
        return self.answer.retry_after_s


def limited(
    namespace: str,
    rate: str,
    *,
    client: Client | AsyncClient | None = None,
    key: Callable[..., Mapping[str, str]] = lambda *_, **__: NO_PAIRS,
    cost: int = 1,
) -> Callable[[F], F]:
    """Limit the calls of a function, or of a coroutine function.

    Args:
        namespace: the namespace of the limits.
        rate: a rate such as `100/minute`; its number is also the burst in this process.
        client: asks the limiter: a client for threads for a function, one of the event loop for a
            coroutine function; None: this process alone limits.
        key: returns the descriptor of a call from its arguments.
        cost: the cost of a call.

    Raises:
        ValueError: `rate` is no rate.
        TypeError: the client is for another kind of function.
    """
    own = _OwnLimit(namespace, rate)

    def decorate(function: F) -> F:
        waits = inspect.iscoroutinefunction(function)
        if client is not None and isinstance(client, AsyncClient) != waits:
            kind = "a coroutine function" if waits else "a function that is no coroutine function"
            raise TypeError(f"client: must be one for {kind} (got {type(client)!r})")

        def known() -> LimitTable | None:
            return None if client is None else client.limits

        def asked(*args: Any, **kwargs: Any) -> Question:
            return Question(namespace, key(*args, **kwargs), cost)

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            question = asked(*args, **kwargs)
            answers = client.ask([question]) if isinstance(client, Client) else None
            own.check(question, answers[0] if answers else None, known())
            return function(*args, **kwargs)

        @wraps(function)
        async def wait(*args: Any, **kwargs: Any) -> Any:
            question = asked(*args, **kwargs)
            answers = await client.ask([question]) if isinstance(client, AsyncClient) else None
            own.check(question, answers[0] if answers else None, known())
            return await cast(Awaitable[Any], function(*args, **kwargs))

        return cast(F, wait if waits else call)

    return decorate


class _OwnLimit:
    """The rate that a decorator names, kept by this process."""

    def __init__(self, namespace: str, rate: str) -> None:
        self._namespace = namespace
        self._rate = rate
        self._quota, self._window_s = quota, window_s = parse_rate(rate)
        self._buckets = Fallback("open")
        # A request costs as many tokens as the window has seconds: so the rate is exact.
        limit = LimitInfo(
            rate, namespace, {}, "share", True, "requests", window_s, quota, window_s, quota, quota,
            quota * window_s, ("key",),
        )  # fmt: skip
        self._buckets.learn(LimitTable((limit,), 1))
        self._compared: LimitTable | None = None
        self._said: set[str] = set()
        """The rates of the fleet that the log has named; the client reads them every 30 s."""

    def check(self, question: Question, answer: Answer | None, table: LimitTable | None) -> None:
        """Return if a call may pass.

        Raises:
            RateLimitedError: the call may not pass.
        """
        if answer is None or (answer.error is None and not self._of_fleet(question, answer, table)):
            # Two descriptors never have one text, whatever letters their values have.
            local = question._replace(descriptor={"key": repr(sorted(question.descriptor.items()))})
            answer = self._buckets.decide(local, monotonic_ns())
        if not answer.admitted:
            raise RateLimitedError(answer)

    def _of_fleet(self, question: Question, answer: Answer, table: LimitTable | None) -> bool:
        """Return whether the fleet has a limit for this call.

        A limiter's answer names it. The table may be older than the limit.
        """
        limits = table.limits if table else ()
        under = [it for it in limits if it.covers(question.namespace, question.descriptor)]
        if under and table is not self._compared:
            self._compared = table
            if not any(it.quota * self._window_s == self._quota * it.window_s for it in under):
                rates = ", ".join(f"{it.name}: {it.quota} in {it.window_s} s" for it in under)
                if rates not in self._said:
                    self._said.add(rates)
                    log.warning(
                        "namespace %s: a decorator says %s, and the fleet has other rates: %s",
                        *(self._namespace, self._rate, rates),
                    )
        return bool(under) if answer.degraded else answer.limit is not None
