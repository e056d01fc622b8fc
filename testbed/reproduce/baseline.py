"""The runs that figures 3, 4 and 5 share (paper, section 5.1)."""

from __future__ import annotations

from testbed.harness.series import Series

FPS = ("fps", "fps-paper", "fair")
"""The allocators that stand for the paper's FPS: each statement about FPS is a check of them all.

They are drld's FPS, figure 2 as the paper prints it, and drld's default.
"""
PAPERS = ("ctb", "gtb", "grd", *FPS)
"""The allocators of the paper's figures 3 and 4."""
ALLOCATORS = (*PAPERS, "crd")
"""Those of its figure 5."""


def papers(allocator: str) -> str:
    """The paper's allocator that this one stands for."""
    return "fps" if allocator in FPS else allocator


NAMES = {
    "ctb": "CTB",
    "gtb": "GTB",
    "grd": "GRD",
    "fps": "FPS",
    "fps-paper": "FPS as printed",
    "fair": "fair",
    "crd": "central random drop",
    "fps-random-drop": "FPS with random drop",
}

_EWMA_AN_INTERVAL = 0.1
_INTERVALS_A_SECOND = 20
HASTY = f"limit.ewma={_EWMA_AN_INTERVAL**_INTERVALS_A_SECOND:.0e}"
"""Another reading of the paper's "1-second EWMA parameter" of 0.1, as a setting: the estimate of
the interval before keeps a tenth of its weight, which is next to no filter."""

BASELINE = Series(
    "baseline",
    "baseline",
    full={"allocators": [*ALLOCATORS]},
    quick={"seconds": 18, "warmup": "6s", "repeat": 1},
)
BASELINE_HASTY = Series(
    "baseline-hasty",
    "baseline",
    full={"allocators": ["ctb", "grd", *FPS], "repeat": 5},
    quick={"seconds": 18, "warmup": "6s", "repeat": 1},
    settings=(HASTY,),
)
