"""Exponentially weighted moving average over unevenly long intervals (paper, section 3.1).

The paper smooths arrival rates with "a standard EWMA filter" and gives its parameter for one
second ("the 1-second EWMA parameter is 0.1") without defining it. Our reading: `p` is the weight
that history one second old keeps. A tick of length dt seconds therefore keeps

    alpha = p ** dt          rate <- alpha * rate + (1 - alpha) * sample

which makes the filter independent of the tick's length. With p = 0 there is no filter.

Deviation: the start is corrected. A filter that starts at zero needs ln(0.2) / ln(p) seconds to
reach 80 % of a constant demand (0.7 s at p = 0.1). A filter that starts at its first sample stays
near it for as long. But the first interval of a new flow has little more than a SYN. So after k
samples, whose weights sum to 1 - alpha**k, the weights are scaled to sum to 1. The first sample
counts whole, and the first few make a mean.
"""

from __future__ import annotations

from drld.model import NS_PER_S


class Ewma:
    """One smoothed quantity; `value` is 0.0 until the first sample."""

    __slots__ = ("_sum", "_weight", "history", "value")

    def __init__(self, history: float) -> None:
        """`history`: weight that history one second old keeps, 0 <= history < 1."""
        if not 0 <= history < 1:
            raise ValueError(f"history: {history} is not in [0, 1)")
        self.history = history
        self.value = 0.0
        self._sum = 0.0
        self._weight = 0.0

    def update(self, sample: float, interval_ns: int) -> float:
        """Add the quantity's mean over the last `interval_ns`; return the new value."""
        alpha = self.history ** (interval_ns / NS_PER_S)
        self._sum = alpha * self._sum + (1 - alpha) * sample
        self._weight = alpha * self._weight + (1 - alpha)
        self.value = self._sum / self._weight
        return self.value

    def restart(self) -> None:
        """Forget all samples: the next sample counts whole."""
        self.value = 0.0
        self._sum = 0.0
        self._weight = 0.0
