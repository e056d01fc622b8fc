"""What limits would have done with a log of requests, for `drlctl replay`. Pure.

The datapath of requests decides, at the times of the requests (`drld.requests.log`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from random import Random
from typing import IO

from drld.model import Enforcement, FlowId
from drld.planes.replay import Replayed
from drld.policy import Policy
from drld.requests import log
from drld.requests.datapath import RequestDatapath
from drld.requests.model import Answer, Request
from drld.requests.registered.explain import WORDS
from drld.requests.spec import RequestMatch
from drld.spec import LimitSpec

ALL = "all"
EVERYTHING = {"namespace": ALL}
"""The `match` of a limit that every request falls under."""
BESIDE = {"requests": {"listen": "127.0.0.1:1"}}
"""The tables that a configuration with such a limit needs."""


class Replay(Replayed[Request]):
    """A log, and the limits that decide about its requests."""

    items, words, unseen = "requests", WORDS, None

    def __init__(
        self,
        stream: IO[bytes],
        words: str,
        limits: Iterable[LimitSpec],
        allocator: str,
        rng: Random,
    ) -> None:
        """Read the first request.

        Args:
            stream: the log.
            words: the default pairs of all requests.
            limits: all limits, in the order of the configuration; one with `ALL` is alone.
            allocator: enforces the rates instead of the allocators of the limits.
            rng: decides random drops.

        Raises:
            InputError: the stream is no log, or `words` are no pairs.
        """
        own = [limit for limit in limits if isinstance(limit.match, RequestMatch)]
        super().__init__(log.requests(stream, words), own, allocator)
        self._all = [limit.match for limit in own] == [RequestMatch(ALL)]
        self._caller = ""
        self.policers = self._datapath = RequestDatapath(rng, b"replay", self.watch)

    def start(self, limits: list[tuple[LimitSpec, Enforcement]], now_ns: int) -> None:
        """See `Replayed.start`."""
        self._datapath.attach(limits, now_ns)

    def judge(self, it: Request, now_ns: int) -> Answer:
        """Return the decision on a request."""
        self._caller = it.caller
        request = it._replace(namespace=ALL) if self._all else it
        return self._datapath.decide(request, now_ns)

    def flow_of(self, policy: Policy, flow: FlowId) -> Hashable:  # noqa: ARG002 -- it is a hash
        """See `Replayed.flow_of`."""
        return self._caller

    def flow_name(self, policy: Policy, flow: Hashable) -> str:  # noqa: ARG002 -- it is the caller
        """See `Replayed.flow_name`."""
        return str(flow)
