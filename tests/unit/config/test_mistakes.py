"""Each mistake in a configuration becomes one line that says what to do."""

from __future__ import annotations

import pytest

from drld import config
from tests.unit.config.good import (
    GOOD,
    LIMIT,
    assert_one_line,
    problems,
    problems_with,
    with_limit_key,
)
from tests.unit.config.mistakes import BESIDE, KINDS, OTHERS, VALUES


@pytest.mark.parametrize(
    ("path", "allowed", "written"),
    [
        pytest.param(path, allowed, value, id=f"{path} = {value}")
        for path, values in VALUES.items()
        for allowed, wrong in values.items()
        for value in wrong
    ],
)
def test_an_impossible_value_is_one_line(path: str, allowed: str, written: str) -> None:
    beside = BESIDE.get(path.rpartition(".")[0], "")
    line = f"drld.toml: {path}: must be {allowed} (got {written})"
    assert problems_with(path, written, beside) == [line]


@pytest.mark.parametrize(("text", "line"), OTHERS, ids=[line for _, line in OTHERS])
def test_a_mistake_is_one_line(text: str, line: str) -> None:
    assert_one_line(text, line)


def test_no_limits_at_all_must_be_meant() -> None:
    assert problems(GOOD.replace(LIMIT, "")) == [
        "drld.toml: limit: is required: the file must have a [[limit]] table, or limit = [] for "
        "none"
    ]
    text = "limit = []\n" + GOOD.replace(LIMIT, "")
    assert config.parse(text, "f").limits == ()


@pytest.mark.parametrize("text", ["", " \n", "# nothing\n"])
def test_an_empty_file_lacks_two_tables(text: str) -> None:
    limiter, limit = problems(text)
    assert limiter.startswith("drld.toml: limiter: is required")
    assert limit.startswith("drld.toml: limit: is required")


def test_a_limit_of_no_plane_is_checked_nonetheless() -> None:
    text = GOOD.replace("id = 1", "id = 0").replace('{ out = "eth1" }', "{}")
    assert problems(text.replace('name = "a"', "ewma = 2")) == [
        f"drld.toml: {KINDS} (got none)",
        "drld.toml: limit[0].id: must be at least 1 (got 0)",
        "drld.toml: limit[0].name: is required",
        "drld.toml: limit[0].ewma: must be at most 0.999 (got 2)",
    ]


def test_all_mistakes_are_reported_at_once() -> None:
    text = """
        [limiter]
        name = "lim1"
        listen = "0.0.0.0:7946"
        [[peer]]
        name = "lim1"
        address = "10.0.0.2"
        [gossip]
        interval = "5ms"
        [[limit]]
        id = 1
        name = "a"
        rate = "10mbps"
        burst = "1B"
        allocator = { name = "fps", growth = 0.5 }
        match = { in = "eth0" }
        [[limit]]
        id = 2
        name = "b"
        rate = "1mbit"
        burst = "15kB"
        match = { in = "eth0", protocol = "gre", source_port = 1 }
        [[limit]]
        id = 2
        name = "c"
        rate = "1mbit"
        burst = "15kB"
        match = { protocol = "tcp" }
    """
    assert [line.split(":")[1].strip() for line in problems(text)] == [
        "limiter.listen",
        "gossip.interval",
        "peer[0].address",
        "limit[0].rate",
        "limit[0].burst",
        "limit[2].id",
        "limit[0].allocator.growth",
        "limit[1].match.source_port",
        "limit[2].match",
    ]


def test_errors_about_a_large_fleet_stay_one_line() -> None:
    peers = "".join(
        f'[[peer]]\nname = "lim{n}"\naddress = "10.1.{n // 250}.{n % 250}:7946"\n'
        for n in range(3, 1000)
    )
    text = with_limit_key("shares = { stranger = 1 }").replace("[[peer]]", peers + "[[peer]]", 1)
    stranger, missing = problems(text)
    said = "stranger is not a limiter of this fleet; known here: lim1"
    assert stranger.startswith(f"drld.toml: limit[0].shares.stranger: {said}")
    assert missing.startswith(
        "drld.toml: limit[0].shares: must name every limiter of the fleet (missing: lim1, lim10, "
    )
    assert missing.endswith(" and 923 more)")
    assert max(map(len, (stranger, missing))) < 1000
