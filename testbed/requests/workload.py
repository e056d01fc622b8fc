"""The thesis' data sets A to D, rebuilt from its text, and E to G of our own. Pure; seeded.

The thesis does not publish its traffic, but all of it is in capacities c. One user of B is ON for
`duty` of each 10 s and sends uniformly in between. `duty` 0.4 is calibrated on the counter's three
published precisions and then frozen; the queue's are predictions. Times are whole ms; the limiter
of a request is uniform, by a hash of time and user in the thesis.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import NamedTuple

ONOFF_DUTY = 0.4
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


def requests(
    data: str, seed: int, capacity: int, rate_s: float, *, nodes: int, duty: float = ONOFF_DUTY
) -> list[Request]:
    """The requests of a data set, by time.

    `rate_s` is the refill, tokens/s. `duty` 0 makes B's arrivals uniform.

    Raises:
        KeyError: there is no such data set.
    """
    times = _DATA[data](Random(f"{data} {seed}"), capacity, rate_s, duty)
    # All requests of a user in the same millisecond have the same limiter (4.3.1). Data set F has
    # one limiter, to show what the listing does without gossip.
    nodes = 1 if data == "slow-then-burst" else nodes
    return [
        Request(at_ms, user, Random(f"{seed} {at_ms} {user}").randrange(nodes))
        for at_ms, user in sorted(times)
    ]


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


def _a(rng: Random, capacity: int, rate_s: float, duty: float) -> _Times:
    """Ten users, five minutes; each is limited at least once: c, and 0.3 c of refill."""
    seconds = 300
    least = 1.05 * (capacity + rate_s * seconds)
    weights = [rng.lognormvariate(0, 0.8) for _ in range(10)]
    spare = A_TOTAL * capacity - 10 * least
    volumes = [round(least + spare * weight / sum(weights)) for weight in weights]
    volumes[-1] += round(A_TOTAL * capacity) - sum(volumes)
    return [
        time
        for user, volume in enumerate(volumes, 1)
        for time in _onoff(rng, volume, seconds * 1000, duty, user)
    ]


def _b(volume: float) -> Callable[[Random, int, float, float], _Times]:
    def times(rng: Random, capacity: int, rate_s: float, duty: float) -> _Times:  # noqa: ARG001
        return _onoff(rng, round(volume * capacity), 60_000, duty)

    return times


def _quiet(rng: Random, capacity: int, rate_s: float, duty: float) -> _Times:  # noqa: ARG001
    """B, not limited: two minutes slightly below the refill rate."""
    gap_ms = 1050 / rate_s
    return [(round(number * gap_ms), 0) for number in range(int(120_000 / gap_ms))]


def _c(rng: Random, capacity: int, rate_s: float, duty: float) -> _Times:  # noqa: ARG001
    """5,000 users in an hour, half of them from its begin; volumes log-normal; ON/OFF sessions."""
    hour_ms = 3_600_000
    times: _Times = []
    for user in range(1, 5001):
        at_ms = 0.0 if rng.random() < 0.5 else rng.random() * hour_ms
        left = max(round(rng.lognormvariate(math.log(12), 1.6)), 1)
        while left and at_ms < hour_ms:
            session = min(left, max(round(rng.lognormvariate(math.log(6), 1)), 1))
            times += [
                (round(at_ms + time), user)
                for time, _ in _onoff(rng, session, _PERIOD_MS, duty, user)
            ]
            left -= session
            at_ms += _PERIOD_MS + rng.expovariate(1 / 120_000)
    return [(at_ms, user) for at_ms, user in times if at_ms < hour_ms]


def _d(rng: Random, capacity: int, rate_s: float, duty: float) -> _Times:  # noqa: ARG001
    """A request each 0.9 / rate for 100 s."""
    gap_ms = 900 / rate_s
    return [(round(number * gap_ms), 0) for number in range(int(100_000 / gap_ms) + 1)]


def _e(rng: Random, capacity: int, rate_s: float, duty: float) -> _Times:  # noqa: ARG001
    """One user at ten times the limit for 20 s."""
    return [(rng.randrange(20_000), 0) for _ in range(round(10 * rate_s * 20))]


def _f(rng: Random, capacity: int, rate_s: float, duty: float) -> _Times:  # noqa: ARG001
    """2 c requests at half the rate, then 4 c at once."""
    gap_ms = 2000 / rate_s
    slow = [(round(number * gap_ms), 0) for number in range(2 * capacity)]
    end_ms = round(2 * capacity * gap_ms)
    return slow + [(end_ms + number // 10, 0) for number in range(4 * capacity)]


def _g(rng: Random, capacity: int, rate_s: float, duty: float) -> _Times:  # noqa: ARG001
    """Many keys: 20,000 requests in 10 s of a million users, by a Zipf law of exponent 1.1."""
    users, exponent = 1_000_000, 1.1
    # The inverse of the continuous law's distribution.
    top = users ** (1 - exponent)
    return [
        (rng.randrange(10_000),
         min(int((1 - rng.random() * (1 - top)) ** (1 / (1 - exponent))), users))
        for _ in range(20_000)
    ]  # fmt: skip


_DATA: Mapping[str, Callable[[Random, int, float, float], _Times]] = {
    "ten-users": _a,
    **{name: _b(volume) for name, volume in B_VOLUMES.items()},
    "not-limited": _quiet,
    "many-users": _c,
    "just-above": _d,
    "high-rate": _e,
    "slow-then-burst": _f,
    "many-keys": _g,
}
DATA_SETS = tuple(_DATA)
"""A; B's four; C, D of the thesis, and E, F, G of our own."""
