"""The decision on a request that falls under a list of limits.

All limits are checked, then all are charged, or none. The verdicts are those on packets
(drld.police.policer).

- A request that costs more than a limit's burst could never pass one bucket. It is refused for this
  reason alone, and is no demand. Otherwise one request could claim the share of a million.
- A request with `at_least`, the least cost of use to it, gets the most, up to its cost, that no
  limit refuses. It counts as two requests. The part that it gets is admitted. The limit that is
  short refuses the rest, as far as the bursts allow it at all.
- A charge is for a request that has been carried out already, because its cost is known only at the
  end. It always passes. The bucket's shortfall is debt, which only time pays; until then, requests
  are refused. The debt is bounded (`drld.requests.cost.most_debt`), so no single charge blocks a
  limit for years.

It is pure: the time and the source of random drops are given.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from random import Random
from typing import TypeAlias

from drld.model import FlowId
from drld.police.policer import Policer
from drld.policy import Mode
from drld.requests.cost import above, amount_under, most_debt, oversized, too_large
from drld.requests.key_policer import KeyPolicer
from drld.requests.model import Answer, Request, Standing
from drld.spec import LimitSpec

Held: TypeAlias = tuple[LimitSpec, Policer | KeyPolicer]
"""A limit that a request falls under, and its policer."""
Under: TypeAlias = tuple[LimitSpec, int, Policer | KeyPolicer]
"""A limit, the cost of a request under it in tokens, and its policer."""


COUNTERS = ("requests_unmatched", "requests_oversized", "requests_overridden")
"""Requests under no limit, requests above a burst, and limits in requests, which are ignored."""


class Decider:
    """Decides requests, and counts those that are special (`COUNTERS`)."""

    def __init__(self, rng: Random) -> None:
        """`rng` decides random drops."""
        self._rng = rng
        self.counts = dict.fromkeys(COUNTERS, 0)

    def decide(self, limits: Sequence[Held], request: Request, flow: FlowId, now_ns: int) -> Answer:
        """Decide about a request, and charge it to all its limits if it is admitted.

        Args:
            limits: the limits that the request falls under.
            request: its namespace, descriptor and caller do not matter here.
            flow: the flow of its caller.
            now_ns: the time, ns.
        """
        if request.charge and limits:
            return self._charge(limits, request, flow, now_ns)
        short, rest = None, request
        if request.at_least is not None:
            request, short, rest = self._largest(limits, request, flow, now_ns)
        under = [(it, amount_under(it, request), policer) for it, policer in limits]
        answer = self.settle(under, request.cost, flow, now_ns)
        if short is not None and answer.admitted:
            self._fall_short(limits, rest, flow, short)
        return answer

    def settle(self, under: Sequence[Under], cost: int, flow: FlowId, now_ns: int) -> Answer:
        """Check all limits of a request, and charge all or none; cost 0 charges nothing."""
        if not under:
            self.counts["requests_unmatched"] += 1
            return Answer(True, (), None, None, cost)
        for it in under:
            limit, amount, _ = it
            if amount > limit.policy.burst:
                if limit.policy.mode is Mode.ENFORCE:
                    self.counts["requests_oversized"] += 1
                    return _never(limit, amount)
                under = [other for other in under if other is not it]
        refused_by = self._police(under, flow, now_ns) if cost else self._try(under, flow, now_ns)
        standings = []
        if refused_by is None:
            for limit, amount, policer in under:
                standings.append(_standing(limit, amount, policer, now_ns, 0))
            return Answer(True, standings, None, None, cost)
        standings = [_standing(*it, now_ns, _wait_ns(it, flow, now_ns)) for it in under]
        refused = next(it for it in standings if it.limit is refused_by)
        return Answer(False, standings, refused, above(refused_by))

    def decide_all(
        self, held: Sequence[Sequence[Held]], requests: Sequence[Request], flow: FlowId, now_ns: int
    ) -> list[Answer]:
        """Decide about requests of one caller that pass together, or not at all.

        A bucket that several requests fall under decides about the sum of their costs, as about one
        request. The answer is no to the requests from which on a limit is short, and then no bucket
        is charged. Either all requests are charges, or none is; none has `at_least`.

        Args:
            held: the limits of each request.
            requests: two requests at least.
            flow: the flow of their caller.
            now_ns: the time, ns.
        """
        all_under: list[list[Under]] = []
        charged: dict[tuple[int, int | None], Under] = {}
        policers: dict[tuple[int, int | None], Policer | KeyPolicer] = {}
        peeked: list[Under] = []
        for request, limits in zip(requests, held, strict=True):
            under = []
            for limit, policer in limits:
                bucket = limit.id, policer.key if isinstance(policer, KeyPolicer) else None
                # A charge by one policer of a key would leave the row of another out of date.
                own = policers.setdefault(bucket, policer)
                before = charged[bucket][1] if bucket in charged else 0
                it = limit, before + amount_under(limit, request), own
                if it[1] > limit.policy.burst and limit.policy.mode is not Mode.ENFORCE:
                    continue
                under.append(it)
                if request.cost:
                    charged[bucket] = it
                else:
                    peeked.append(it)
            all_under.append(under)
        self.counts["requests_unmatched"] += sum(not under for under in all_under)
        if any(amount > limit.policy.burst for under in all_under for limit, amount, _ in under):
            self.counts["requests_oversized"] += 1
            return [_alone(under, None, flow, now_ns) for under in all_under]
        refused_by = self._try(peeked, flow, now_ns) or self._police(charged.values(), flow, now_ns)
        if refused_by is None:
            standings = [[_standing(*it, now_ns, 0) for it in under] for under in all_under]
            return [
                Answer(True, its, None, None, request.cost)
                for request, its in zip(requests, standings, strict=True)
            ]
        answers = [_alone(under, None, flow, now_ns) for under in all_under]
        if all(answer.admitted for answer in answers):  # Dropped at random.
            answers = [_alone(under, refused_by, flow, now_ns) for under in all_under]
        return answers

    def _largest(
        self, limits: Sequence[Held], request: Request, flow: FlowId, now_ns: int
    ) -> tuple[Request, LimitSpec | None, Request]:
        """Find the largest part of a request, from `at_least` on, that no limit would refuse.

        Returns:
            The part; the limit that is short of a larger one, if the bursts allow one; the rest.
        """
        least = request.at_least or request.cost

        def largest(most: int, refuser: Callable[[Request], LimitSpec | None]) -> int:
            low = least
            while low < most:
                middle = (low + most + 1) // 2
                if refuser(request.part(middle)) is None:
                    low = middle
                else:
                    most = middle - 1
            return low

        def refuser(part: Request) -> LimitSpec | None:
            under = [(it, amount_under(it, part), policer) for it, policer in limits]
            return self._try([it for it in under if it[1] <= it[0].policy.burst], flow, now_ns)

        most = largest(request.cost, partial(oversized, [it for it, _ in limits]))
        cost = largest(most, refuser)
        short = refuser(request.part(cost + 1)) if cost < most else None
        part, whole = request.part(cost), request.part(most)
        size = None if whole.size is None or part.size is None else whole.size - part.size
        return part, short, whole._replace(cost=most - cost, size=size)

    @staticmethod
    def _fall_short(limits: Iterable[Held], rest: Request, flow: FlowId, short: LimitSpec) -> None:
        """Count the rest of a partly admitted request as a request that `short` refuses."""
        for limit, policer in limits:
            amount = amount_under(limit, rest)
            if limit is short:
                policer.fall_short(flow, amount)
            else:
                policer.arrive(flow, amount)

    @staticmethod
    def _charge(limits: Iterable[Held], request: Request, flow: FlowId, now_ns: int) -> Answer:
        """Charge a request that has been carried out to all its limits."""
        standings = []
        for limit, policer in limits:
            left = max(policer.tokens(now_ns) + most_debt(limit.policy), 0)
            if amount := min(amount_under(limit, request), left):
                policer.charge(flow, amount, now_ns)
            standings.append(_standing(limit, amount, policer, now_ns, 0))
        return Answer(True, standings, None, None, request.cost)

    def _police(self, under: Collection[Under], flow: FlowId, now_ns: int) -> LimitSpec | None:
        """Do as `drld.police.policer.police`, with an amount for each limit; return the limit that
        refuses."""
        if len(under) == 1:
            # Most requests have one limit, and need no list of those that let them pass.
            ((limit, amount, policer),) = under
            policer.arrive(flow, amount)
            if isinstance(policer, KeyPolicer):
                refused = policer.police(amount, now_ns, self._rng)
            elif not (refused := policer.refuses(amount, now_ns, self._rng)):
                policer.forward(amount)
            return limit if refused and not policer.shadow else None
        for _, amount, policer in under:
            policer.arrive(flow, amount)
        passing = []
        for limit, amount, policer in under:
            if not policer.refuses(amount, now_ns, self._rng):
                passing.append((policer, amount))
            elif not policer.shadow:
                return limit
        for policer, amount in passing:
            policer.forward(amount)
        return None

    @staticmethod
    def _try(under: Iterable[Under], flow: FlowId, now_ns: int) -> LimitSpec | None:
        """Return the limit that would refuse; nothing is counted or charged."""
        for limit, amount, policer in under:
            if not policer.shadow and policer.wait_ns(flow, amount, now_ns) != 0:
                return limit
        return None


def _never(limit: LimitSpec, amount: int) -> Answer:
    """The answer to a request whose cost is above the burst of this limit."""
    return Answer(False, (), Standing(limit, amount, None, None, None), too_large(limit))


def _alone(
    under: Sequence[Under], refused_by: LimitSpec | None, flow: FlowId, now_ns: int
) -> Answer:
    """One of the answers to requests that are not admitted together.

    It is no only if a limit is short for this request, or if `refused_by` dropped it.
    """
    for limit, amount, _ in under:
        if amount > limit.policy.burst:
            return _never(limit, amount)
    standings = [_standing(*it, now_ns, _wait_ns(it, flow, now_ns)) for it in under]
    for it in standings:
        if it.wait_ns != 0 or it.limit is refused_by:
            return Answer(False, standings, it, above(it.limit))
    return Answer(True, standings, None, None, 0)


def _wait_ns(under: Under, flow: FlowId, now_ns: int) -> int | None:
    """The time until a limit would admit a request that another limit may have refused, ns."""
    _, amount, policer = under
    return 0 if policer.shadow else policer.wait_ns(flow, amount, now_ns)


def _standing(
    limit: LimitSpec, amount: int, policer: Policer | KeyPolicer, now_ns: int, wait_ns: int | None
) -> Standing:
    fill = policer.fill(now_ns)
    if fill is None:
        return Standing(limit, amount, None, None, wait_ns)
    tokens, full_ns = fill
    return Standing(limit, amount, tokens if tokens > 0 else 0, full_ns, wait_ns)
