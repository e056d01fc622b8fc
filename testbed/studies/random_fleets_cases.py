"""Random fleets: experiments drawn from a seed. Pure.

Each fleet has 2 to 20 limiters, a limit from 50 kbit/s to 1 Gbit/s, and an interval from 10 ms to
1 s. Each limiter has up to three kinds of traffic, so that large flows, UDP, trickles and web
requests meet. Rates and times have logarithmic distributions: every decade is equally likely.

Rates of UDP sources and of requests are parts of the limit, so one source may want twice the limit.
The number of TCP flows of a fleet is bounded so that a flow's fair share is at least `LEAST_SHARE`.
With less, each flow waits for timeouts under any policer, and chance decides its rate.
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

Document = dict[str, Any]


class _Place(NamedTuple):
    """A limiter that traffic is drawn for."""

    limiter: str
    rate: float
    """The limit, bytes/s."""
    most_flows: int


LEAST_SHARE = 2 * 1500
"""Least fair share of a TCP flow, bytes/s: two packets a second."""
_SECONDS, _WARMUP_S = 40, 16
_PACKETS = 600_000
"""Most packets that a run sends in the simulator, about: a faster fleet runs for less time."""
_LEAST_SECONDS = 16


def document(seed: int) -> Document:
    """The experiment with this seed, as its file would have it."""
    rng = Random(f"random-fleets/{seed}")
    rate = _logarithmic(rng, 50e3, 1e9) / 8
    limiters = rng.randint(2, 20)
    interval_ms = round(_logarithmic(rng, 10, 1000))
    seconds = max(min(_SECONDS, _PACKETS / (rate / 1500)), _LEAST_SECONDS)
    seconds = round(seconds / 2) * 2
    made: Document = {
        "name": f"random-{seed}",
        "seconds": seconds,
        "warmup": f"{_WARMUP_S * seconds // _SECONDS}s",
        "seed": seed,
        "limit": {"rate": f"{rate * 8:.0f}bit", "burst": "auto", "ewma": 0.1},
        "gossip": {
            "interval": f"{interval_ms}ms",
            "rtt": f"{rng.randint(1, 60)}ms",
            "loss": rng.choice([0.0, 0.0, round(rng.uniform(0.0, 0.1), 3)]),
        },
        "limiters": [f"l1..l{limiters}"],
        "flows": [],
        "udp": [],
        "web": [],
    }
    most_flows = max(round(rate / LEAST_SHARE), 1)
    for number in range(1, limiters + 1):
        if rng.random() < 0.15:
            continue  # An idle limiter.
        for add in rng.sample(_KINDS, rng.randint(1, 3)):
            add(made, rng, _Place(f"l{number}", rate, max(most_flows // (2 * limiters), 1)))
    if not made["flows"]:
        _tcp(made, rng, _Place("l1", rate, 1))
    return made


def _logarithmic(rng: Random, least: float, most: float) -> float:
    return float(least * (most / least) ** rng.random())


def _rtt(rng: Random) -> str:
    return f"{_logarithmic(rng, 1, 300):.0f}ms"


def _lives(rng: Random, made: Document) -> Document:
    """A start and an end: half of all sources live for the whole run."""
    seconds = made["seconds"]
    if rng.random() < 0.5:
        return {}
    start = rng.uniform(0, 0.6 * seconds)
    end = rng.uniform(start + 0.2 * seconds, 1.5 * seconds)
    return {"start": f"{start * 1000:.0f}ms"} | (
        {} if end >= seconds else {"end": f"{end * 1000:.0f}ms"}
    )


def _tcp(made: Document, rng: Random, where: _Place) -> None:
    """Add long TCP flows of one congestion control."""
    made["flows"].append({
        "limiter": where.limiter, "count": min(round(_logarithmic(rng, 1, 12)), where.most_flows),
        "rtt": _rtt(rng), "congestion": rng.choice(["reno", "cubic", "bbr"]), **_lives(rng, made),
    })  # fmt: skip


def _udp(made: Document, rng: Random, where: _Place) -> None:
    """Add a UDP source at a constant rate, or on and off."""
    rate = max(_logarithmic(rng, 0.01, 2) * where.rate * 8, 10e3)
    source: Document = {
        "limiter": where.limiter, "rate": f"{rate:.0f}bit",
        "size": rng.choice(["200B", "1kB", "1500B"]), "rtt": _rtt(rng), **_lives(rng, made),
    }  # fmt: skip
    if rng.random() < 0.4:
        source |= {"on": f"{rng.randint(50, 3000)}ms", "off": f"{rng.randint(50, 3000)}ms"}
    made["udp"].append(source)


def _trickle(made: Document, rng: Random, where: _Place) -> None:
    """Add a source of small packets with long pauses."""
    period_ms = round(_logarithmic(rng, 100, 3000))
    made["udp"].append(
        {"limiter": where.limiter, "period": f"{period_ms}ms", "size": "100B", "rtt": _rtt(rng)}
    )


def _web(made: Document, rng: Random, where: _Place) -> None:
    """Add requests for objects of 17 kB on average, which want up to half of the limit."""
    requests = min(_logarithmic(rng, 0.01, 0.5) * where.rate / 17_000, 200.0)
    made["web"].append({
        "limiter": where.limiter, "rtt": _rtt(rng), "requests": round(requests, 3),
        "sizes": {"shape": 0.75, "least": "1kB", "most": "2MB"},
    })  # fmt: skip


_KINDS = (_tcp, _tcp, _udp, _trickle, _web)
"""TCP is twice as likely as any other kind."""
