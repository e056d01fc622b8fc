"""New records are put in force, each once."""

from __future__ import annotations

import contextlib
import os
import signal
import struct
from typing import Any

import pytest

from drld.capture import kernel_layout as layout
from drld.capture.kernel.datapath import limiter_programs
from drld.capture.kernel.state import MAX_COMMANDS, State
from drld.ebpf.bpf import Program
from drld.model import Enforcement

ROUNDS = 10_000
"""More than enough for one signal to come within a system call of some 20 us."""


def test_a_signal_neither_loses_nor_repeats_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted = rounds = 0
    run = Program.run

    def observed(*arguments: Any, **options: Any) -> object:
        nonlocal interrupted
        try:
            return run(*arguments, **options)
        except InterruptedError:
            interrupted += 1
            raise

    monkeypatch.setattr(Program, "run", observed)
    slots = MAX_COMMANDS + 10  # two system calls
    records = dict.fromkeys(range(slots), Enforcement(fill_rate=1000, depth=3000))
    state = State.create(slots, os.cpu_count() or 1, limiter_programs()["apply"])
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    with contextlib.closing(state):
        try:
            signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
            while not interrupted and rounds < ROUNDS:
                state.apply(records, 0)
                rounds += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert interrupted
        assert [sequence(state, slot) for slot in records] == [rounds] * slots


def sequence(state: State, slot: int) -> int:
    """The number of records that a limit has had."""
    at = slot * layout.LIMIT.size + layout.LIMIT_OFFSETS["sequence"]
    return int(struct.unpack_from("=I", state.maps["limits"].memory(), at)[0])
