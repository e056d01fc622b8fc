"""The DRL penalty on real brokers behind real daemons, dilated by ten, beside virtual time."""

from __future__ import annotations

import statistics
from dataclasses import asdict
from typing import Any

from drld.messages.penalty import tail_delay
from testbed.harness.draw import chart
from testbed.harness.figure import Figure
from testbed.harness.finding import Check, Finding, Table
from testbed.harness.results import Results, text
from testbed.messages.case import Case
from testbed.messages.real.case import RealCase
from testbed.messages.real.frames import Protocol
from testbed.messages.series import MessageSeries, RealMessageSeries
from testbed.reproduce.srtm.delays import BROKERS, PAGE, SOURCE, median, values
from testbed.reproduce.srtm.penalty import BURST

_DILATE = 10
_CASE = Case(1000, burst=BURST, seconds=6.0, warm_s=1.0, repeat=10)
_QUICK = {"seconds": 2.0, "warm_s": 0.3, "repeat": 2}
_PROTOCOLS: dict[str, Protocol] = {"nats-server": "nats", "mosquitto": "mqtt"}
REAL = {
    title: RealMessageSeries(
        f"srtm/real-{protocol}",
        RealCase(**asdict(_CASE), dilate=_DILATE, protocol=protocol),
        _QUICK,
    )
    for title, protocol in _PROTOCOLS.items()
}
VIRTUAL = MessageSeries("srtm/real-virtual", _CASE, _QUICK, cpu_s=1)
"""The same messages in virtual time."""


def penalty(results: Results, series: str, brokers: str) -> float | None:
    """The 99th percentile less that of one broker, ms: medians of the runs."""
    found, one = (median(results, series, it, "latency", "p99") for it in (brokers, "1"))
    return None if found is None or one is None else found - one


def virtual_penalty(results: Results, brokers: str) -> float | None:
    """The same in virtual time, dilated; of the access delay, as a model's work is no broker's."""
    found, one = (median(results, VIRTUAL.name, it, "access", "p99") for it in (brokers, "1"))
    return None if found is None or one is None else _DILATE * (found - one)


def evaluate(results: Results) -> Finding:
    """Check the penalties against the law, and against the same messages in virtual time."""
    rate = float(VIRTUAL.case.rate) / _DILATE
    checks: list[Check] = []
    rows = []
    for title, series in REAL.items():
        access = results.values(series.name, "1", lambda run: float(run["access_p99_ms"]))
        checks.append(
            Check(f"{title}, one broker: 99th percentile of the access delay, median",
                  statistics.median(access) if access else None, "ms", most=0.0)
        )  # fmt: skip
        for brokers in BROKERS[1:]:
            law_ms = 1e3 * tail_delay(rate, BURST, 1 / int(brokers))
            real = penalty(results, series.name, brokers)
            virtual = virtual_penalty(results, brokers)
            checks += [
                Check(f"{title}, {brokers} brokers: p99 above that of one, over the law's "
                      f"{law_ms:.1f} ms", None if real is None else real / law_ms,
                      least=0.85, most=1.15),
                Check(f"{title}, {brokers} brokers: the same, over that in virtual time",
                      None if real is None or not virtual else real / virtual,
                      least=0.85, most=1.15),
            ]  # fmt: skip
            found = values(results, series.name, brokers, "latency", "p99")
            rows.append([title, brokers, text(law_ms, 1), text(virtual, 1), text(real, 1),
                         f"{min(found):.1f} to {max(found):.1f}" if found else "-"])  # fmt: skip
    late = [
        float(run["late_ms"])
        for series in REAL.values()
        for brokers in BROKERS
        for run in results.runs(series.name, brokers)
    ]
    return Finding(
        checks,
        "real brokers behind drld show the penalty of the law, and that of the simulator",
        f"Time is dilated by {_DILATE}: publishers send a message a second, and delays are "
        f"{_DILATE} times those of the papers' rates. Latency is counted from the scheduled time "
        f"of sending; 99 % of the messages of a run were sent within "
        f"{text(max(late), 2) if late else '-'} ms of it. All processes of a run have real-time "
        "priority.",
        [Table("99th percentile of the latency above that of one broker, ms",
               ["", "brokers", "law", "virtual time", "real brokers", "p99 of runs"], rows)],
    )  # fmt: skip


@chart("srtm-real", 5.5, 3.4)
def draw(results: Results, axes: Any) -> bool:
    """Penalties by the number of brokers."""
    lines = {
        "virtual time": [virtual_penalty(results, it) for it in BROKERS[1:]],
        **{title: [penalty(results, series.name, it) for it in BROKERS[1:]]
           for title, series in REAL.items()},
    }  # fmt: skip
    drawn = False
    for label, found in lines.items():
        points = [(int(it), ms) for it, ms in zip(BROKERS[1:], found, strict=True)
                  if ms is not None]  # fmt: skip
        if points:
            axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=label)
            drawn = True
    rate = float(VIRTUAL.case.rate) / _DILATE
    law = [1e3 * tail_delay(rate, BURST, 1 / int(it)) for it in BROKERS[1:]]
    axes.plot([int(it) for it in BROKERS[1:]], law, "k:", label="law of the tail")
    axes.set_xlabel("Brokers")
    axes.set_ylabel("99th percentile above that of one (ms)")
    axes.legend(fontsize=7)
    return drawn


FIGURE = Figure(
    "srtm-real",
    "The penalty on nats-server and mosquitto, and the trust in the simulator",
    "the tail grows with each broker (2019, figure 6a)",
    [*REAL.values(), VIRTUAL],
    evaluate,
    draw,
    page=PAGE,
    source=SOURCE,
)
