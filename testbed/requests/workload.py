"""The thesis' data sets A to D, rebuilt from its text, and others of our own. Pure; seeded.

The thesis does not publish its traffic, but all of it is in capacities c. One user of B is ON for
`duty` of each 10 s and sends uniformly in between. `duty` 0.4 is calibrated on the counter's three
published precisions and then frozen; the queue's are predictions. Times are whole ms; the limiter
of a request is uniform, by a hash of time and user in the thesis. C has as many users as its case.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import NamedTuple

from testbed.requests.case import Case

_PERIOD_MS = 10_000
A_TOTAL = 68.3
"""Requests of data set A, in capacities."""
B_VOLUMES: Mapping[str, float] = {"extreme": 21.5, "substantial": 3.2, "barely": 1.1}
"""Requests of a user of data set B, in capacities."""


class Request(NamedTuple):
    """A request of one token."""

    at_ms: int
    user: int
    node: int


def requests(case: Case, seed: int) -> list[Request]:
    """The requests of a case's data set, by time.

    Raises:
        KeyError: there is no such data set.
    """
    times = sorted(_DATA[case.data](Random(f"{case.data} {seed}"), case))
    # All requests of a user in the same millisecond have the same limiter (4.3.1), but where those
    # of several limiters are what is studied.
    apart = case.data == ONE_MILLISECOND
    return [
        Request(at_ms, user, Random(f"{seed} {number if apart else at_ms} {user}")
                .randrange(case.nodes))
        for number, (at_ms, user) in enumerate(times)
    ]  # fmt: skip


def recorded(file: Path, seed: int, nodes: int) -> list[Request]:
    """Requests recorded in the thesis' format: [{"user_id": "...", "time": ms}, ...]."""
    rows = json.loads(file.read_text(encoding="utf-8"))
    begin = min(row["time"] for row in rows)
    users = {name: number for number, name in enumerate(sorted({row["user_id"] for row in rows}))}
    return [
        Request(at_ms, user, Random(f"{seed} {at_ms} {user}").randrange(nodes))
        for at_ms, user in sorted((row["time"] - begin, users[row["user_id"]]) for row in rows)
    ]


_Times = list[tuple[int, int]]


def _onoff(rng: Random, count: int, length_ms: int, duty: float, user: int = 0) -> _Times:
    """So many requests, uniform in the ON times."""
    phase = rng.randrange(_PERIOD_MS) if user else 0
    times: _Times = []
    while len(times) < count:
        at_ms = rng.randrange(length_ms)
        if not duty or (at_ms + phase) % _PERIOD_MS < duty * _PERIOD_MS:
            times.append((at_ms, user))
    return times


def _a(rng: Random, case: Case) -> _Times:
    """Ten users, five minutes; each is limited at least once: c, and 0.3 c of refill."""
    seconds, capacity = 300, case.capacity
    least = 1.05 * (capacity + case.rate_s * seconds)
    weights = [rng.lognormvariate(0, 0.8) for _ in range(10)]
    spare = A_TOTAL * capacity - 10 * least
    volumes = [round(least + spare * weight / sum(weights)) for weight in weights]
    volumes[-1] += round(A_TOTAL * capacity) - sum(volumes)
    return [
        time
        for user, volume in enumerate(volumes, 1)
        for time in _onoff(rng, volume, seconds * 1000, case.duty, user)
    ]


def _b(volume: float) -> Callable[[Random, Case], _Times]:
    return lambda rng, case: _onoff(rng, round(volume * case.capacity), 60_000, case.duty)


def _evenly(of_refill: float, seconds: int) -> Callable[[Random, Case], _Times]:
    """A request each `of_refill` of the time that a token takes."""

    def times(rng: Random, case: Case) -> _Times:  # noqa: ARG001 -- nothing is random
        gap_ms = 1000 * of_refill / case.rate_s
        return [(round(number * gap_ms), 0) for number in range(math.ceil(1000 * seconds / gap_ms))]

    return times


def _c(rng: Random, case: Case) -> _Times:
    """Users of an hour, half of them from its begin; volumes log-normal; ON/OFF sessions."""
    hour_ms = 3_600_000
    times: _Times = []
    for user in range(1, case.users + 1):
        at_ms = 0.0 if rng.random() < 0.5 else rng.random() * hour_ms
        left = max(round(rng.lognormvariate(math.log(12), 1.6)), 1)
        while left and at_ms < hour_ms:
            some = max(round(rng.lognormvariate(math.log(6), 1)), 1) if case.sessions else 1
            session = min(left, some)
            times += [
                (round(at_ms + time), user)
                for time, _ in _onoff(rng, session, _PERIOD_MS, case.duty, user)
            ]
            left -= session
            at_ms += _PERIOD_MS + rng.expovariate(1 / 120_000)
    return [(at_ms, user) for at_ms, user in times if at_ms < hour_ms]


def _e(rng: Random, case: Case) -> _Times:
    """One user at ten times the limit for `Case.seconds`."""
    length_ms = round(1000 * case.seconds)
    return [(rng.randrange(length_ms), 0) for _ in range(round(10 * case.rate_s * case.seconds))]


def _f(rng: Random, case: Case) -> _Times:  # noqa: ARG001 -- nothing is random
    """2 c requests at half the rate, then 4 c at once."""
    gap_ms = 2000 / case.rate_s
    slow = [(round(number * gap_ms), 0) for number in range(2 * case.capacity)]
    end_ms = round(2 * case.capacity * gap_ms)
    return slow + [(end_ms + number // 10, 0) for number in range(4 * case.capacity)]


def _g(rng: Random, case: Case) -> _Times:
    """Many keys: `Case.load` requests/s of a million users, by a Zipf law of exponent 1.1."""
    users, exponent = 1_000_000, 1.1
    # The inverse of the continuous law's distribution.
    top = users ** (1 - exponent)
    return [
        (at_ms, min(int((1 - rng.random() * (1 - top)) ** (1 / (1 - exponent))), users))
        for at_ms, _ in _steady(rng, case)
    ]


def _steady(rng: Random, case: Case) -> _Times:
    """One user at `Case.load` requests/s for `Case.seconds`."""
    length_ms = round(1000 * case.seconds)
    return [(rng.randrange(length_ms), 0) for _ in range(round(case.load * case.seconds))]


ONE_MILLISECOND = "one-millisecond"
_DATA: Mapping[str, Callable[[Random, Case], _Times]] = {
    "ten-users": _a,
    **{name: _b(volume) for name, volume in B_VOLUMES.items()},
    "not-limited": _evenly(1.05, 120),
    "many-users": _c,
    "just-above": _evenly(0.9, 100),
    "high-rate": _e,
    "slow-then-burst": _f,
    "many-keys": _g,
    "steady": _steady,
    ONE_MILLISECOND: _steady,
}
DATA_SETS = tuple(_DATA)
"""A; B's four; C and D of the thesis; then E, F, G and two more of our own."""
