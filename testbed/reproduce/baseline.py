"""The runs that figures 3, 4 and 5 share (paper, section 5.1)."""

from __future__ import annotations

from testbed.reproduce.figure import Series

PAPERS = ("ctb", "gtb", "grd", "fps", "fps-paper")
"""Those of the paper's figures 3 and 4; central random drop is in its figure 5.

FPS stands twice: drld's, and figure 2 as the paper prints it. A statement of the paper about FPS is
a check of both.
"""
FURTHER = ("crd", "fps-random-drop")
NAMES = {
    "ctb": "CTB",
    "gtb": "GTB",
    "grd": "GRD",
    "fps": "FPS",
    "fps-paper": "FPS as printed",
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
    full={"allocators": [*PAPERS, *FURTHER]},
    quick={"seconds": 18, "warmup": "6s", "repeat": 1},
)
BASELINE_HASTY = Series(
    "baseline-hasty",
    "baseline",
    full={"allocators": ["ctb", "grd", "fps", "fps-paper"], "repeat": 5},
    quick={"seconds": 18, "warmup": "6s", "repeat": 1},
    settings=(HASTY,),
)
