"""The runs that figures 3, 4 and 5 share (paper, section 5.1)."""

from __future__ import annotations

from testbed.reproduce.figure import Series

PAPERS = ("ctb", "gtb", "grd", "fps")
"""Those of the paper's figures 3 and 4; central random drop is in its figure 5."""
FURTHER = ("crd", "fps-random-drop")
NAMES = {
    "ctb": "CTB",
    "gtb": "GTB",
    "grd": "GRD",
    "fps": "FPS",
    "crd": "central random drop",
    "fps-random-drop": "FPS with random drop",
}

BASELINE = Series(
    "baseline",
    "baseline",
    full={"allocators": [*PAPERS, *FURTHER]},
    quick={"seconds": 18, "warmup": "6s", "repeat": 1},
)
