"""Envoy's messages and what they mean; nothing in them gets around a limit."""

from __future__ import annotations

from ipaddress import ip_network
from random import Random
from typing import Any

import pytest

from drld import config
from drld.errors import InputError
from drld.model import NS_PER_S, Enforcement
from drld.policy import Mode
from drld.requests import answer
from drld.requests.caller import Client
from drld.requests.datapath import RequestDatapath
from drld.requests.grpc.call import CallError, Origin, Status
from drld.requests.grpc.ratelimit import MAX_DESCRIPTORS, RateLimitService
from drld.requests.question import of_batch, of_json, of_query
from drld.requests.spec import ITEM, RequestMatch
from drld.units import BYTES

from ...rls_messages import request, response
from .keyed_fleet import KEYED
from .made import bucket, limit, limited, of_plan

OK, OVER = 1, 2
SECOND = 1
ENVOY = Origin(Client("192.0.2.1"), ())
FREE = {"plan": "free"}


def ask(
    path: RequestDatapath, asked: Any, origin: Origin = ENVOY, trusted: tuple[Any, ...] = ()
) -> Any:
    data = asked if isinstance(asked, bytes) else asked.SerializeToString()
    service = RateLimitService(path, lambda: 0, lambda: trusted)
    return response(service.should_rate_limit(data, origin))


def codes(answer: Any) -> tuple[int, list[int]]:
    return answer.overall_code, [it.code for it in answer.statuses]


def headers(answer: Any) -> dict[str, str]:
    return {it.key: it.value for it in answer.response_headers_to_add}


def test_statuses_are_in_order_and_say_how_the_limit_stands() -> None:
    path = limited((limit(1), bucket(9, rate=2)), (of_plan(2, rate=60), bucket(3, rate=1)))
    answer = ask(path, request({}, FREE))
    assert codes(answer) == (OK, [OK, OK])
    first, second = answer.statuses
    assert first.current_limit.name == "limit-1"
    assert (first.current_limit.requests_per_unit, first.current_limit.unit) == (100, SECOND)
    assert first.limit_remaining == 7
    assert second.current_limit.name == "limit-2"
    assert second.limit_remaining == 2
    assert (second.duration_until_reset.seconds, second.duration_until_reset.nanos) == (1, 0)
    assert headers(answer) == {
        "ratelimit-policy": '"limit-1";q=100;w=1, "limit-2";q=60;w=1',
        "ratelimit": '"limit-1";r=7;t=1, "limit-2";r=2;t=1',
    }


@pytest.mark.parametrize(
    ("rate", "number", "unit"),
    [(60, 60, 1), (7 / 60, 7, 2), (7 / 3600, 7, 3), (21.6 / 86_400, 21, 4)],
)
def test_the_status_names_the_unit_of_the_limit(rate: float, number: int, unit: int) -> None:
    answer = ask(limited((limit(rate=rate, burst=ITEM), bucket(3))), request({}))
    current = answer.statuses[0].current_limit
    assert (current.requests_per_unit, current.unit) == (number, unit)


def test_a_window_that_is_no_unit_is_told_as_the_next_larger_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answer, "quota_of", lambda _: (5, 90))
    current = ask(limited((limit(), bucket(3))), request({})).statuses[0].current_limit
    assert (current.requests_per_unit, current.unit) == (200, 3)


def test_one_over_limit_refuses_all_and_charges_none() -> None:
    path = limited((limit(1), bucket(9, rate=2)), (of_plan(2), bucket(1, rate=0.6)))
    assert codes(ask(path, request(FREE))) == (OK, [OK])
    answer = ask(path, request({}, FREE, {"plan": "paid"}))
    assert codes(answer) == (OVER, [OK, OVER, OK])
    assert path.copy_of(1).bucket.tokens == 8 * ITEM
    assert answer.statuses[1].current_limit.name == "limit-2"
    assert answer.statuses[1].limit_remaining == 0
    assert answer.statuses[1].duration_until_reset.seconds == 2
    assert headers(answer)["retry-after"] == "2"
    assert headers(answer)["ratelimit"] == '"limit-2";r=0;t=2'


def test_two_keys_of_one_limit_wait_for_the_one_that_is_short() -> None:
    path = RequestDatapath(Random(1), b"secret")
    path.attach([(it, Enforcement()) for it in config.parse(KEYED, "f").limits], 0)
    assert codes(ask(path, request({"user": "alice"}, hits=20))) == (OK, [OK])
    answer = ask(path, request({"user": "alice"}, {"user": "bob"}))
    assert codes(answer) == (OVER, [OVER, OK])
    assert headers(answer)["ratelimit"] == '"api";r=0;t=60'
    assert headers(answer)["retry-after"] == "60"


