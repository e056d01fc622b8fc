"""drlctl as the tests run it: with a served control API beside it, in this process."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import trio
from click.testing import CliRunner, Result

from drld.cli import main


def invoke(*args: object, env: dict[str, str] | None = None) -> Result:
    environment: dict[str, str | None] = {"DRLD_CONTROL": None, **(env or {})}
    return CliRunner().invoke(main, list(map(str, args)), prog_name="drlctl", env=environment)


async def drlctl(control: Path, *args: object) -> Result:
    """Run drlctl in a thread, so that the server runs beside it."""
    with trio.fail_after(20):
        return await trio.to_thread.run_sync(invoke, "--socket", control, *args)


async def output(control: Path, *args: object) -> str:
    result = await drlctl(control, *args)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def lines(text: str) -> str:
    return dedent(text).lstrip("\n")


def refused(result: Result) -> str:
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("drlctl: ")
    assert len(result.stderr.splitlines()) == 1
    return result.stderr
