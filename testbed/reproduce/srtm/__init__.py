"""The figures of SRTM's papers on rate-limited topics (docs/messages.md)."""

from __future__ import annotations

from testbed.reproduce.srtm import baselines, bursts, penalty, real_brokers, tradeoff

FIGURES = (
    penalty.FIGURE,
    tradeoff.FIGURE,
    baselines.FIGURE,
    bursts.FIGURE,
    real_brokers.FIGURE,
)