def test_hits_of_the_descriptor_come_before_those_of_the_request() -> None:
    path = limited((limit(), bucket(50)))
    left = [
        ask(path, asked).statuses[-1].limit_remaining
        for asked in (
            request({}),
            request({}, hits=3),
            request({}, hits=3, each=(5,)),
            request({}, {}, hits=3, each=(5,)),
        )
    ]
    assert left == [49, 46, 41, 33]


def test_no_hits_of_a_descriptor_ask_and_take_nothing() -> None:
    path = limited((limit(), bucket(1)))
    for _ in range(3):
        answer = ask(path, request({}, hits=9, each=(0,)))
        assert codes(answer) == (OK, [OK])
        assert answer.statuses[0].limit_remaining == 1
    assert path.read(1, 0).arrived_items == 0
    ask(path, request({}))
    assert codes(ask(path, request({}, each=(0,)))) == (OVER, [OVER])
    # Beside others, it refuses them too.
    assert codes(ask(path, request({"other": "x"}, {}, domain="other", each=(1, 0)))) == (
        OK,
        [1, 1],
    )


def test_hits_are_bytes_under_a_limit_on_bytes() -> None:
    on_bytes = limit(unit=BYTES, burst=10_000)
    path = limited((on_bytes, bucket(0.01)))
    for asked in (request({}, hits=700), request({}, each=(300,)), request({})):
        ask(path, asked)
    assert path.copy_of(1).bucket.tokens == 10_000 - 700 - 300 - 1500


def test_more_hits_than_any_burst_never_pass() -> None:
    path = limited((limit(), bucket(3)))
    answer = ask(path, request({}, {"a": "b"}, each=(2**64 - 1,)))
    assert codes(answer) == (OVER, [OVER, OVER])
    assert "retry-after" not in headers(answer)
    assert path.counters()["requests_oversized"] == 1


def test_an_empty_value_is_one_key_at_every_front_and_no_value_is_none() -> None:
    """Clients without a name share a bucket, wherever they ask; only a request without the pair
    has none."""
    path = RequestDatapath(Random(1), b"secret")
    path.attach([(it, Enforcement()) for it in config.parse(KEYED, "f").limits], 0)
    assert codes(ask(path, request({"user": ""}, hits=18))) == (OK, [OK])
    asked = [
        of_query(b"namespace=api&user=", "192.0.2.1")[0],
        of_json(b'{"namespace": "api", "descriptor": {"user": ""}}', "192.0.2.2")[0][0],
        of_batch(["api", "", "user", ""], {"cost": 1}, "192.0.2.3"),
    ]
    assert [path.decide(it, 0).admitted for it in asked] == [True, True, False]
    assert codes(ask(path, request({"user": ""}))) == (OVER, [OVER])
    assert codes(ask(path, request({}))) == (OK, [OK])
    assert path.counters()["requests_unmatched"] == 1


def test_a_limit_in_a_request_is_counted_and_ignored() -> None:
    path = limited((limit(), bucket(2)))
    asked = request(FREE)
    asked.descriptors[0].limit.requests_per_unit = 1
    assert [codes(ask(path, asked))[0] for _ in range(3)] == [OK, OK, OVER]
    assert path.counters()["requests_overridden"] == 3


def test_a_request_under_no_limit_is_admitted_and_counted() -> None:
    """A namespace that no limit has, as one with a typing error."""
    path = RequestDatapath(Random(1), b"secret")
    path.attach([(it, Enforcement()) for it in config.parse(KEYED, "f").limits], 0)
    assert codes(ask(path, request({"user": "a"}, domain="apj", hits=99))) == (OK, [OK])
    assert codes(ask(path, request({"user": "a"}, {}, domain="apj"))) == (OK, [OK, OK])
    assert path.counters() == {
        "requests_unmatched": 3, "requests_oversized": 0, "requests_overridden": 0,
    }  # fmt: skip
    assert not path.keyed.limits[1].replica.buckets


def test_a_charge_passes_and_leaves_debt() -> None:
    path = limited((limit(), bucket(2)))
    answer = ask(path, request({"charge": "true"}, each=(5,)))
    assert codes(answer) == (OK, [OK])
    assert path.copy_of(1).bucket.tokens == -3 * ITEM
    assert codes(ask(path, request({}))) == (OVER, [OVER])


def test_requests_under_no_limit_in_shadow_or_in_pause_are_ok() -> None:
    assert codes(ask(limited(), request({"a": "b"}))) == (OK, [OK])
    shadow = limited((limit(mode=Mode.SHADOW), bucket(1)))
    assert [codes(ask(shadow, request({})))[0] for _ in range(3)] == [OK] * 3


