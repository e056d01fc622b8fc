"""The cases of `any-traffic`: experiments, measures and their bounds, as data.

A case is an experiment with some settings. The fabric is the default (tree). Bounds are only for
`JUDGED`; the other allocators are for comparison.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from testbed.harness.series import Series
from testbed.studies.any_traffic_measures import (
    AFTER_EVENTS,
    AGGREGATE,
    BYTES,
    JAIN,
    RESENT,
    SPLIT_ERROR,
    T80,
    WINDOWS,
    WORST_FIFTH,
    WORST_SECOND,
    Measure,
    apart,
    in_use_after,
    least_share,
    mean_share,
    most_share,
    part,
    share_of,
)

JUDGED = "fair"
ALLOCATORS = ("ctb", "fair", "fps", "fps-paper", "grd")
_DECENTRAL = ("fair", "fps", "fps-paper", "grd")
_FEW = ("ctb", "fair", "fps")
"""The allocators of cases whose runs take minutes of a processor."""
_TREE = "gossip.fabric=tree"
_WAKE_S = 4.0
"""The time at which idle fleets wake up, s."""
_REPEAT, _REPEAT_REAL = 5, 3
_REAL = ("ctb", "fair", "fps")
"""The allocators on the testbed."""
_CARRIED = frozenset({
    "udp-2", "udp-3", "udp-4", "udp-20", "rtt", "bbr", "ecn-baseline", "low-50k", "bursts-100k",
    "lone-cubic-40ms", "lone-cubic-200ms", "lone-cubic-auto", "ports", "ports-source", "uneven",
    "long-75kB",
})  # fmt: skip
"""Cases for a testbed of two processors: small fleets, and tens of flows."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A measure and its bounds; without bounds it is only shown."""

    measure: Measure
    least: float | None = None
    most: float | None = None
    beside: str | None = None
    """An allocator: the bounds hold for the difference from its value."""
    worst: bool = False
    """Whether the bounds are for the worst run, and not for the median."""


@dataclass(frozen=True, slots=True)
class Case:
    """A row of the table."""

    title: str
    series: Series
    bounds: Sequence[Bound] = field(default=())

    @property
    def key(self) -> str:
        """The last part of its series' name."""
        return self.series.name.split("/")[-1]


def _case(
    key: str,
    title: str,
    experiment: str,
    bounds: Sequence[Bound],
    *settings: str,
    pace: float = 0.06,
    allocators: Sequence[str] = ALLOCATORS,
    quick: Mapping[str, Any] | None = None,
    in_quick: bool = True,
    **full: Any,
) -> Case:
    """`pace`: processor seconds for a simulated second; `full` replaces top-level keys."""
    series = Series(
        f"any-traffic/{key}",
        experiment,
        full={
            "allocators": list(allocators),
            "repeat": _REPEAT,
            **full,
        },
        quick={"repeat": 1, **(quick or {})} if in_quick else None,
        settings=settings,
        simulated=True,
        pace=pace,
    )
    return Case(title, series, bounds)


_BYTES = Bound(BYTES, most=1.0, worst=True)
_SLOW = (_BYTES, Bound(AGGREGATE, least=0.8, most=1.1))
"""Bounds for limits so low that a limiter forwards less than a packet in an interval."""


def _udp(mbit: int) -> Case:
    return _case(
        f"udp-{mbit}",
        f"UDP of {mbit} Mbit/s beside the seven",
        "any-udp",
        [Bound(least_share(), least=0.9), Bound(most_share("udp"), most=1.1)],
        f"udp.0.rate={mbit}mbit",
    )


def _marked(key: str, title: str, experiment: str, *settings: str) -> Case:
    """Flows with ECN, and a limit that marks; only shown, because it is not the default."""
    return _case(
        f"ecn-{key}",
        f"{title}, marks instead of drops",
        experiment,
        [Bound(AGGREGATE), Bound(JAIN), Bound(RESENT)],
        "limit.excess=mark",
        *settings,
        quick={"seconds": 20, "warmup": "8s"},
    )


def _trickles(limiters: int) -> Case:
    return _case(
        f"trickles-{limiters}",
        f"trickles at {limiters - 1} of {limiters} limiters, a TCP flow at the last",
        "any-trickles",
        [Bound(part("bulk"), least=-0.02, beside="ctb")],
        f"udp.0.limiter=l1..l{limiters - 1}",
        f"flows.0.limiter=l{limiters}",
        pace=0.006 * limiters,
        allocators=_FEW if limiters > 40 else ALLOCATORS,
        in_quick=limiters <= 40,
    )


def _low_rate(kbit: int) -> Case:
    return _case(
        f"low-{kbit}k",
        f"ten limiters, a TCP flow each, {kbit} kbit/s",
        "any-low-rate",
        _SLOW,
        f"limit.rate={kbit}kbit",
    )


