"""Limits on requests, and datapaths with them, for tests."""

from __future__ import annotations

from random import Random
from typing import Any

from drld.model import Enforcement
from drld.requests.datapath import RequestDatapath
from drld.requests.model import Answer, Request
from drld.requests.spec import ITEM, RequestMatch
from drld.spec import LimitSpec

from ...fleets.requests import request_limit

FREE = Request("api", {"plan": "free"}, caller="alice")


def limited(
    *limits: tuple[LimitSpec, Enforcement], datapath: RequestDatapath | None = None
) -> RequestDatapath:
    datapath = datapath or RequestDatapath(Random(1), b"secret")
    datapath.attach(limits, 0)
    return datapath


def bucket(requests: float, rate: float = 0) -> Enforcement:
    return Enforcement(fill_rate=round(rate * ITEM), depth=round(requests * ITEM))


def limit(number: int = 1, **changes: Any) -> LimitSpec:
    return request_limit(id=number, name=f"limit-{number}", **changes)


def of_plan(number: int, **changes: Any) -> LimitSpec:
    return limit(number, match=RequestMatch("api", {"plan": "free"}), **changes)


def remaining(answer: Answer) -> list[float | None]:
    return [
        it.remaining if it.remaining is None else it.remaining / ITEM for it in answer.standings
    ]