@pytest.mark.parametrize(
    ("asked", "flows"),
    [
        ([request({"caller": "bob"}), request({"caller": "eve"})], 2),
        (
            [
                request({"remote_address": "2001:db8::1"}),
                request({"remote_address": "2001:db8::2"}),
            ],
            1,
        ),
        ([request({"remote_address": "10.0.0.1"}), request({"remote_address": "10.0.0.2"})], 2),
        # One caller for all descriptors, whichever names it.
        ([request({}, {"remote_address": "10.0.0.1"}), request({"remote_address": "10.0.0.1"})], 1),
        ([request({"caller": "bob", "remote_address": "10.0.0.1"}), request({"caller": "bob"})], 1),
    ],
)
def test_each_caller_is_a_flow(asked: list[Any], flows: int) -> None:
    path = limited((limit(), bucket(9)))
    for each in asked:
        ask(path, each)
    assert len(path.read(1, 1).flows) == flows


def test_a_trusted_proxy_names_the_caller() -> None:
    path = limited((limit(), bucket(9)))
    for number in (1, 2):
        origin = Origin(Client("192.0.2.1"), (f"198.51.100.{number}",))
        ask(path, request({}), origin, (ip_network("192.0.2.0/24"),))
        ask(path, request({}), origin)
    assert len(path.read(1, 1).flows) == 3


@pytest.mark.parametrize(
    ("named", "sent"), [("10.0.0.1", "10.0.0.1"), ("2001:db8::/64", "2001:db8::1"), ("x", "x")]
)
def test_an_address_is_a_pair_too(named: str, sent: str) -> None:
    match = RequestMatch("api", {"remote_address": named})
    path = limited((limit(1, match=match), bucket(9)), (limit(2), bucket(9)))
    ask(path, request({"remote_address": sent, "caller": "bob"}))
    assert [path.read(number, 0).arrived_items for number in (1, 2)] == [1, 1]


@pytest.mark.parametrize(
    "value",
    [b"x" * 65, b"x" * 5000, b"\xff", b"\xff" * 300, "é".encode() * 33],
    ids=["long", "longer", "bytes", "long-bytes", "long-text"],
)
def test_no_value_gets_around_a_limit(value: bytes) -> None:
    """An error would let the request pass; another caller's bucket would not do either."""
    asked = request({"plan": "free", "token": "?"}).SerializeToString()
    at = asked.index(b"\x12\x01?")
    # The lengths of the entry and the descriptor grow with the value.
    inner = b"\x0a\x05token\x12" + varint(len(value)) + value
    plan = asked[asked.index(b"\x0a\x0c\x0a\x04plan") :][:14]
    descriptor = plan + b"\x0a" + varint(len(inner)) + inner
    data = b"\x0a\x03api\x12" + varint(len(descriptor)) + descriptor
    assert at > 0
    path = limited((of_plan(1), bucket(1)))
    assert codes(ask(path, data)) == (OK, [OK])
    assert codes(ask(path, data)) == (OVER, [OVER])


def varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def test_a_descriptor_that_is_too_large_is_refused_without_an_error() -> None:
    path = limited((limit(), bucket(9)))
    pairs = {f"name-{number}": "x" * 64 for number in range(4)}
    assert codes(ask(path, request({}, pairs))) == (OVER, [OVER, OVER])
    assert path.read(1, 0).arrived_items == 0


TWICE = request({"a": "b"})
TWICE.descriptors[0].entries.add(key="a", value="c")
GIVEN_BACK = request({})
GIVEN_BACK.descriptors[0].is_negative_hits = True


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (request({}, domain=""), "domain: must have"),
        (request({}, domain="x" * 257), "domain: must have"),
        (request(), f"descriptors: there must be 1 to {MAX_DESCRIPTORS}"),
        (request(*[{}] * (MAX_DESCRIPTORS + 1)), "descriptors: there must be"),
        (request({"cost": "3"}), "cost: is no name"),
        (request({"": "3"}), "a name in a descriptor must not be empty"),
        (request({f"n{number}": "" for number in range(9)}), "8 pairs at most"),
        (request({"charge": "yes"}), "charge: must be true or false"),
        (request({"charge": "true"}, {}), "charge: must be an entry of all"),
        (TWICE, "a key must not be given twice"),
        (GIVEN_BACK, "is_negative_hits"),
    ],
)
def test_what_an_operator_has_configured_badly_is_an_error(asked: Any, error: str) -> None:
    path = limited((limit(), bucket(9)))
    with pytest.raises((CallError, InputError), match=error) as raised:
        ask(path, asked)
    if isinstance(raised.value, CallError):
        assert raised.value.status is Status.INVALID_ARGUMENT
    assert path.copy_of(1).bucket.tokens == 9 * ITEM


def test_the_clock_is_that_of_the_daemon() -> None:
    times = iter((0, NS_PER_S - 1, NS_PER_S))
    service = RateLimitService(limited((limit(), bucket(1, rate=1))), lambda: next(times), tuple)
    data = request({}).SerializeToString()
    found = [response(service.should_rate_limit(data, ENVOY)).overall_code for _ in range(3)]
    assert found == [OK, OVER, OK]
