"""Limits on requests in a configuration: what is read, and what is said of mistakes."""

from __future__ import annotations

import os
import socket
import ssl
from pathlib import Path

import pytest

from drld import config, reload
from drld.cli.client import find_socket
from drld.config.certificate import expiry
from drld.errors import ConfigError
from drld.limit_values import limit_values
from drld.requests.quantity import parse_rate, quota
from drld.requests.spec import ITEM, REQUESTS, Excess, RequestMatch, RequestsSpec
from drld.shared_settings import shared_settings
from drld.spec import LimiterSpec, OnFailure
from drld.units import BYTES, QuantityError
from tests.certificates import authority, signed

from ..config.good import problems
from .good import GOOD, changed

EXAMPLE = Path(__file__).resolve().parents[3] / "docs" / "requests.example.toml"
RATE = 'must be a rate such as "100/s", from "9/d" to "10000000/s", per s, min, h or d'
BURST = 'must be "auto", or a number of requests, from 1 to 1000000'


def test_a_limit_on_requests_is_read() -> None:
    spec = config.parse(GOOD, "f")
    (limit,) = spec.limits
    assert limit.match == RequestMatch("api")
    assert limit.policy.unit is REQUESTS
    assert (limit.policy.rate, limit.policy.burst) == (100 * ITEM, 200 * ITEM)
    assert limit.policy.excess is Excess.REFUSE
    assert limit.on_failure is OnFailure.DEFAULT
    assert spec.plane(RequestsSpec).listen == (("127.0.0.1", 8099),)
    assert limit_values(limit)["rate"] == "100 requests/s"


def test_the_unit_may_be_left_out_and_burst_may_be_automatic() -> None:
    text = changed(('unit = "requests"\n', ""), ("burst = 200", 'burst = "auto"'))
    (limit,) = config.parse(text, "f").limits
    assert limit.policy.unit is REQUESTS
    assert limit.policy.burst == 25 * ITEM
    few = text.replace("100/s", "10/min")
    assert config.parse(few, "f").limits[0].policy.burst == ITEM


def test_a_limit_that_spans_planes_counts_bytes() -> None:
    text = changed(('"requests"', '"bytes"'), ('"100/s"', '"10mbit"'), ("200", '"75kB"'))
    (limit,) = config.parse(text, "f").limits
    assert limit.policy.unit is BYTES
    assert (limit.policy.rate, limit.policy.burst) == (1_250_000, 75_000)
    # The other limiter's limit is on packets, and the fleet agrees on it.
    plain = text.replace('{ namespace = "api" }', '{ out = "eth0" }').replace('unit = "bytes"', "")
    packets = config.parse(plain, "f").limits[0]
    gossip = config.parse(text, "f").gossip
    agreed = [shared_settings([it.policy], gossip) for it in (limit, packets)]
    assert agreed[0] == agreed[1]
    (of_requests,) = config.parse(GOOD, "f").limits
    assert shared_settings([of_requests.policy], gossip) != agreed[0]


@pytest.mark.parametrize(
    "written", ['{ plan = "free", region = "eu" }', '"region=eu,plan=free"'], ids=["table", "text"]
)
def test_the_pairs_that_a_descriptor_must_have(written: str) -> None:
    text = changed(('"api" }', f'"api", where = {written} }}'))
    match = config.parse(text, "f").limits[0].match
    assert match == RequestMatch("api", {"plan": "free", "region": "eu"})
    assert "plan=free" in str(match)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"100/s"', '"100"', f"limit[0].rate: {RATE} (got '100')"),
        ('"100/s"', '"10mbit"', f"limit[0].rate: {RATE} (got '10mbit')"),
        ('"100/s"', '"8/d"', f"limit[0].rate: {RATE} (got '8/d')"),
        ('"100/s"', '"10000001/s"', f"limit[0].rate: {RATE} (got '10000001/s')"),
        ('"100/s"', "100", f"limit[0].rate: {RATE} (got 100)"),
        ("burst = 200", "burst = 0", f"limit[0].burst: {BURST} (got 0)"),
        ("burst = 200", "burst = 1000001", f"limit[0].burst: {BURST} (got 1000001)"),
        ("burst = 200", 'burst = "75kB"', f"limit[0].burst: {BURST} (got '75kB')"),
        ("burst = 200", "burst = true", f"limit[0].burst: {BURST} (got true)"),
        (
            '"requests"',
            '"calls"',
            'limit[0].unit: must be "requests" or "bytes" (got \'calls\')',
        ),
        (
            '"api" }',
            '"api", where = { cost = "1" } }',
            "limit[0].match.where: must be a descriptor: cost: is no name for a descriptor, as a "
            "query uses it (got a table)",
        ),
        (
            '"api" }',
            '"api", where = { plan = 1 } }',
            "limit[0].match.where.plan: must be a text (got 1)",
        ),
        (
            '"api" }',
            '"api", where = 1 }',
            'limit[0].match.where: must be a table of texts such as { plan = "free" } (got 1)',
        ),
        (
            '[requests]\nlisten = "127.0.0.1:8099"\n',
            "",
            "requests.listen: is required: limit[0] is about requests",
        ),
        (
            'listen = "127.0.0.1:8099"',
            'listen = ["/run/a.sock", "/run/a.sock"]',
            "requests.listen[1]: must be unique in its array (got '/run/a.sock')",
        ),
        (
            'listen = "127.0.0.1:8099"',
            'listen = "127.0.0.1:8099"\ntrusted_proxies = ["10.0.0.1/24"]',
            "requests.trusted_proxies[0]: must be an address, or a prefix without host bits, such "
            'as "10.0.0.1" or "fd00::/64" (got \'10.0.0.1/24\')',
        ),
        (
            '"100/s"',
            '"100/s"\nexcess = "drop"',
            "limit[0].excess: must be 'refuse' (got 'drop')",
        ),
    ],
)
def test_mistakes_are_named(old: str, new: str, problem: str) -> None:
    assert problems(changed((old, new))) == [f"drld.toml: {problem}"]


