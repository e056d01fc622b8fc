"""Figure 5: quantile-quantile plots of Jain's index in the baseline's runs against CTB's."""

from __future__ import annotations

from matplotlib.axes import Axes

from testbed.harness.draw import chart
from testbed.harness.figure import Figure
from testbed.harness.finding import Check, Finding, Table, near
from testbed.harness.results import Results, difference, text, texts
from testbed.plot import COLOURS
from testbed.reproduce.baseline import ALLOCATORS, BASELINE, FPS, NAMES

_NOISE = 0.01
"""Tolerance for a median over ten runs; CTB's own index varies more from run to run."""
_LEAST_AXIS = 0.6


def indices(results: Results, allocator: str) -> list[float]:
    """Jain's index of each run, in order of size."""
    return sorted(results.values(BASELINE.name, allocator, lambda run: float(run["jain"])))


def quantiles(left: list[float], right: list[float]) -> list[tuple[float, float]]:
    """Pairs of equal quantiles; if the samples differ in size, the smaller one's."""
    count = min(len(left), len(right))
    return [(_quantile(left, rank, count), _quantile(right, rank, count)) for rank in range(count)]


def _quantile(values: list[float], rank: int, count: int) -> float:
    place = rank / max(count - 1, 1) * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (place - below) * (values[above] - values[below])


def evaluate(results: Results) -> Finding:
    """Compare the fairness with CTB's."""
    median = {name: results.jain(BASELINE.name, name) for name in ALLOCATORS}
    checks = [
        near("GTB: Jain's index about 0.7", median["gtb"], 0.7, 0.1),
        Check("GRD: Jain's index close to 1", median["grd"], least=0.99),
        *(
            check
            for name in FPS
            for check in (
                Check(f"{NAMES[name]} at or above CTB: difference of the medians",
                      difference(median[name], median["ctb"]), least=-_NOISE),
                Check(f"{NAMES[name]} at or above CTB: least difference of the quantiles",
                      _worst(results, name), least=-2 * _NOISE),
            )
        ),
        Check("Central random drop is as fair as GRD: difference of the medians",
              difference(median["crd"], median["grd"]), least=-_NOISE, most=_NOISE),
        Check("fair, more strictly than the paper: Jain's index", median["fair"], least=0.995),
    ]  # fmt: skip
    rows = []
    for name, middle in median.items():
        own = indices(results, name)
        ends = [own[0], own[-1]] if own else [None, None]
        rows.append([NAMES[name], *texts([middle, *ends]), str(len(own))])
    ours = "median of Jain's index: " + ", ".join(
        f"{NAMES[name]} {text(middle, 3)}" for name, middle in median.items()
    )
    table = Table("Jain's index over the goodput of all ten flows",
                  ["", "median", "least", "most", "runs"], rows)  # fmt: skip
    return Finding(checks, ours, tables=[table])


def _worst(results: Results, allocator: str) -> float | None:
    """The least difference of an allocator's quantiles from CTB's."""
    pairs = quantiles(indices(results, "ctb"), indices(results, allocator))
    return min((own - ctb for ctb, own in pairs), default=None)


@chart("fig5", 6.4, 5.6)
def draw(results: Results, axes: Axes) -> bool:
    """A point for each quantile. Points above the line are fairer than CTB."""
    reference = indices(results, "ctb")
    names = [name for name in ALLOCATORS[1:] if indices(results, name)]
    if not reference or not names:
        return False
    least = _LEAST_AXIS
    for name, colour, marker in zip(names, COLOURS, "os^DvP", strict=False):
        pairs = quantiles(reference, indices(results, name))
        least = min([least, *(value for pair in pairs for value in pair)])
        axes.plot(*zip(*pairs, strict=True), marker, color=colour, label=NAMES[name],
                  markersize=5)  # fmt: skip
    axes.plot([0, 1], [0, 1], color="#8a8a8a", linewidth=1, label="x = y")
    axes.set_xlim(least - 0.02, 1.005)
    axes.set_ylim(least - 0.02, 1.005)
    axes.set_xlabel("Jain's index, central token bucket")
    axes.set_ylabel("Jain's index, limiter")
    axes.legend()
    return True


FIGURE = Figure(
    "fig5",
    "Figure 5: fairness beside a central token bucket's",
    "GTB about 0.7; GRD close to 1.0, and central random drop as fair; FPS at or above CTB",
    [BASELINE],
    evaluate,
    draw,
)
