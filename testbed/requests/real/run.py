"""One run with real daemons.

One user asks one limiter after the other, at random, as often as the case says; it asks the next
when the last has answered, so the order of decisions is known. Their times are known up to an
answer's delay. The excess is computed with the time of the question, which refills least.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

from testbed.errors import MeasurementError
from testbed.harness.case import case_of
from testbed.requests.case import Case
from testbed.requests.oracle import TokenBucket
from testbed.requests.real.daemons import Asker, configuration, running

KINDS: Mapping[str, str] = {"counter": "counter", "queue-both": "queue", "ledger-slack": "ledger"}
"""A limit's `bucket` by the variant that it is."""
_WARM_S = 60.0


def carry_out(definition: Mapping[str, Any], name: str, repetition: int) -> dict[str, Any]:
    """One run.

    Raises:
        MeasurementError: a daemon failed, or the fleet never agreed.
    """
    case = case_of(Case, definition)
    with tempfile.TemporaryDirectory(prefix="drld-real-") as place, ExitStack() as stack:
        directory = Path(place)
        files = [
            configuration(directory, case, KINDS[name], number) for number in range(case.nodes)
        ]
        stack.enter_context(running(files))
        askers = [Asker(number) for number in range(case.nodes)]
        for one in askers:
            stack.callback(one.close)
        _warm(askers)
        answers = _ask(askers, case, Random(f"{name} {repetition}"))
    return {"allocator": name, "repetition": repetition, "datapath": "real", **measured(
        case, answers
    )}  # fmt: skip


def _warm(askers: Sequence[Asker]) -> None:
    """Empty a bucket at one limiter until all others refuse: all tell each other then."""
    until_s = time.monotonic() + _WARM_S
    for number, one in enumerate(askers):
        user = f"warm-{number}"
        others = [other for other in askers if other is not one]
        while one.ask(user)[0] or any(other.ask(user)[0] for other in others):
            if time.monotonic() > until_s:
                raise MeasurementError("the limiters did not tell each other of a warm bucket")


def _ask(askers: Sequence[Asker], case: Case, rng: Random) -> list[tuple[bool, float, float]]:
    """Questions at random times, each at a random limiter; late ones are asked at once."""
    times_s = sorted(rng.uniform(0, case.seconds) for _ in range(round(case.load * case.seconds)))
    begin_s, answers = time.monotonic(), []
    for at_s in times_s:
        time.sleep(max(begin_s + at_s - time.monotonic(), 0))
        answers.append(askers[rng.randrange(len(askers))].ask("alice"))
    return answers


def measured(case: Case, answers: Sequence[tuple[bool, float, float]]) -> dict[str, Any]:
    """What the answers show, beside one bucket that is asked at the same times."""
    rate_s = Fraction(case.rate, case.per_s)
    central, true = TokenBucket(case.capacity, rate_s), TokenBucket(case.capacity, rate_s)
    begin_s = answers[0][1]
    excess = shortfall = Fraction(0)
    admitted = central_admitted = 0
    for passed, asked_s, answered_s in answers:
        asked_ms, answered_ms = (round(1000 * (at - begin_s)) for at in (asked_s, answered_s))
        central_admitted += central.take(asked_ms)
        if passed:
            admitted += 1
            true.force(asked_ms)
            excess = max(excess, -true.tokens)
        else:
            # The bucket at the answer has the most that a limiter might have granted.
            true.refill(asked_ms)
            shortfall = max(shortfall, true.tokens + (answered_ms - asked_ms) * rate_s / 1000 - 1)
    delays_ms = sorted(1000 * (answered_s - asked_s) for _, asked_s, answered_s in answers)
    return {
        "requests": len(answers), "admitted": admitted, "central_admitted": central_admitted,
        "rejected": len(answers) - admitted, "central": len(answers) - central_admitted,
        "excess": float(excess), "shortfall": float(shortfall),
        "took_s": answers[-1][2] - begin_s, "median_ms": delays_ms[len(delays_ms) // 2],
        "longest_ms": delays_ms[-1],
    }  # fmt: skip
