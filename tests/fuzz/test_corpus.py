"""All findings of fuzzers, and the valid inputs of every target, judged again."""

from __future__ import annotations

from pathlib import Path

import pytest

from .finding import CORPUS
from .targets import KERNEL_TARGET, TARGETS
from .targets.base import Target

# Those of the BPF programs are replayed by tests/kernel/test_bpf_agreement.py.
FOUND = sorted(path for path in CORPUS.glob("*/*") if path.parent.name != KERNEL_TARGET)
SEEDS = [
    pytest.param(target, seed, id=f"{name}-{number}")
    for name, target in TARGETS.items()
    for number, seed in enumerate(target.seeds())
]


@pytest.mark.parametrize("path", FOUND, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_every_kept_finding_passes(path: Path) -> None:
    TARGETS[path.parent.name].check(path.read_bytes())


@pytest.mark.parametrize(("target", "seed"), SEEDS)
def test_valid_inputs_are_accepted(target: Target, seed: bytes) -> None:
    assert len(seed) <= target.max_bytes
    assert target.check(seed)


def test_every_corpus_folder_has_a_target() -> None:
    assert {path.name for path in CORPUS.iterdir()} <= {*TARGETS, KERNEL_TARGET}
