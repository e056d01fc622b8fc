"""The part that all clients share: their settings, and their knowledge of the limiter."""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from random import Random, SystemRandom
from time import monotonic_ns
from typing import TYPE_CHECKING, Protocol
from weakref import WeakValueDictionary

from drld.client.protocol.address import read_address
from drld.client.protocol.availability import Availability
from drld.client.protocol.exchange import chunks
from drld.client.protocol.lease import Lease
from drld.client.protocol.limit_table import LimitTable
from drld.client.protocol.model import NO_PAIRS, Answer, Question

if TYPE_CHECKING:
    # Only those who use TLS import it.
    from ssl import SSLContext

log = logging.getLogger("drld.client")

TIMEOUT_S = 0.25
"""The longest wait for an answer, s: some ticks of a busy limiter. A limiter that is not busy
answers in less than a millisecond."""


class HeldLease(Protocol):
    """Decisions on one hot key, as an application holds them."""

    def lapse(self) -> None:
        """Count the tokens that were not used in time."""


class BaseClient:
    """A client of one limiter."""

    def __init__(
        self,
        address: str,
        *,
        timeout_s: float = TIMEOUT_S,
        on_failure: str = "open",
        tls: SSLContext | None = None,
    ) -> None:
        """Ask the limiter at this address; nothing is connected before the first question.

        Args:
            address: one of `requests.listen`: `/run/drld/requests.sock`, `127.0.0.1:8099`.
            timeout_s: the most time for the answers to `CHUNK` questions, and for a new
                connection, s.
            on_failure: `open` or `closed`: decides while the limiter has never answered. Later,
                each limit's `on_failure` decides.
            tls: the context for a limiter with `requests.certificate`. It has a certificate of its
                own if the limiter has `requests.client_ca`. None: plain.

        Raises:
            ValueError: an argument has a mistake, which the message names.
        """
        self._address = read_address(address)
        if tls is not None and isinstance(self._address, str):
            raise ValueError("tls: must be None with a unix socket, which is plain")
        self._tls = tls
        self._timeout_s = timeout_s
        self._availability = Availability(Random(SystemRandom().getrandbits(64)), on_failure)
        self._owner = os.getpid()
        """The process that opened the connections."""
        self._process = SystemRandom().getrandbits(64)
        """The number of this process, by which the limiter counts the processes that ask it."""
        self._leases: WeakValueDictionary[int, HeldLease] = WeakValueDictionary()
        """By their `id`."""
        self._prepare()

    def _prepare(self) -> None:
        """Make what the connections of this kind of client need."""

    @property
    def limits(self) -> LimitTable | None:
        """The limits that the limiter has sent last; None: it has sent none."""
        return self._availability.table

    @property
    def counts(self) -> Counter[str]:
        """Counters since the client was made.

        Questions that the limiter `answered`, and `degraded` ones, decided without it; `failures`
        to reach it; requests `leased`, and those of them that were `lost`, because they were not
        used in time.
        """
        # Another thread may make a lease now; a loop over the dictionary itself would fail then.
        for reference in self._leases.valuerefs():
            if (lease := reference()) is not None:
                lease.lapse()
        return self._availability.counts

    def new_lease(self) -> Lease:
        """Return tokens of this process, which count with those of the client."""
        return Lease(self._availability.counts)

    def hold(self, lease: HeldLease) -> None:
        """Count the tokens of this lease, which is complete, when `counts` is read."""
        self._leases[id(lease)] = lease

    def requests_left(self, answer: Answer) -> float | None:
        """Return the remainder of an answer's limit, in requests; None: it is not known."""
        table = self._availability.table
        return table.requests_left(answer.limit, answer.remaining) if table else answer.remaining

    def _patience_s(self, questions: Sequence[Question]) -> float:
        """Return the longest wait for the answers to these questions, s.

        A limiter that decides about 100,000 questions is not silent.
        """
        return self._timeout_s * max(len(chunks(questions)), 1)

    def _forked(self) -> bool:
        """Return whether a fork has made this process since the last call.

        The connections are then those of the parent, and this process has a number of its own.
        """
        if self._owner == os.getpid():
            return False
        self._owner, self._process = os.getpid(), SystemRandom().getrandbits(64)
        return True

    def _without(self, questions: Sequence[Question], reason: object) -> list[Answer]:
        """Decide without the limiter, which has just failed for this reason."""
        now_ns = monotonic_ns()
        if line := self._availability.failed(str(reason) or "no answer in time", now_ns):
            log.warning("%s", line)
        return self._availability.without(questions, now_ns)

    def _answered(self, number: int) -> None:
        """Note that the limiter has answered this many questions."""
        if line := self._availability.answered(number):
            log.info("%s", line)


class AsyncClient(BaseClient, ABC):
    """A client for the tasks of an event loop."""

    @abstractmethod
    async def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """Ask several questions at once; return the answers in the same order."""

    async def check(
        self,
        namespace: str,
        descriptor: Mapping[str, str] = NO_PAIRS,
        *,
        cost: int = 1,
        caller: str = "",
        size: int | None = None,
    ) -> Answer:
        """Ask whether a request may pass (`Question`); an admitted request is charged."""
        return (await self.ask([Question(namespace, descriptor, cost, caller, size)]))[0]

    def lease(
        self, namespace: str, descriptor: Mapping[str, str] = NO_PAIRS, *, caller: str = ""
    ) -> AsyncLease:
        """Return decisions in this process on one hot key (`drld.client.protocol.lease`)."""
        return AsyncLease(self, Question(namespace, descriptor, caller=caller), self._lock())

    @abstractmethod
    def _lock(self) -> AbstractAsyncContextManager[object]:
        """Return a lock of the event loop."""


class AsyncLease:
    """Decisions on one hot key."""

    def __init__(
        self,
        client: AsyncClient,
        question: Question,
        asking: AbstractAsyncContextManager[object],
    ) -> None:
        self._client = client
        self._question = question
        self._lease = client.new_lease()
        self._asking = asking
        client.hold(self)

    @property
    def lost(self) -> int:
        """The requests that were charged and not used in time."""
        self.lapse()
        return self._lease.lost

    def lapse(self) -> None:
        """See `HeldLease.lapse`."""
        self._lease.lapse(monotonic_ns())

    async def take(self, cost: int = 1) -> bool:
        """Decide about a request; ask the limiter if that is needed."""
        decided = self._lease.take(cost, monotonic_ns())
        if decided is not None:
            return decided
        async with self._asking:
            # Another task may have asked meanwhile.
            now_ns = monotonic_ns()
            decided = self._lease.take(cost, now_ns)
            if decided is not None:
                return decided
            wanted = self._lease.wanted(cost, now_ns)
            question = self._question._replace(cost=wanted, at_least=cost)
            (answer,) = await self._client.ask([question])
            left = self._client.requests_left(answer)
            return self._lease.receive(answer, cost, now_ns, monotonic_ns(), left=left)
