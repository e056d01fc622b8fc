"""The nouns of a client: its question, and the answer."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

NO_PAIRS: Mapping[str, str] = MappingProxyType({})


class Question(NamedTuple):
    """A question whether a request may pass (docs/requests.md)."""

    namespace: str
    descriptor: Mapping[str, str] = NO_PAIRS
    cost: int = 1
    """The number of requests that it counts for; 0 asks, and takes nothing."""
    caller: str = ""
    """The caller; empty: the client's address or user, as the limiter sees it."""
    size: int | None = None
    """The bytes, for limits that count bytes; None: 1,500 for each request."""
    at_least: int | None = None
    """The least cost of use: the limits admit as much of `cost` as they can, from this on; None:
    all or nothing."""
    charge: bool = False
    """Whether the request has been carried out already: its cost is charged in any case."""


class Answer(NamedTuple):
    """The decision on a request."""

    admitted: bool
    granted: int
    """The admitted part of the cost."""
    limit: str | None = None
    """The limit that refuses, or that has the smallest part of its burst left; None: there is none,
    or no limiter has answered."""
    remaining: float | None = None
    """What that limit has left at this limiter, requests or bytes; None: it is paused, or the cost
    is above its burst, or no limiter has answered."""
    reset_s: float | None = None
    """The time until that is the whole burst, if no other request comes, s."""
    retry_after_s: float | None = None
    """The time after which the request would be admitted if no other came, s; None: it is admitted
    now, or never will be."""
    error: str | None = None
    """The mistake in the question. The request is then not admitted, and nothing is charged."""
    degraded: bool = False
    """Whether `on_failure` decided, because no limiter has answered."""
