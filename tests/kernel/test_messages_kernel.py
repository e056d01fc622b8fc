"""Real brokers behind a real daemon: its bucket, as it is seen from the brokers' side."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.attempts import ATTEMPTS
from testbed.messages.real.oracle_command import LATE

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("broker", ["nats", "mosquitto"])
def test_no_window_has_more_messages_than_the_bucket_lets_out(broker: str) -> None:
    """No message is lost, doubled or overtaken. A host that stands still makes messages late."""
    command = ["-m", "testbed.messages", "oracle", "--broker", broker, "--seconds", "4"]
    for _ in range(ATTEMPTS):
        done = subprocess.run(
            [sys.executable, *command], capture_output=True, text=True, cwd=ROOT, check=False
        )
        if done.returncode != LATE:
            break
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert "none lost, doubled or overtaken" in done.stdout


@pytest.mark.parametrize("broker", ["nats", "mosquitto"])
def test_a_full_hold_keeps_publishers_back_and_other_topics_pass(broker: str) -> None:
    """The command fails unless messages of the other topic come; how fast, is for its page."""
    command = ["-m", "testbed.messages", "hold", "--broker", broker, "--rounds", "1"]
    done = subprocess.run(
        [sys.executable, *command, "--seconds", "1"],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    waiting, free, held_back = done.stdout.splitlines()[2].replace(",", "").split()[-3:]
    assert int(waiting) > 500
    assert float(held_back) < float(free) / 2


def test_a_picture_shows_how_parts_follow_publishers(tmp_path: Path) -> None:
    """The parts only begin to follow in the time of a test; no message is lost or doubled."""
    command = ["-m", "testbed.messages", "shift", "--seconds", "6", "--moves", "3"]
    done = subprocess.run(
        [sys.executable, *command, "--out", str(tmp_path)],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "messages.png").is_file()
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["messages"] == sum(map(len, result["delays_s"])) > 500
    assert all(parts for parts in result["parts"])
