"""`drlctl explain` and `drlctl replay` of requests and of logs of requests."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from drld import config
from drld.daemon.limit_report import explainer
from drld.engine import Engine
from drld.errors import InputError
from drld.planes.plane import Plane
from drld.requests.datapath import RequestDatapath
from drld.requests.model import Request
from drld.requests.registered.explain import read
from drld.requests.spec import RequestMatch
from tests.control_fake import FakeDaemon, served
from tests.engine_fakes import FakeTransport
from tests.unit.cli.drlctl import invoke, lines, output

from .good import GOOD, changed

FILE = (
    GOOD
    + """
[[limit]]
id = 2
name = "free"
unit = "requests"
rate = "60/min"
burst = 5
match = { namespace = "api", where = { plan = "free" } }

[[limit]]
id = 3
name = "watched"
unit = "requests"
rate = "60/min"
burst = 1
mode = "shadow"
match = { namespace = "api" }

[[limit]]
id = 4
name = "volume"
unit = "bytes"
rate = "8mbit"
burst = "20kB"
match = { namespace = "api" }
"""
)
HELD = "the bucket holds {} requests, and the request needs 3 requests"
ONE = "the bucket holds 1 request, and the request needs 3 requests"
FREE = Request("api", {"plan": "free"}, caller="alice")


async def test_limits_are_listed_in_the_order_of_the_configuration(tmp_path: Path) -> None:
    daemon, control = FakeDaemon(), tmp_path / "sock"
    datapath = RequestDatapath(Random(1), b"secret")
    running = Engine(
        config.parse(FILE, "f"), [Plane(RequestMatch, datapath)], FakeTransport(), Random(1)
    )
    running.start(0)
    daemon.explainer = partial(explainer, running, lambda: 0)  # type: ignore[method-assign]  # the test's
    datapath.decide(FREE._replace(cost=4), 0)
    before = [datapath.copy_of(limit_id).bucket.tokens for limit_id in (1, 2, 3, 4)]
    async with served(daemon, control):
        words = "namespace=api", "plan=free", "cost=3", "caller=alice"
        said = (await output(control, "explain", *words)).splitlines()
    assert said[0] == "namespace=api plan=free cost=3 caller=alice"
    assert said[-1] == "now: refused by free"
    rows = [re.split("  +", line)[1:5] for line in said[2:-1]]
    later = ["shadow", "not checked", "not checked: free refuses the request", "-"]
    assert rows == [
        ["enforce", "admitted", HELD.format("196"), "196 requests"],
        ["enforce", "refused", f"{ONE}; it may pass in 2.00 s", "1 request"],
        later,
        ["enforce", *later[1:]],
    ]
    assert [datapath.copy_of(limit_id).bucket.tokens for limit_id in (1, 2, 3, 4)] == before


LONG = "bigco" * 20
"""A value that is replaced by its digest."""
KEYED = changed(
    ("id = 1", "id = 7"),
    ('name = "api"\nunit', 'name = "users"\nunit'),
    ('rate = "100/s"', 'rate = "60/min"'),
    (
        "burst = 200",
        'burst = 3\noverrides = [{ user = "bigco", burst = 9 }, '
        f'{{ user = "{LONG}", burst = 9 }}]',
    ),
    ('match = { namespace = "api" }', 'match = { namespace = "api", per = ["user"] }'),
)


async def test_a_bucket_of_a_key_is_explained(tmp_path: Path) -> None:
    daemon, control = FakeDaemon(), tmp_path / "sock"
    datapath = RequestDatapath(Random(1), b"secret")
    running = Engine(
        config.parse(KEYED, "f"), [Plane(RequestMatch, datapath)], FakeTransport(), Random(1)
    )
    running.start(0)
    daemon.explainer = partial(explainer, running, lambda: 0)  # type: ignore[method-assign]  # the test's
    datapath.decide(Request("api", {"user": "alice"}, 3), 0)
    async with served(daemon, control):

        async def told(*words: str) -> tuple[str, str]:
            *_, line, last = (
                await output(control, "explain", "namespace=api", *words)
            ).splitlines()
            return re.split("  +", line)[3], last

        reason, last = await told("user=alice")
        held = "the bucket holds 0 requests, and the request needs 1 request"
        assert (reason, last) == (f"{held}; it may pass in 1.00 s", "now: refused by users")
        assert (await told("user=bob", "cost=3"))[1] == "now: admitted"
        assert (await told("user=bob", "cost=4"))[1] == "now: refused by users"
        for user in ("bigco", LONG):
            assert (await told(f"user={user}", "cost=9"))[1] == "now: admitted"
        assert (await told())[0] == "per: there is no user"


def test_a_log_is_replayed_under_buckets_of_keys(tmp_path: Path) -> None:
    asked = [
        {"t": at, "namespace": "api", "descriptor": {"user": user}, "caller": user}
        for at in range(5)
        for user in ("alice", "alice", "bob")
    ]
    (log := tmp_path / "requests.jsonl").write_text("\n".join(map(json.dumps, asked)))
    (file := tmp_path / "drld.toml").write_text(KEYED)
    found = json.loads(invoke("replay", log, "--config", file, "--json").stdout)
    (row,) = found["limits"]
    # A burst of three and one a second: alice asks for two a second, bob for one.
    passed = {flow["flow"]: flow["forwarded_bytes"] for flow in row["flows"]}
    assert passed == {"alice": 7, "bob": 5}
    assert (row["arrived_bytes"], row["dropped_bytes"]) == (15, 3)
    for user, burst in (("alice", 3), ("bigco", 9)):
        words = "namespace=api", f"user={user}", "cost=3"
        text = invoke("explain", "--config", file, *words).stdout
        assert f"the bucket holds {burst} requests" in text


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "drld.toml"
    path.write_text(FILE)
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """30 requests at once of one caller, then one a second of another."""
    lines = [
        {"t": 1000.0 + max(number - 29, 0), "namespace": "api", "descriptor": {"plan": "free"},
         "caller": "alice" if number < 30 else "bob", "bytes": 100}
        for number in range(40)
    ]  # fmt: skip
    path = tmp_path / "requests.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    return path


def explained(file: Path, *words: object) -> dict[str, Any]:
    result = invoke("explain", "--config", file, "--json", *words)
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert isinstance(found, dict)
    return found


def test_misses_modes_and_what_no_limit_refuses(file: Path) -> None:
    rows = explained(file, "namespace=api plan=paid")["limits"]
    assert rows[1]["misses"] == "where.plan: paid is not free"
    unnamed = explained(file, "namespace=api")["limits"]
    assert unnamed[1]["misses"] == "where.plan: there is no plan, and it must be free"
    assert rows[3]["reason"] == "the bucket holds 20.0 kB, and the request needs 1.50 kB"
    api, *_ = explained(file, "namespace=web&user=a%20b")["limits"]
    assert api["misses"] == "namespace: web is not api"
    shadow = explained(file, "namespace=api cost=3")
    assert shadow["verdict"] == "forward"
    assert "nothing enforces it" in shadow["limits"][2]["reason"]
    never = explained(file, "namespace=api plan=free cost=6")
    assert (never["verdict"], never["by"]) == ("drop", "free")
    least = explained(file, "namespace=api plan=free cost=6 at_least=5 caller=bob")
    assert (least["verdict"], least["remarks"]) == (
        "forward",
        ["It is tried at the least cost of use, at_least."],
    )
    charge = explained(file, "namespace=api plan=free cost=600 charge=true")
    assert charge["verdict"] == "forward"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("namespace=api cost", "cost: must be NAME=VALUE"),
        ("namespace=api cost=x", "cost: must be a whole number"),
        ("user=alice", "namespace: is required"),
        ("alice", "NAME=VALUE pairs"),
    ],
)
def test_a_text_that_is_no_request_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        read(text)


def test_a_written_request_reads_as_itself() -> None:
    for text in ("namespace=api", "namespace=api user=a bytes=9 caller=bob", "namespace=a&u=x+y"):
        assert str(read(str(read(text)))) == str(read(text)) == text


def test_a_log_is_explained_as_if_it_came_now(file: Path, log: Path) -> None:
    result = invoke("explain", "--config", file, log)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == lines("""
        VERDICT   LIMIT                       COUNT
        admitted  api, free, watched, volume     40
    """)


def test_a_log_is_replayed_at_its_own_times(file: Path, log: Path) -> None:
    result = invoke("replay", log, "--config", file)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "\n".join(result.stdout.splitlines()[:10]) + "\n" == lines("""
        40 requests in 10.0 s
        LIMIT    MODE               RATE         BURST  REQUESTS      ARRIVED     ADMITTED      REFUSED      MARKED        WORST SECOND
        api      enforce  100 requests/s  200 requests        40  40 requests  15 requests   0 requests  0 requests                   -
        free     enforce     1 request/s    5 requests        40  40 requests  15 requests  25 requests  0 requests  25 requests at 0 s
        watched  shadow      1 request/s     1 request        15  15 requests  11 requests   4 requests  0 requests   4 requests at 0 s
        volume   enforce     8.00 Mbit/s       20.0 kB        15      1.50 kB      1.50 kB          0 B         0 B                   -

        CALLERS OF api      ARRIVED     ADMITTED  SHARE
        bob             10 requests  10 requests  66.7%
        alice           30 requests   5 requests  33.3%
    """)  # noqa: E501 -- as wide as it is


def test_a_limit_by_hand_takes_all_namespaces(log: Path) -> None:
    more = '{"t": "1970-01-01T01:16:40+01:00", "namespace": "web", "cost": 9, "at_least": 1}\n'
    log.write_text(log.read_text() + more)
    result = invoke("replay", log, "--rate", "1/s", "--burst", "5", "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["trace"] == {"requests": 41, "back_in_time": 1, "s": 10.0, "damage": None}
    (row,) = found["limits"]
    assert (row["unit"], row["arrived_bytes"], row["forwarded_bytes"]) == ("requests", 41, 15)
    fair = invoke("replay", log, "--rate", "1/s", "--allocator", "fair", "--json")
    assert json.loads(fair.stdout)["limits"][0]["forwarded_packets"] >= 10


def test_a_replay_decides_as_the_datapath_does(tmp_path: Path) -> None:
    """The rest of a part, and charges, are in the counts."""
    asked = [
        {"t": 1, "namespace": "api", "cost": 4},
        {"t": 1, "namespace": "api", "cost": 9, "at_least": 1},
        {"t": 2, "namespace": "api", "cost": 7, "charge": True},
        {"t": 3, "namespace": "api"},
    ]
    path = tmp_path / "requests.jsonl"
    path.write_text("\n".join(map(json.dumps, asked)))
    found = json.loads(invoke("replay", path, "--rate", "1/s", "--burst", "6", "--json").stdout)
    (row,) = found["limits"]
    assert (row["arrived_bytes"], row["forwarded_bytes"], row["dropped_bytes"]) == (18, 13, 5)


def test_damage_is_named_by_its_line(log: Path, file: Path) -> None:
    log.write_text(log.read_text() + "{}\n")
    result = invoke("replay", log, "--config", file)
    assert "40 requests in 10.0 s" in result.stdout
    said = f"drlctl: {log}: line 41: must have the time t, in seconds or as a text of ISO 8601\n"
    assert (result.exit_code, result.stderr) == (1, said)