def test_the_example_is_good_and_no_remark_is_made_on_it() -> None:
    spec = config.load(EXAMPLE)
    assert [limit.match for limit in spec.limits] == [
        RequestMatch("api"),
        RequestMatch("api", {"plan": "free"}),
        RequestMatch("api", {}, ("user",)),
    ]
    assert config.remarks(spec) == []


def test_settings_with_a_better_alternative_draw_remarks() -> None:
    text = changed(("127.0.0.1:8099", "192.0.2.1:8099"), ("burst = 200", "burst = 1"))
    peer = '[[peer]]\nname = "lim2"\naddress = "127.0.0.1:7948"\n'
    assert config.remarks(config.parse(text + peer, "f")) == [
        "requests.listen: 192.0.2.1:8099: any host that reaches it may use up the limits, and "
        "nothing is encrypted: let only your proxies reach it, or set requests.client_ca "
        "(docs/requests.md)",
        "limit.burst: less than one request for each limiter: api: their parts of the burst are "
        "too small to be even (docs/requests.md)",
    ]


def test_addresses_are_fixed_until_a_restart() -> None:
    def listening(value: str) -> LimiterSpec:
        return config.parse(changed(('"127.0.0.1:8099"', value)), "f")

    both = listening('["127.0.0.1:8099", "/run/drld/requests.sock"]')
    assert both.plane(RequestsSpec).listen == (("127.0.0.1", 8099), "/run/drld/requests.sock")
    with pytest.raises(ConfigError) as refused:
        reload.check(config.parse(GOOD, "f"), both)
    assert refused.value.problems == [
        "requests.listen: cannot change from ['127.0.0.1:8099'] to ['127.0.0.1:8099', "
        "'/run/drld/requests.sock'] while the daemon runs: restart it"
    ]


@pytest.mark.parametrize(
    ("text", "rate", "written"),
    [
        ("100/s", 100 * ITEM, (100, 1)),
        ("1.5/s", 1_500_000, (90, 60)),
        ("100/min", 1_666_666, (100, 60)),
        ("1000/h", 277_777, (1000, 3600)),
        ("9/d", 104, (9, 86_400)),
        ("10000000/s", 10_000_000 * ITEM, (10_000_000, 1)),
    ],
)
def test_rates_and_quotas_are_read_and_written(
    text: str, rate: int, written: tuple[int, int]
) -> None:
    assert parse_rate(text) == rate
    assert quota(rate) == written


@pytest.mark.parametrize("text", ["", "1", "/s", "1./s", ".5/s", "-1/s", "1e3/s", "1/m", "1/s/s"])
def test_a_bad_rate_is_refused(text: str) -> None:
    with pytest.raises(QuantityError):
        parse_rate(text)


def test_an_ordinary_user_s_control_socket_is_in_a_directory_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def control() -> str:
        return config.parse(GOOD, "f").control

    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("drld.cli.client.RUN_DIRECTORY", tmp_path / "none")
    monkeypatch.setattr(os, "access", lambda *_: True)
    assert control() == "/run/drld/lim1.sock"
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert control() == f"{tmp_path}/drld/lim1.sock"
    # There drlctl finds it.
    (tmp_path / "drld").mkdir()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(control())
        assert find_socket(None) == Path(control())
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert control() == "/run/drld/lim1.sock"


def test_files_for_tls_are_read_with_the_configuration_and_none_is_a_reason_to_restart(
    tmp_path: Path,
) -> None:
    """The checks of the files themselves are those of [http]."""
    ca = authority(tmp_path, "ca")
    own = signed(tmp_path, "server", ca, "serverAuth")
    lines = [f'certificate = "{own.cert}"', f'key = "{own.key}"', f'client_ca = "{ca.cert}"']

    def parsed(*lines: str) -> LimiterSpec:
        public = ("127.0.0.1:8099", "192.0.2.1:8099")
        text = changed(("[requests]", "\n".join(["[requests]", *lines])), public)
        return config.parse(text, "f")

    plain, served, mutual = (parsed(*lines[:count]) for count in (0, 2, 3))
    assert plain.plane(RequestsSpec).tls is None
    found = mutual.plane(RequestsSpec).tls
    assert found is not None
    assert found.context.verify_mode is ssl.CERT_REQUIRED
    assert found.expires == expiry(own.cert.read_text())
    reload.check(plain, mutual)
    # Only clients with a certificate may ask, so there is no remark.
    assert config.remarks(mutual) == []
    (line,) = config.remarks(served)
    assert "may use up the limits: let only your proxies reach it, or set" in line
    with pytest.raises(ConfigError) as caught:
        parsed(lines[0], lines[2])
    assert caught.value.problems == ["f: requests.key: is required with requests.certificate"]
    with pytest.raises(ConfigError) as caught:
        parsed(lines[0], f'key = "{ca.key}"')
    assert caught.value.problems == [
        f"f: requests.key: {ca.key}: must be the key of requests.certificate"
    ]
