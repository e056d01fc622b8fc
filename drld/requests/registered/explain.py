"""How requests are explained: the limits that a request meets, and the decision of each now.

Nothing is charged or counted: each limit decides on a copy of its policer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import IO
from urllib.parse import urlencode

from drld.client.protocol.long_value import shortened
from drld.errors import InputError
from drld.model import NS_PER_S, Enforcement
from drld.planes.explanation import CapturedItem, Explanation, Words, row, tried
from drld.police.policer import Policer
from drld.requests import log
from drld.requests.cost import amount_under, oversized, too_large
from drld.requests.datapath import CALLER
from drld.requests.model import Request
from drld.requests.question import of_query
from drld.requests.spec import RequestMatch, match_of
from drld.spec import LimitSpec
from drld.units import human_duration

WORDS = Words("request", RequestMatch.flow, "admitted", "refused", "refuses")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, and the text that describes it."""

    text: str
    request: Request = field(compare=False)

    def __str__(self) -> str:
        return self.text


def is_meant(text: str) -> bool:
    """Whether a text is to be a request: NAME=VALUE pairs that are no message's."""
    first = text.partition(" ")[0]
    return "=" in first and ("namespace=" in text or not re.search(r"\b(broker|topic)=", text))


def read(text: str) -> Asked:
    """Return the request of words such as `namespace=api user=alice cost=3`, or of a query.

    Raises:
        InputError: the text is neither.
    """
    if "=" not in text:
        raise InputError("a request must be NAME=VALUE pairs, namespace= among them")
    return _asked(_request(text))


def _request(text: str) -> Request:
    words = text.split()
    query = words[0] if len(words) == 1 else urlencode(log.words_of(text))
    return of_query(query.encode(errors="replace"), "-")[0]


def _asked(request: Request) -> Asked:
    caller = {} if request.caller == "-" else {"caller": request.caller}
    size = {} if request.size is None else {"bytes": request.size}
    least = {} if request.at_least is None else {"at_least": request.at_least}
    charge = {"charge": "true"} if request.charge else {}
    cost = {} if request.cost == 1 else {"cost": request.cost}
    named = {**request.descriptor, **cost, **size, **least, **charge, **caller}
    pairs = {"namespace": request.namespace, **named}
    text = " ".join(f"{name}={value}" for name, value in pairs.items())
    with suppress(InputError):
        if _request(text) == request:
            return Asked(text, request)
    # What words cannot say, a query does.
    return Asked(urlencode(pairs), request)


def remarks(item: Asked) -> list[str]:
    """Return the remarks on a request."""
    found = []
    if item.request.caller == "-":
        found.append("The request names no caller: it is judged as one of a new caller.")
    if item.request.at_least is not None:
        found.append("It is tried at the least cost of use, at_least.")
    return found


def captured(stream: IO[bytes], words: str) -> Iterator[CapturedItem]:
    """Return the requests of a log (`drld.requests.log`).

    Raises:
        InputError: the file is no log; while it is read: a line is no request.
    """

    def item(time_ns: int, asked: Asked) -> CapturedItem:
        return CapturedItem(time_ns, asked, asked.text)

    return (item(time_ns, _asked(request)) for time_ns, request in log.requests(stream, words))


class Explainer:
    """A set of limits; those on requests explain their decisions."""

    def __init__(self, limits: Iterable[LimitSpec], *, misses: bool = True) -> None:
        """Prepare to explain requests.

        Args:
            limits: all limits in the order of the configuration; those of other planes are skipped.
            misses: whether limits that a request does not fall under are explained, too.
        """
        self._limits = [
            (limit, limit.match) for limit in limits if isinstance(limit.match, RequestMatch)
        ]
        self._misses = misses

    def explain(
        self,
        asked: Asked,
        policing: Callable[[LimitSpec, Request], tuple[Policer, Enforcement]],
        now_ns: int,
    ) -> Iterator[Explanation]:
        """What each limit does with a request, in the order in which they check it.

        Args:
            asked: the request.
            policing: a limit's present policer, to try the request on, and the record in force;
                raises KeyError if the limit is gone.
            now_ns: the time, ns.
        """
        request = asked.request
        if request.at_least is not None:
            request = request.part(request.at_least)
        missed = {limit.id: first_miss(match, request) for limit, match in self._limits}
        under = [_of_key(limit, request) for limit, _ in self._limits if missed[limit.id] is None]
        never = None if request.charge else oversized(under, request)
        refused = None if never is None else never.name
        own = {limit.id: limit for limit in under}
        for limit in (own.get(limit.id, limit) for limit, _ in self._limits):
            amount = amount_under(limit, request)
            if (misses := missed[limit.id]) is not None:
                if self._misses:
                    yield row(limit, misses=misses)
            elif limit is never:
                found = row(limit, reason=too_large(limit))
                found["verdict"] = "drop"
                yield found
            elif refused is not None:
                yield row(limit, reason=f"not checked: {refused} refuses the request")
            elif amount > limit.policy.burst and not request.charge:
                above = "not checked: its cost is above the burst, and nothing enforces it"
                yield row(limit, reason=above)
            else:
                try:
                    trial = policing(limit, request)
                except KeyError:
                    continue  # A reload has removed the limit.
                found = _tried(limit, trial, request, now_ns)
                if found["verdict"] == "drop":
                    refused = limit.name
                yield found


def _tried(
    limit: LimitSpec, trial: tuple[Policer, Enforcement], request: Request, now_ns: int
) -> Explanation:
    amount = amount_under(limit, request)
    if limit.policy.keyed is not None:
        # The engine has no record for each key.
        own = Enforcement(fill_rate=limit.policy.rate, depth=trial[0].bucket.depth)
        trial = trial[0], own
    wait_ns = trial[0].wait_ns(CALLER, amount, now_ns)
    found = tried(limit, trial, CALLER, amount, now_ns, words=WORDS)
    if request.charge:
        found["verdict"] = "forward"
        found["reason"] = "a charge is never refused; what the bucket lacks is debt"
    elif found["verdict"] == "drop" and wait_ns:
        found["reason"] += f"; it may pass in {human_duration(wait_ns / NS_PER_S)}"
    return found


def _of_key(limit: LimitSpec, request: Request) -> LimitSpec:
    """Return the limit with the rate and burst of the request's key, if it has keys."""
    policy = limit.policy
    if policy.keyed is None:
        return limit
    key = tuple(request.descriptor[name] for name in match_of(limit).per)
    for override in policy.keyed.overrides:
        if tuple(map(shortened, override.key)) == key:
            policy = replace(policy, rate=override.rate, burst=override.burst)
    return replace(limit, policy=policy)


def first_miss(match: RequestMatch, request: Request) -> str | None:
    """Return the first criterion of a limit that a request fails, and the reason; None: it fails
    none."""
    if match.namespace != request.namespace:
        return f"namespace: {request.namespace} is not {match.namespace}"
    for name in match.per:
        if name not in request.descriptor:
            return f"per: there is no {name}"
    for name, value in match.where.items():
        if (own := request.descriptor.get(name)) != value:
            found = f"there is no {name}, and it must be" if own is None else f"{own} is not"
            return f"where.{name}: {found} {value}"
    return None
