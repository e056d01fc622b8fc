"""A second plane joins from its own folder, by its name alone: here the calls of `calls/`."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.util import find_spec, module_from_spec
from pathlib import Path

import click
import pytest
import trio
from click.testing import CliRunner
from starlette.applications import Starlette
from starlette.routing import Route

from drld import config, planes, reload
from drld.burst import automatic_burst
from drld.capture.spec import Match, PacketsSpec
from drld.cli.fleet import _limit_row, _tables
from drld.cli.limit import _keys, _table
from drld.config import reference
from drld.config.schema import LimitTable
from drld.control.app import make_app, make_public_app
from drld.control.metrics import samples
from drld.control.turns import Turns
from drld.daemon.notify import Manager
from drld.daemon.running_plane import PlaneContext, running_planes
from drld.doctor.finding import Examined, Level
from drld.errors import ConfigError
from drld.gossip.health.config_digest import ALL, ConfigDigest
from drld.gossip.wire.keyring import KeyRing
from drld.model import NS_PER_S
from drld.police import policer
from drld.police.direction import Direction
from drld.shared_settings import shared_settings
from drld.spec import OnFailure
from drld.units import BYTES

from ...control_fake import FakeDaemon, client, served
from ...factories import with_policy
from ...registry_factories import KEYS, events, known, limit
from .calls.spec import CALLS, ITEM, Calls, CallsSpec, Excess
from .good import GOOD, problems

CALL_LIMIT = """
[[limit]]
id = 2
name = "logins"
rate = "50/s"
match = { service = "login" }
"""
BOTH = GOOD + CALL_LIMIT


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = f"{__package__}.calls"
    monkeypatch.setattr(planes, "PLANES", ("drld.capture", calls))


def with_match(match: str) -> str:
    assert '{ service = "login" }' in BOTH
    return BOTH.replace('{ service = "login" }', match)


def test_a_limit_of_each_plane_is_read() -> None:
    packets, calls = config.parse(BOTH, "f").limits
    assert packets == config.parse(GOOD, "f").limits[0]
    assert packets.match == Match("eth1", Direction.OUT)
    assert packets.policy.unit is BYTES
    assert calls.match == Calls("login")
    assert calls.policy.unit is CALLS
    assert calls.policy.rate == 50 * ITEM
    assert calls.policy.burst == automatic_burst(50 * ITEM, CALLS)
    assert calls.on_failure is OnFailure.DEFAULT
    assert (packets.policy.excess, calls.policy.excess) == (policer.Excess.DROP, Excess.REFUSE)
    assert config.parse(BOTH + 'excess = "wait"\n', "f").limits[1].policy.excess is Excess.WAIT


@pytest.mark.parametrize(
    ("text", "asked"), [("", CallsSpec()), ("[calls]\nport = 81\n", CallsSpec(port=81))]
)
def test_the_table_of_a_plane_is_read(text: str, asked: CallsSpec) -> None:
    spec = config.parse(BOTH + text, "f")
    assert spec.plane(CallsSpec) == asked
    assert spec.plane(PacketsSpec) == config.parse(GOOD, "f").plane(PacketsSpec)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (BOTH + "[calls]\nxyz = 1\n", "calls.xyz: unknown key; known here: port, most"),
        (BOTH + "[calls]\nport = '81'\n", "calls.port: must be an integer (got '81')"),
        (BOTH + "[calls]\nmost = 0\n", "calls.most: must be at least 1 (got 0)"),
        (BOTH + "[cals]\n", 'cals: unknown key; did you mean "calls"?'),
        (
            BOTH.replace("50/s", "50mbit"),
            "limit[1].rate: must be a rate such as \"50/s\" (got '50mbit')",
        ),
        (
            BOTH.replace("10mbit", "50/s"),
            "limit[0].rate: must be a rate such as \"10mbit\" (got '50/s')",
        ),
        (
            BOTH + 'on_failure = "share"\n',
            "limit[1].on_failure: must be 'open' or 'closed' (got 'share')",
        ),
        (BOTH + 'excess = "mark"\n', "limit[1].excess: must be 'refuse' or 'wait' (got 'mark')"),
        (
            GOOD + 'excess = "wait"\n' + CALL_LIMIT,
            "limit[0].excess: must be 'drop' or 'mark' (got 'wait')",
        ),
        (
            BOTH + 'flow = "source"\n',
            f"limit[1].flow: unknown key; known here: {', '.join(LimitTable.model_fields)}",
        ),
        (
            with_match('{ service = "login", caler = "shop" }'),
            'limit[1].match.caler: unknown key; did you mean "caller"?',
        ),
        (with_match('{ caller = "shop" }'), "limit[1].match.service: is required"),
        (
            with_match('{ service = "shop", caller = "shop" }'),
            "limit[1].match.caller: must be another service (got 'shop')",
        ),
        (
            BOTH + CALL_LIMIT.replace("2", "3").replace("logins", "more"),
            "limit[2].match.service: must be no service of limit[1] (got 'login')",
        ),
    ],
)
def test_mistakes_in_the_tables_of_a_plane_are_named(text: str, problem: str) -> None:
    assert problems(text) == [f"drld.toml: {problem}"]


KINDS = (
    "limit[1].match: must have the keys of packets (in, out, source, destination, protocol, "
    "source_port, destination_port, mark) or of calls (service, caller)"
)


@pytest.mark.parametrize(
    ("match", "problem"),
    [
        ("{ topic = 'news', 'per \\n' = 1 }", f"{KINDS} (got topic, 'per \\\\n')"),
        ("{ }", f"{KINDS} (got none)"),
        ("{ service = 'login', out = 'eth1' }", f"{KINDS} (got service, out)"),
        ("'login'", "limit[1].match: must be a table (got 'login')"),
    ],
)
def test_a_match_that_fits_no_plane(match: str, problem: str) -> None:
    assert problems(with_match(match)) == [f"drld.toml: {problem}"]


def test_a_limit_without_a_match() -> None:
    text = BOTH.replace('match = { service = "login" }', "")
    assert problems(text) == ["drld.toml: limit[1].match: is required"]


def test_each_plane_sees_its_own_limits() -> None:
    """Two limits that would share a rule of nfqueue, if both were of packets."""
    text = BOTH + "on_failure = 'open'\n[calls]\nmost = 1\n[packets]\ndatapath = 'nfqueue'\n"
    assert len(config.parse(text, "f").limits) == 2


def test_limits_of_each_plane_may_come_from_the_registry() -> None:
    registry = known(interfaces={"uplink": "eth7", "login": "eth8"})
    table = {"id": 2, "name": "logins", "rate": "50/s", "match": {"service": "login"}}
    values = {KEYS.limit(1): limit(1), KEYS.limit(2): json.dumps(table).encode()}
    registry.resync(events({**values}, 5), 5)
    assert _limit_row(registry, 1) == (
        *("limit1", "fair", "enforce", "out eth7", "1", "10.0 Mbit/s", "75.0 kB"),
    )
    assert _limit_row(registry, 2) == (
        *("logins", "fair", "enforce", "login by anyone", "2", "50 calls/s", "12.5 calls (auto)"),
    )
    assert _tables(registry, [2]) == [table]
    registry.apply(events({KEYS.limit(2): json.dumps(table | {"match": {}}).encode()}, 6))
    (problem,) = registry.problems.values()
    assert problem.startswith(f"etcd {KEYS.limit(2)}: match: must have the keys of packets (in, ")


def settings(text: str) -> dict[int, bytes]:
    spec = config.parse(text, "f")
    return shared_settings([limit.policy for limit in spec.limits], spec.gossip)


def digest(text: str) -> int:
    return ConfigDigest(settings(text), NS_PER_S).digest(ALL)


def test_each_plane_adds_its_settings_to_its_limits_digests() -> None:
    assert settings(BOTH)[1] == settings(GOOD)[1]
    assert settings(BOTH)[2] == b'[1,{"rate":{"calls":50000000}}]'
    bytes_alike = BOTH.replace('"50/s"', '"50MB/s"').replace("{ service =", "{ out =")
    for other in (
        bytes_alike,
        BOTH.replace("50/s", "51/s"),
        with_match('{ service = "login", caller = "shop" }'),
    ):
        assert digest(other) != digest(BOTH)
    # What is this host's alone.
    assert digest(with_match('{ service = "login2" }')) == digest(BOTH)


def test_a_reload_keeps_the_limits_of_each_plane_and_what_only_a_restart_can_change() -> None:
    def spec(calls: str, packets: str = "") -> str:
        return BOTH + f"[calls]\n{calls}\n[packets]\n{packets}\n"

    old = config.parse(spec("port = 80"), "f")
    new = config.parse(spec("port = 80\nmost = 7").replace("50/s", "51/s"), "f")
    assert new.limits != old.limits
    reload.check(old, new)
    for before, after in zip(old.limits, new.limits, strict=True):
        assert reload.knowledge_stays(before.policy, after.policy)
    with pytest.raises(ConfigError) as refused:
        reload.check(old, config.parse(spec("port = 81\nmost = 7", "queue = 3"), "f"))
    assert refused.value.problems == [
        "packets.queue: cannot change from the default to 3 while the daemon runs: restart it",
        "calls.port: cannot change from 80 to 81 while the daemon runs: restart it",
    ]


def test_remarks_on_its_limits_are_its_own() -> None:
    """A burst of one call is no matter of TCP."""
    spec = config.parse(BOTH, "f")
    packets, calls = (with_policy(limit, burst=limit.policy.unit.item) for limit in spec.limits)
    of_packets, of_calls = config.remarks(replace(spec, limits=(packets, calls)))
    assert of_packets.startswith("limit.burst: below 0.25 s of the rate: a: a lone TCP flow")
    assert of_calls == "calls to login: from anyone"


def test_the_options_of_a_plane_describe_a_new_limit() -> None:
    @click.command()
    @_keys
    def add(**options: str | None) -> None:
        click.echo(json.dumps(_table(options)))

    arguments = ["--service", "login", "--caller", "shop"]
    result = CliRunner().invoke(add, arguments)
    assert json.loads(result.output) == {"match": {"service": "login", "caller": "shop"}}
    assert "--out" in CliRunner().invoke(add, ["--help"]).output


def test_drlctl_has_the_commands_of_a_plane() -> None:
    """Commands are registered at the import; this test imports drlctl once more."""
    spec = find_spec("drld.cli")
    assert spec is not None
    assert spec.loader is not None
    drlctl = module_from_spec(spec)
    spec.loader.exec_module(drlctl)
    assert CliRunner().invoke(drlctl.main, ["calls"]).output == "none\n"


def test_the_doctor_has_the_findings_of_a_plane() -> None:
    """Packets have none without a configuration."""
    found = [each for plane in planes.registered("doctor") for each in plane.findings(Examined())]
    assert [(each.check, each.level) for each in found] == [("calls", Level.UNSEEN)]


def test_the_control_api_has_the_paths_of_a_plane() -> None:
    app, public = make_app(FakeDaemon(), Turns()), make_public_app(FakeDaemon(), Turns())
    for made in (app, public):
        assert isinstance(made, Starlette)
        assert "/v1/calls" in [it.path for it in made.routes if isinstance(it, Route)]
    assert "calls" in {it.family.name for it in samples(FakeDaemon())}


def test_a_daemon_runs_it() -> None:
    context = PlaneContext(
        Path("f"),
        clock=lambda: 0,
        files=lambda: config.parse(BOTH, "f"),
        ring=KeyRing,
        stopping=trio.Event(),
        turns=Turns(),
        manager=Manager(),
    )
    packets, calls = running_planes(context, config.parse(BOTH, "f"))
    assert (packets.target, calls.target) == (Match, Calls)
    (packets,) = running_planes(context, config.parse(BOTH + "[calls]\nport = 81\n", "f"))
    assert packets.target is Match


async def test_the_page_has_the_charts_of_a_plane(tmp_path: Path) -> None:
    async with served(FakeDaemon(), tmp_path / "sock"), client(tmp_path / "sock") as api:
        _, calls = (await api.get("/v1/panels")).json()
    assert calls == {
        "items": CALLS.name,
        "panels": [
            {
                "title": "Refused",
                "counts": "unit",
                "series": [{"key": "dropped_bytes", "label": "refused", "tone": "dropped"}],
            }
        ],
        "faults": {"lost": "callers were cut off"},
    }


def test_the_reference_has_the_tables_of_a_plane() -> None:
    text = reference.reference()
    for part in (
        "## `[calls]`: how calls are answered\n",
        "### Limits on calls\n",
        "| `rate` | rate, `1/s` to `1000/s` | required | Calls that all limiters together",
        "### `match`: which calls fall under a limit\n",
    ):
        assert part in text
