"""`drlctl check`: as clients ask, with exit codes for scripts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from drld.cli.client import Daemon
from drld.requests.registered.commands import show_keys
from tests.control_fake import FakeDaemon, served
from tests.unit.cli.drlctl import drlctl, lines, refused

from .made import bucket, limit, limited, of_plan


async def test_the_answer_decides_output_and_exit_code(tmp_path: Path) -> None:
    daemon, control = FakeDaemon(), tmp_path / "sock"
    daemon.datapaths = [limited((limit(), bucket(5)), (of_plan(2), bucket(1)))]
    async with served(daemon, control):

        async def check(*args: object) -> tuple[int, str]:
            result = await drlctl(control, "check", "--namespace", "api", *args)
            assert result.stderr == ""
            return result.exit_code, result.stdout

        assert await check("--cost", 3) == (
            0,
            lines("""
                admitted
                LIMIT    MODE           LEFT         BURST  FULL IN
                limit-1  enforce  2 requests  100 requests        -
            """),
        )
        status, written = await check("--cost", 9, "--at-least", 1)
        assert (status, written.splitlines()[0]) == (0, "admitted: 2 of 9")
        status, written = await check("--cost", 9, "--charge")
        assert (status, written.splitlines()[0]) == (0, "admitted")
        assert await check("--cost", 1) == (3, ANY)
        daemon.datapaths = [limited((limit(), bucket(5)), (of_plan(2), bucket(1)))]
        status, written = await check("plan=free", "--json")
        assert status == 0
        assert json.loads(written)["limit"] == "limit-2"
        status, written = await check("plan=free")
        assert status == 3
        assert written.startswith("refused: above the limit limit-2\n")
        assert await check("--namespace", "other") == (0, "admitted: it falls under no limit\n")
        wrong = await drlctl(control, "check", "plan")
        assert wrong.exit_code == 1
        assert "the daemon refuses: no limit is named 'plan'" in wrong.stderr
        wrong = await drlctl(control, "check", "plan=free", "plan")
        assert wrong.exit_code == 2
        assert "must be NAME=VALUE" in wrong.stderr
        twice = await drlctl(control, "check", "user=alice", "user=bob")
        assert (twice.exit_code, "must be given once" in twice.stderr) == (2, True)
        said = refused(await drlctl(control, "check", "cost=3"))
        assert "cost: is no name for a descriptor" in said
        daemon.datapaths = []
        assert "requests.listen: is not set" in refused(await drlctl(control, "check"))


async def test_a_request_falls_under_the_limit_that_is_named(tmp_path: Path) -> None:
    daemon, control = FakeDaemon(), tmp_path / "sock"
    daemon.datapaths = [limited((limit(), bucket(5)), (of_plan(2), bucket(1)))]
    per_user = {"namespace": "api", "where": {"plan": "free"}, "per": ["user"]}
    daemon.reports.append({**daemon.reports[0], "name": "user", "match": per_user})
    async with served(daemon, control):

        async def usage(*args: str) -> str:
            result = await drlctl(control, "check", *args)
            assert result.exit_code == 2
            return result.stderr

        answer = await drlctl(control, "check", "user", "user=alice", "--json")
        assert answer.exit_code == 0
        assert [it["limit"] for it in json.loads(answer.stdout)["limits"]] == ["limit-1", "limit-2"]
        assert "user: is required: user has a bucket for each user" in await usage("user")
        wrong = await usage("user", "user=alice", "plan=paid")
        assert "plan: must be free, or left out" in wrong
        assert "--namespace: must be left out" in await usage("user", "--namespace", "api")
        assert "customer-a: must be a limit on requests" in await usage("customer-a")


async def test_bad_options_are_refused_with_a_reason(tmp_path: Path) -> None:
    daemon, control = FakeDaemon(), tmp_path / "sock"
    daemon.datapaths = [limited()]
    async with served(daemon, control):
        assert "must be" in refused(await drlctl(control, "check", "--bytes", "0"))


class Answering(Daemon):
    """A daemon whose busiest keys are these."""

    def __init__(self, *busiest: Mapping[str, Any]) -> None:
        super().__init__("/nowhere")
        self._busiest = busiest

    def get(self, path: str) -> Any:
        ends = {"bucket": "ledger", "keys": len(self._busiest), "max_keys": 9, "peers": 0}
        return {"limit": "api", "unit": "requests", **ends, "busiest": self._busiest}


def test_a_table_without_keys_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_keys(Answering(), "api", 20, as_json=False)
    assert capsys.readouterr().out == (
        "KEY  USED  BURST\n(none)\nkeys with a ledger here: 0, at most 9; peers in contact: 0\n"
    )


def test_keys_that_clients_chose_give_a_terminal_no_orders(
    capsys: pytest.CaptureFixture[str],
) -> None:
    busy = {"key": "0" * 16, "text": "\x1b]0;owned\x07", "used": 1.0, "burst": 2.0}
    assert show_keys(Answering(busy), "api", 20, as_json=False)
    assert "\x1b" not in (written := capsys.readouterr().out)
    assert r"'\x1b]0;owned\x07'" in written
