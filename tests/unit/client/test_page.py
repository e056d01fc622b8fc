"""The examples of the page run as they stand, with a limiter at another path."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from drld.client import Client

from .limiter import few, limiter

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "requests-clients.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
OTHERS = ("on_asyncio", "asgi", "wsgi")
MADE = 'Client("/run/drld/requests.sock")'


@pytest.mark.parametrize("block", BLOCKS, ids=lambda it: re.sub(r"\W+", "-", it)[-30:])
def test_an_example_of_the_page_runs(
    tmp_path: Path, block: str, capsys: pytest.CaptureFixture[str]
) -> None:
    datapath = few()
    names: dict[str, Any] = {}
    with limiter(tmp_path / "socket", datapath) as (unix, _):
        # However busy this host is, the limiter is waited for.
        assert MADE in block
        patient = block.replace(MADE, f'Client("{unix}", timeout_s=60)')
        exec(compile(patient, str(PAGE), "exec"), names)
        said = capsys.readouterr().out
        if "Question" in names:
            assert names["answer"].admitted
            assert [it.limit for it in names["several"]] == ["limit-1", "limit-2"]
            assert said == ""
        elif "main" in names:
            assert said == "True 1.0\n"
        elif "lease" in names:
            assert said == "go on\n"
        elif "send_email" in names:
            assert names["send_email"]("bob") == "mail for bob"
            assert said == ""
        elif "application" in names:
            environ = {"REMOTE_ADDR": "192.0.2.1"}
            assert names["application"](environ, lambda *_: print) == [b"hello"]
        else:
            assert names["descriptor"]({"headers": []}) == {"plan": "free"}
            assert names["app"].user_middleware
        for value in (*names.values(), getattr(names.get("application"), "_client", None)):
            if isinstance(value, Client):
                value.close()


def test_the_page_has_the_bounds_of_the_protocol() -> None:
    from drld.client.base import TIMEOUT_S
    from drld.client.protocol.frame import MAX_BODY_BYTES, MAX_CHECKS
    from drld.control.connection import REQUEST_S, WRITE_S
    from drld.requests.front.batch import IDLE_S

    bounds = PAGE.read_text()
    assert f"| {MAX_CHECKS:,}; {MAX_BODY_BYTES:,} |" in bounds
    assert f"first byte | {REQUEST_S:.0f} s |" in bounds
    assert f"answers | {WRITE_S:.0f} s |" in bounds
    assert f"connection | {IDLE_S:.0f} s |" in bounds
    assert f"`timeout_s` ({TIMEOUT_S} s)" in bounds


@pytest.mark.parametrize("module", ["drld.client", *(f"drld.client.{it}" for it in OTHERS)])
def test_the_library_needs_nothing_but_the_standard_library(module: str) -> None:
    """-S hides all installed packages, as in an environment that has drld's wheel alone."""
    command = [sys.executable, "-S", "-c", f"import {module}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == ""
