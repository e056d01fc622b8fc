"""The runs that figures 3, 4 and 5 share (paper, section 5.1)."""

from __future__ import annotations

from testbed.harness.series import Series

FPS = ("fps", "fps-paper", "fair")
"""The allocators in the place of the paper's FPS: each statement about FPS is a check of all three.

`fps` is drld's FPS, `fps-paper` is figure 2 as the paper prints it, and `fair` is drld's default.
"""
PAPERS = ("ctb", "gtb", "grd", *FPS)
"""The allocators of the paper's figures 3 and 4, and the three in the place of FPS."""
ALLOCATORS = (*PAPERS, "crd")
"""The allocators of the paper's figure 5."""


def papers(allocator: str) -> str:
    """The paper's allocator that this one is compared with."""
    return "fps" if allocator in FPS else allocator


NAMES = {
    "ctb": "CTB",
    "gtb": "GTB",
    "grd": "GRD",
    "fps": "FPS",
    "fps-paper": "FPS as printed",
    "fair": "fair",
    "crd": "central random drop",
    "central-fair": "fair, one limiter",
    "bc-pqp": "BC-PQP",
    "fps-random-drop": "FPS with random drop",
}

_EWMA_AN_INTERVAL = 0.1
_INTERVALS_A_SECOND = 20
HASTY = f"limit.ewma={_EWMA_AN_INTERVAL**_INTERVALS_A_SECOND:.0e}"
"""A setting for another reading of the paper's "1-second EWMA parameter" of 0.1: the estimate keeps
a tenth of its weight each interval, and not each second. This is almost no filter."""

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
