"""Fabrics at scale: the limiters' error of the total with each fabric, with and without loss.

The fleets are those of `testbed.studies.fleets`, with FPS, 50 ms and branching 3: every size
without loss, and one size with several losses. In a mesh of N each limiter sends N - 1 updates an
interval, also in the simulator. So the mesh has at most 200 limiters, and 50 with loss.
"""

from __future__ import annotations

from pathlib import Path

from matplotlib import pyplot as plt
from matplotlib import rc_context

from drld.gossip.fabrics import FABRICS
from testbed.harness.figure import Figure
from testbed.harness.finding import Finding, Table, near
from testbed.harness.results import Results, texts
from testbed.harness.series import Series
from testbed.plot import COLOURS, STYLE, save
from testbed.studies import scale
from testbed.studies.fleets import cost, error, fleet

_SIZES = (50, 200, 490, 3000)
_MOST = {"mesh": 200}
"""The largest feasible fleet of a fabric, if it has one."""
_LOSSY, _LOSSY_MESH = 490, 50
_LOSSES = (0.005, 0.05, 0.2)
"""The first is the loss in the paper's figure 9."""
_QUICK = 50


def _series(fabric: str, limiters: int, loss: float) -> Series:
    if fabric == "pushsum" and not loss and limiters in scale.SERIES:
        return scale.SERIES[limiters]
    lossy = f"-loss-{loss:g}" if loss else ""
    return fleet(
        f"fabrics/{fabric}-{limiters}{lossy}", limiters, ["fps"],
        (f"gossip.fabric={fabric}", f"gossip.loss={loss:g}"),
        rounds=limiters / 3 if fabric == "mesh" else 1.0,
        quick=limiters == _QUICK,
    )  # fmt: skip


def _sizes(fabric: str) -> list[int]:
    return [n for n in _SIZES if n <= _MOST.get(fabric, n)]


SERIES = {
    (fabric, n, loss): _series(fabric, n, loss)
    for fabric in FABRICS
    for n in _sizes(fabric)
    for loss in (0.0, *(_LOSSES if n == (_LOSSY_MESH if fabric in _MOST else _LOSSY) else ()))
}


def evaluate(results: Results) -> Finding:
    """Check the aggregate with each fabric, size and loss."""
    judged = {key: series for key, series in SERIES.items() if results.has(series.name)}
    checks = [
        near(f"{fabric}, {n:,} limiters, {loss:.1%} of the updates lost: FPS, aggregate over the "
             "limit", results.used(series.name, "fps"), 1.0, 0.05)
        for (fabric, n, loss), series in judged.items()
    ]  # fmt: skip
    rows = [
        [fabric, f"{n:,}", f"{loss:.1%}",
         *texts([error(results, series.name),
                 *(of(series.name, "fps")
                   for of in (results.used, results.highest, results.jain, results.control))]),
         cost(results, series.name, "tick_us"), cost(results, series.name, "bytes", 1000)]
        for (fabric, n, loss), series in judged.items()
    ]  # fmt: skip
    errors = [f"{row[0]} at {row[1]} with {row[2]} lost: {row[3]}" for row in rows]
    return Finding(
        checks,
        f"limiters' error of the total: {'; '.join(errors)}",
        "The paper has only push-sum and shows no errors. In push-sum the mass of a lost update "
        "comes with the link's next one, after 163 intervals among 490 limiters; a lost update "
        "costs a tree nothing.",
        [Table("Fabrics under FPS, 50 ms, branching 3",
               ["fabric", "limiters", "loss", "error of the total", "aggregate", "highest 1 s",
                "Jain", "control traffic", "processor a tick, us", "memory, kB"], rows)],
    )  # fmt: skip


def draw(results: Results, directory: Path) -> list[Path]:
    """The error over time; a panel for each loss, a line for each fabric and size."""
    losses = [
        loss for loss in (0.0, *_LOSSES)
        if any(key[2] == loss and one.name in results.by_series for key, one in SERIES.items())
    ]  # fmt: skip
    if not losses:
        return []
    with rc_context(STYLE):
        figure, grid = plt.subplots(
            1, len(losses), figsize=(4.2 * len(losses), 3.8), squeeze=False, sharey=True,
            layout="constrained",
        )  # fmt: skip
        for axes, loss in zip(grid[0], losses, strict=True):
            keys = [
                key for key, one in SERIES.items()
                if key[2] == loss and results.runs(one.name, "fps")
            ]  # fmt: skip
            for number, key in enumerate(keys):
                fabric, limiters, _ = key
                (run, *_) = results.runs(SERIES[key].name, "fps")
                series = run["gossip"].get("believed_total", {"series": []})["series"]
                # An error of zero has no place on a logarithmic axis.
                axes.plot([t for t, _ in series], [max(value, 1e-5) for _, value in series], "o-",
                          color=COLOURS[number % len(COLOURS)], markersize=3,
                          label=f"{fabric}, {limiters:,}")  # fmt: skip
            axes.set_title(f"{loss:.1%} of the updates lost")
            axes.set_yscale("log")
            axes.set_xlabel("Time (s)")
            axes.legend(fontsize=7)
        grid[0][0].set_ylabel("Error of the total, rms over the limiters")
        return [save(figure, directory / "fabrics.png")]


FIGURE = Figure(
    "fabrics",
    "Fabrics at scale, with and without loss",
    "Gossip with a branching of 3 is enough for hundreds of limiters; lost updates are compensated",
    list(SERIES.values()),
    evaluate,
    draw,
    page="scale",
)
