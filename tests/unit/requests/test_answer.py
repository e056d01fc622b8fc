"""Answers as clients get them: the fields of HTTP, and a JSON object."""

from __future__ import annotations

from drld.model import NS_PER_S, Enforcement
from drld.policy import Mode
from drld.requests.answer import MAX_FIELDS, body, fields
from drld.requests.spec import ITEM
from drld.units import BYTES

from ...fleets.requests import API
from .made import FREE, bucket, limit, limited, of_plan


def test_an_answer_that_admits_names_all_limits() -> None:
    path = limited(
        (limit(1, burst=200 * ITEM), bucket(200, rate=100)),
        (of_plan(2, rate=10 / 60, burst=20 * ITEM), bucket(20, rate=10 / 60)),
    )
    answer = path.decide(FREE, 0)
    assert fields(answer) == {
        "ratelimit-policy": '"limit-1";q=100;w=1, "limit-2";q=10;w=60',
        "ratelimit": '"limit-1";r=199;t=1, "limit-2";r=19;t=6',
    }
    found = body(answer)
    assert (found["admitted"], found["limit"], found["remaining"]) == (True, "limit-2", 19)
    assert (found["retry_after_s"], found["reason"]) == (None, None)
    first, _ = found["limits"]
    assert first == {
        "limit": "limit-1",
        "unit": "requests",
        "mode": "enforce",
        "quota": 100,
        "window_s": 1,
        "burst": 200,
        "remaining": 199,
        "reset_s": 0.01,
        "on_failure": "share",
    }


def test_a_refusal_names_the_limit_that_refuses_and_when_to_come_again() -> None:
    path = limited((limit(1), bucket(9, rate=1)), (of_plan(2), bucket(1, rate=0.4)))
    path.decide(FREE, 0)
    answer = path.decide(FREE, 0)
    assert fields(answer) == {
        "ratelimit-policy": '"limit-2";q=100;w=1',
        "ratelimit": '"limit-2";r=0;t=3',
        "retry-after": "3",
    }
    found = body(answer)
    assert (found["admitted"], found["limit"], found["retry_after_s"]) == (False, "limit-2", 2.5)
    assert found["reason"] == "above the limit limit-2"
    # To come again is never before the bucket has what is missing.
    assert path.decide(FREE, 3 * NS_PER_S).admitted


def test_a_cost_that_never_passes_has_no_time_to_come_again() -> None:
    path = limited((limit(burst=5 * ITEM), bucket(5, rate=1)))
    answer = path.decide(API._replace(cost=6), 0)
    assert fields(answer) == {"ratelimit-policy": '"limit-1";q=100;w=1'}
    assert body(answer)["retry_after_s"] is None


def test_a_limit_on_bytes_counts_content() -> None:
    path = limited((limit(unit=BYTES, rate=0.0, burst=9000), Enforcement(depth=9000)))
    answer = path.decide(API._replace(size=4500), 0)
    assert fields(answer)["ratelimit-policy"].endswith(';qu="content-bytes"')
    assert fields(answer)["ratelimit"] == '"limit-1";r=4500'


def test_a_paused_limit_has_nothing_to_say() -> None:
    path = limited((limit(mode=Mode.PAUSE), Enforcement()))
    answer = path.decide(API, 0)
    assert fields(answer) == {"ratelimit-policy": '"limit-1";q=100;w=1'}
    assert body(answer)["remaining"] is None


def test_no_limit_has_no_fields() -> None:
    answer = limited().decide(API, 0)
    assert fields(answer) == {}
    assert body(answer) == {
        "admitted": True,
        "granted": 1,
        "limit": None,
        "remaining": None,
        "retry_after_s": None,
        "reason": "no limit has the namespace api",
        "limits": [],
    }


def test_fields_are_bounded() -> None:
    path = limited(*((limit(number), bucket(5)) for number in range(1, 100)))
    answer = path.decide(API, 0)
    assert fields(answer)["ratelimit"].count(";r=") == MAX_FIELDS
    assert len(body(answer)["limits"]) == 99