def _bursts(kbit: int, burst: str, bounds: Sequence[Bound]) -> Case:
    return _case(
        f"bursts-{kbit}k",
        f"ten limiters, bursts of 12 packets each 1.15 s, {kbit:,} kbit/s",
        "any-bursts",
        bounds,
        f"limit.rate={kbit}kbit",
        f"limit.burst={burst}",
    )


def _wake(limiters: int, most: float, keepalive: bool) -> Case:
    settings = [f"flows.0.limiter=l1..l{limiters}"]
    if keepalive:
        settings.append(f"udp.0.limiter=l1..l{limiters}")
    if limiters > 40:
        settings += ["limit.rate=100mbit", "limit.burst=750kB"]
    return _case(
        f"wake-{'keepalive-' if keepalive else ''}{limiters}",
        f"an idle fleet of {limiters} wakes together{', keepalives' if keepalive else ''}",
        "any-wake-keepalive" if keepalive else "any-wake",
        [
            Bound(WORST_SECOND, most=most, worst=True),
            Bound(in_use_after(_WAKE_S), most=2.0, worst=True),
            _BYTES,
            Bound(WORST_FIFTH),
        ],
        *settings,
        pace=0.006 * limiters,
        allocators=_FEW if limiters > 40 else ALLOCATORS,
        in_quick=limiters <= 40,
    )


def _lone_cubic(key: str, burst: str, least: float) -> Case:
    beside = [] if burst == "auto" else [Bound(part("lone"), least=-0.02, beside="ctb")]
    return _case(
        f"lone-cubic-{key}",
        f"a lone CUBIC flow without path delay, burst {key}",
        "any-lone-cubic",
        [Bound(part("lone"), least=least), *beside],
        f"limit.burst={burst}",
    )


def _response(kind: str, what: str, repeat: int) -> Case:
    return _case(
        f"response-{kind}",
        what,
        f"response-{kind}",
        [
            Bound(T80, most=0.0, beside="fps"),
            Bound(AFTER_EVENTS, most=1.15, worst=True),
        ],
        _TREE,
        # A central limiter has no peer that could die.
        allocators=_DECENTRAL if kind == "death" else ALLOCATORS,
        repeat=max(repeat, _REPEAT),
        quick={"seconds": 28},
    )


def _fleet(limiters: int, mbit: int, burst: str, **given: Any) -> Case:
    counts = (limiters, round(limiters * 2 / 3), round(limiters / 3))
    return _case(
        f"fleet-{limiters}",
        f"{limiters:,} limiters of one to three flows, {mbit:,} Mbit/s",
        "any-fleet",
        [Bound(AGGREGATE, least=0.98, most=1.03), Bound(JAIN, least=0.95), Bound(WORST_SECOND)],
        *(f"flows.{index}.limiter=l1..l{count}" for index, count in enumerate(counts)),
        f"limit.rate={mbit}mbit",
        f"limit.burst={burst}",
        f"gossip.known={str(limiters > 1000).lower()}",
        in_quick=False,
        pace=limiters * 0.004,
        **given,
    )


def _elephants(mice: int) -> Case:
    return _case(
        f"elephants-{mice}",
        f"20 elephants among {mice:,} mice at a limiter, 20 at the other",
        "any-elephants",
        [
            Bound(least_share("among"), least=0.8),
            Bound(most_share("among"), most=1.2),
            Bound(apart("among", "alone")),
        ],
        f"udp.0.count={mice}",
        f"udp.0.period={mice // 5000}s",
        pace=0.4,
        allocators=_FEW,
        in_quick=mice <= 10_000,
    )


