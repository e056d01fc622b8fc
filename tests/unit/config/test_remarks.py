"""What is allowed, and better otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from drld import config
from drld.daemon import main
from tests.unit.config.good import GOOD, LIMIT

SLOW = GOOD + LIMIT.replace("id = 1", "id = 2").replace('"a"', '"b"\ninterval = "500ms"')
REMARK = (
    "limit.interval: longer than gossip.interval, 50ms: b (500ms): news of the others waits for so "
    "long, and until it is taken in a fleet that is cut apart may exceed the limit "
    "(docs/conservative-rule.md)"
)


def test_limits_that_are_estimated_more_seldom_than_gossiped() -> None:
    assert config.remarks(config.parse(GOOD, "f")) == []
    assert config.remarks(config.parse(SLOW, "f")) == [REMARK]
    as_often = '[gossip]\ninterval = "500ms"\n'
    assert config.remarks(config.parse(SLOW + as_often, "f")) == []


def test_one_that_is_alone_has_no_others_to_hear_of() -> None:
    alone = SLOW.replace('[[peer]]\nname = "lim2"\naddress = "10.0.0.2:7946"\n', "")
    assert config.remarks(config.parse(alone, "f")) == []


def test_check_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "drld.toml"
    file.write_text(SLOW)
    assert main(["--config", str(file), "--check"]) == 0
    shown = capsys.readouterr()
    assert shown.out == f"{file}: ok (limits: 2, peers: 1)\n"
    assert shown.err == f"{file}: {REMARK}\n"
    file.write_text(GOOD.replace('"10mbit"', '"10mbot"'))
    assert main(["--config", str(file), "--check"]) == 2
    assert capsys.readouterr().err.startswith(f"{file}: limit[0].rate: '10mbot': ")
