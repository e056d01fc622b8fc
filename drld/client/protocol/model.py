"""The nouns of a client: what it asks, and what it is answered."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

NO_PAIRS: Mapping[str, str] = MappingProxyType({})


class Question(NamedTuple):
    """Whether a request may pass (docs/requests.md)."""

    namespace: str
    descriptor: Mapping[str, str] = NO_PAIRS
    cost: int = 1
    """Requests that it counts for; 0 asks, and takes nothing."""
    caller: str = ""
    """Who calls; empty: the client's address or user, as the limiter sees it."""
    size: int | None = None
    """Bytes, for limits that count bytes; None: 1,500 for each request."""
    at_least: int | None = None
    """Least cost that is of use: as much from here to `cost` is admitted as the limits allow;
    None: all or nothing."""
    charge: bool = False
    """Whether the request has been carried out already: its cost is charged whatever is left."""


class Answer(NamedTuple):
    """The decision on a request."""

    admitted: bool
    granted: int
    """The part of the cost that is admitted."""
    limit: str | None = None
    """The limit that refuses, or that has the smallest part of its burst left; None: there is
    none, or no limiter has answered."""
    remaining: float | None = None
    """What that limit has left at this limiter, requests or bytes; None: it is paused."""
    reset_s: float | None = None
    """Time until that is the whole burst, if nothing else comes."""
    retry_after_s: float | None = None
    """Time after which it would be admitted, if nothing else came; None: it is, or never will
    be."""
    error: str | None = None
    """What is wrong with the question. It is then not admitted, and nothing is charged."""
    degraded: bool = False
    """Whether no limiter has answered, so that `on_failure` decided."""
