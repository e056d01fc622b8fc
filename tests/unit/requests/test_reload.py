"""A reload of limits on requests, through the engine: levels stay in tokens."""

from __future__ import annotations

from random import Random

import pytest

from drld import config
from drld.engine import Engine
from drld.model import NS_PER_S
from drld.planes.plane import Plane
from drld.requests.answer import body
from drld.requests.datapath import RequestDatapath
from drld.requests.model import Request
from drld.requests.spec import RequestMatch
from tests.engine_fakes import FakeTransport

from ...factories import TICK_NS
from .good import changed
from .keyed_fleet import KEYED

API = Request("api", {})


def running() -> tuple[Engine, RequestDatapath]:
    datapath = RequestDatapath(Random(1), b"secret")
    engine = Engine(
        config.parse(changed(), "f"), [Plane(RequestMatch, datapath)], FakeTransport(), Random(1)
    )
    engine.start(0)
    return engine, datapath


def left(datapath: RequestDatapath, now_ns: int) -> float | None:
    """The level that a peek finds in the bucket, requests."""
    (limit,) = body(datapath.decide(API._replace(cost=0), now_ns))["limits"]
    return limit["remaining"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (('rate = "100/s"', 'rate = "6000/h"'), 70),
        (('rate = "100/s"', 'rate = "5000/s"'), 70),
        (("burst = 200", "burst = 1000"), 70),
        (("burst = 200", 'burst = 200\nmode = "shadow"'), 70),
        (('name = "api"\nunit', 'name = "renamed"\nunit'), 70),
        (("burst = 200", 'burst = 200\nallocator = "static"'), 70),
        (("id = 1", "id = 2"), 200),
    ],
)
def test_a_level_stays_in_tokens(change: tuple[str, str], expected: float) -> None:
    engine, datapath = running()
    assert datapath.decide(API._replace(cost=130), 0).admitted
    engine.reconfigure(config.parse(changed(change), "f"), 0)
    assert left(datapath, 0) == pytest.approx(expected)


def test_a_smaller_bucket_holds_no_more_than_it_can_from_the_next_tick_on() -> None:
    engine, datapath = running()
    engine.reconfigure(config.parse(changed(("burst = 200", "burst = 30")), "f"), 0)
    engine.tick(TICK_NS)
    assert left(datapath, TICK_NS) == 30


def test_a_key_has_the_rate_of_each_reload_in_its_time() -> None:
    datapath = RequestDatapath(Random(1), b"secret")
    at = [KEYED, KEYED.replace("1/min", "1/s"), KEYED]
    specs = [config.parse(text, "f") for text in at]
    engine = Engine(specs[0], [Plane(RequestMatch, datapath)], FakeTransport(), Random(1))
    engine.start(0)
    alice = Request("api", {"user": "alice"})
    assert datapath.decide(alice._replace(cost=20), 0).admitted
    engine.reconfigure(specs[1], 0)
    engine.reconfigure(specs[2], 10 * NS_PER_S)
    # Ten tokens came at one a second, and none since.
    refused = datapath.decide(alice._replace(cost=11), 10 * NS_PER_S)
    assert refused.retry_ns == 60 * NS_PER_S
    assert datapath.decide(alice._replace(cost=10), 10 * NS_PER_S).admitted


def test_a_debt_is_paid_at_the_new_rate() -> None:
    engine, datapath = running()
    datapath.decide(API._replace(cost=1200, charge=True), 0)
    refused = datapath.decide(API, 0)
    assert refused.retry_ns == pytest.approx(10.01 * NS_PER_S)
    faster = changed(('rate = "100/s"', 'rate = "1000/s"'))
    engine.reconfigure(config.parse(faster, "f"), 0)
    # The new rate is programmed by the first tick.
    engine.tick(TICK_NS)
    now_ns = TICK_NS
    while not datapath.decide(API, now_ns).admitted:
        now_ns += TICK_NS
        engine.tick(now_ns)
    assert now_ns == pytest.approx(NS_PER_S, abs=2 * TICK_NS)


@pytest.mark.parametrize(
    ("written", "told"),
    [("", "share"), ('on_failure = "share"', "share"), ('on_failure = "open"', "open"),
     ('on_failure = "closed"', "closed")],
)  # fmt: skip
def test_answers_say_what_to_do_while_no_limiter_answers(written: str, told: str) -> None:
    """A reload changes it, as any other key."""
    engine, datapath = running()
    engine.reconfigure(config.parse(changed(("burst = 200", f"burst = 200\n{written}")), "f"), 0)
    for request in (API, API._replace(cost=10_000), API._replace(charge=True)):
        limits = body(datapath.decide(request, 0))["limits"]
        assert [limit["on_failure"] for limit in limits] in ([told], [])
    assert body(datapath.decide(API, 0))["limits"][0]["on_failure"] == told