CASES = (
    _case(
        "baseline",
        "baseline",
        "baseline",
        [
            Bound(AGGREGATE, least=0.98, most=1.01),
            Bound(JAIN, least=0.995),
            Bound(WINDOWS, least=1.0, worst=True),
            Bound(RESENT),
        ],
        _TREE,
        quick={"seconds": 20, "warmup": "8s"},
    ),
    *(_udp(mbit) for mbit in (2, 3, 4, 20)),
    _case(
        "rtt",
        "one 10 ms flow among 100 ms flows at one limiter, 100 ms flows at the other",
        "any-rtt",
        [Bound(apart("three", "six"), most=1.3), Bound(JAIN), Bound(AGGREGATE)],
    ),
    _case("bbr", "BBR beside New Reno and CUBIC, both limiters", "any-bbr",
          [Bound(JAIN, least=0.9)]),
    _marked("baseline", "baseline", "baseline", _TREE, "flows.0.ecn=true", "flows.1.ecn=true"),
    _marked(
        "lone", "a lone New Reno flow", "any-lone-cubic", "flows.0.ecn=true", "flows.0.rtt=40ms",
        "flows.0.congestion=reno", "limit.rate=10mbit", "limit.burst=75kB",
    ),
    _trickles(40),
    _trickles(100),
    *(_low_rate(kbit) for kbit in (10, 50, 100)),
    _bursts(100, "15kB", _SLOW),
    # One bucket of this depth does not forward all of this traffic, either.
    _bursts(1000, "auto", [_BYTES, Bound(AGGREGATE, least=-0.02, beside="ctb")]),
    _wake(40, 1.25, keepalive=False),
    _wake(40, 1.25, keepalive=True),
    _wake(490, 1.5, keepalive=False),
    _wake(490, 1.5, keepalive=True),
    _case(
        "join-40",
        "a flow joins an idle one of 40 busy limiters",
        "any-join",
        [Bound(T80, most=0.6), Bound(AFTER_EVENTS, most=1.15, worst=True)],
        pace=0.25,
        allocators=_FEW,
    ),
    _lone_cubic("40ms", "100kB", 0.2),
    _lone_cubic("200ms", "500kB", 0.8),
    _lone_cubic("auto", "auto", 0.95),
    _response("join", "a flow joins, five limiters", 3),
    _response("leave", "a flow leaves, five limiters", 3),
    _response("bottleneck", "flows meet a bottleneck, five limiters", 5),
    _response("limit", "the limit changes, five limiters", 4),
    _response("death", "a limiter dies, five limiters", 5),
    _case(
        "flows-5000",
        "5,000 flows, 1,500 : 3,500",
        "many-flows",
        [Bound(share_of("l1"), least=0.27, most=0.33), Bound(AGGREGATE), Bound(JAIN)],
        _TREE,
        pace=0.8,
        allocators=_FEW,
        in_quick=False,
    ),
    _case(
        "uneven",
        "1:2:3:4 over four limiters, 5 % of updates lost",
        "any-uneven",
        [Bound(AGGREGATE, least=0.98), Bound(SPLIT_ERROR, most=0.01)],
    ),
    _case(
        "weights",
        "TCP and UDP, flows of one limiter have twice the weight",
        "any-weights",
        [
            Bound(least_share(), least=0.97, worst=True),
            Bound(most_share(), most=1.03, worst=True),
            Bound(most_share("fast"), most=1.03, worst=True),
            Bound(AGGREGATE),
        ],
        allocators=_FEW,
        quick={"seconds": 20},
    ),
    _fleet(490, 100, "750kB", allocators=_FEW),
    _fleet(10_000, 2000, "15MB", repeat=1, allocators=("fair",)),
    _case(
        "ports",
        "a new port for each packet, 5 Mbit/s beside TCP",
        "any-ports",
        [Bound(mean_share(), least=-0.02, beside="ctb"), Bound(least_share())],
    ),
    _case(
        "ports-source",
        "the same, flows are sources",
        "any-ports-source",
        [Bound(least_share(), least=0.8)],
    ),
    _elephants(10_000),
    _elephants(100_000),
    _case(
        "hundreds",
        "20 and 200 flows at two limiters, 100 Mbit/s",
        "any-hundreds",
        [Bound(apart("few", "many"), most=1.3), Bound(JAIN), Bound(AGGREGATE)],
        pace=0.5,
        allocators=_FEW,
    ),
    *(
        _case(
            f"long-{burst}",
            f"paths of 300 ms, burst {burst}",
            "any-long",
            [Bound(AGGREGATE, least=-0.02, beside="ctb"), Bound(JAIN)],
            f"limit.burst={burst}",
        )
        for burst in ("75kB", "375kB")
    ),
)  # fmt: skip
"""All simulated cases, in the order of the table."""


def _on_testbed(case: Case, *, in_quick: bool = False) -> Case:
    """The same with real daemons and real TCP; few runs, because they run in real time."""
    series = replace(
        case.series,
        name=f"{case.series.name}-testbed",
        full={
            **case.series.full,
            "allocators": list(_REAL),
            "repeat": _REPEAT_REAL,
        },
        quick={"repeat": 1, "seconds": 24, "warmup": "8s"} if in_quick else None,
        simulated=False,
    )
    return Case(f"{case.title} (testbed)", series, case.bounds)


ON_TESTBED = {
    case.key: _on_testbed(case, in_quick=case.key in ("udp-3", "bbr", "lone-cubic-40ms"))
    for case in CASES
    if case.key in _CARRIED
}
"""The cases on the testbed, by the key of the simulated one."""
ALL_CASES = tuple(
    one for case in CASES for one in (case, ON_TESTBED.get(case.key)) if one is not None
)
"""Each simulated case, followed by its twin on the testbed."""
