"""Questions of clients, and the errors for all other input."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drld.errors import InputError
from drld.requests.model import Request
from drld.requests.question import MAX_AMOUNT, MAX_CHECKS, of_json, of_query

CALLER = "192.0.2.1"


@pytest.mark.parametrize(
    ("query", "request_", "refusal"),
    [
        (b"namespace=api", Request("api", {}, caller=CALLER), 429),
        (
            b"namespace=api&plan=free&user=%C3%A9+1&cost=3&bytes=1500&caller=bob&refused=403",
            Request("api", {"plan": "free", "user": "\u00e9 1"}, 3, 1500, "bob"),
            403,
        ),
        (
            b"namespace=api&cost=9&at_least=2&charge=false",
            Request("api", {}, 9, caller=CALLER, at_least=2),
            429,
        ),
        (
            b"namespace=api&cost=0&bytes=700&charge=true",
            Request("api", {}, 0, 700, CALLER, charge=True),
            429,
        ),
        (b"namespace=api&user=&cost=0", Request("api", {"user": ""}, 0, caller=CALLER), 429),
        # As nginx asks for a client without a name.
        (b"namespace=api&caller=&cost=0", Request("api", {}, 0, caller=CALLER), 429),
    ],
)
def test_queries_are_read(query: bytes, request_: Request, refusal: int) -> None:
    assert of_query(query, CALLER) == (request_, refusal)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (b"", "namespace: is required"),
        (b"user", "NAME=VALUE pairs"),
        (b"namespace=%ff", "NAME=VALUE pairs"),
        (b"namespace=\xff", "NAME=VALUE pairs"),
        (b"&".join(b"a%d=" % number for number in range(16)), "at most 15 of them"),
        (b"user=alice", "namespace: is required"),
        (b"namespace=", "namespace: is required"),
        (b"namespace=" + b"x" * 257, "namespace: is too long"),
        (b"namespace=a&namespace=b", "namespace: must not be given twice"),
        (b"namespace=a&%0a=1&%0a=1", r"'\\n': must not be given twice"),
        (b"namespace=a&cost=-1", "cost: must be a whole number"),
        (b"namespace=a&cost=1.5", "cost: must be a whole number"),
        (b"namespace=a&cost=%EF%BC%91", "cost: must be a whole number"),
        (b"namespace=a&cost=2147483648", "cost: must be a whole number from 0 to 2147483647"),
        (b"namespace=a&cost=" + b"9" * 5000, "cost: must be a whole number"),
        (b"namespace=a&bytes=0", "bytes: must be a whole number from 1"),
        (b"namespace=a&at_least=0", "at_least: must be a whole number from 1 to 1$"),
        (b"namespace=a&cost=3&at_least=4", "at_least: must be a whole number from 1 to 3$"),
        (b"namespace=a&cost=0&at_least=1", "at_least: must not be given with cost 0"),
        (b"namespace=a&at_least=1&charge=true", "at_least: must not be given with charge"),
        (b"namespace=a&charge=yes", "charge: must be true or false"),
        (b"namespace=a&cost=0&charge=true", "charge: must have a cost of at least 1, or bytes"),
        (b"namespace=a&caller=" + b"x" * 257, "caller: must be a text of 1 to 256 bytes"),
        (b"namespace=a&refused=401", "refused: must be 429 or 403"),
        (b"namespace=a&" + b"u" * 256 + b"=x", "256 bytes at most"),
    ],
)
def test_an_invalid_query_is_refused(query: bytes, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        of_query(query, CALLER)


def test_questions_in_json_are_read() -> None:
    one = {"namespace": "api", "descriptor": {"user": "alice"}, "cost": 2, "bytes": 9}
    one |= {"at_least": 1, "charge": False}
    made = Request("api", {"user": "alice"}, 2, 9, CALLER, at_least=1)
    assert of_json(json.dumps(one).encode(), CALLER) == ([made], False)
    several = [one, {"namespace": "web", "caller": "bob"}]
    assert of_json(json.dumps(several).encode(), CALLER) == (
        [made, Request("web", {}, caller="bob")],
        True,
    )


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "must be JSON"),
        (b"\xff", "must be JSON"),
        (b"{", "must be JSON"),
        (b"1" * 5000, "must be JSON"),
        (b"null", "a check must be an object"),
        (b"[]", "1 to 100 checks"),
        (b"[" + b",".join([b"{}"] * (MAX_CHECKS + 1)) + b"]", "1 to 100 checks"),
        (b"[" * 30_000 + b"]" * 30_000, "nested too deeply|a check must be an object"),
        (
            b'{"descriptor":' * 4000 + b"1" + b"}" * 4000,
            "nested too deeply|namespace: is",
        ),
        (
            b'{"namespace": "a", "where": {}}',
            "where: unknown key; the keys are namespace",
        ),
        (b'{"namespace": "a", "namespace": "b"}', "must not be given twice"),
        (b'{"namespace": 1}', "namespace: is required"),
        (b'{"namespace": "\\ud800"}', "namespace: must be text in UTF-8"),
        (b'{"namespace": "a", "cost": NaN}', "must be finite"),
        (b'{"namespace": "a", "cost": true}', "cost: must be a whole number"),
        (b'{"namespace": "a", "cost": 1.0}', "cost: must be a whole number"),
        (b'{"namespace": "a", "cost": null}', "cost: must be a whole number"),
        (b'{"namespace": "a", "charge": 1}', "charge: must be true or false"),
        (b'{"namespace": "a", "at_least": true}', "at_least: must be a whole number"),
        (b'{"namespace": "a", "descriptor": []}', "descriptor: must be an object"),
        (b'{"namespace": "a", "descriptor": {"b": 1}}', "b: must be a text"),
        (b'{"namespace": "a", "descriptor": {"b": "\\ud800"}}', "b: must be text in UTF-8"),
        (b'{"namespace": "a", "caller": "\\ud800"}', "caller: must be a text"),
        (b'{"namespace": "a", "caller": 0}', "caller: must be a text"),
        (b'{"namespace": "a", "caller": null}', "caller: must be a text"),
    ],
)
def test_invalid_json_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        of_json(body, CALLER)


TEXTS = st.text("u&=%+ /\0\u00e9\u20ac", max_size=8)
PAIRS = st.dictionaries(TEXTS.map("u".__add__), TEXTS, max_size=4)


@given(PAIRS, st.integers(0, MAX_AMOUNT), st.none() | st.integers(1, MAX_AMOUNT))
def test_a_query_and_json_ask_the_same(pairs: dict[str, str], cost: int, size: int | None) -> None:
    given_ = {"cost": cost} | ({} if size is None else {"bytes": size})
    query = "&".join(f"{quote(key)}={quote(str(it))}" for key, it in {**given_, **pairs}.items())
    body = json.dumps({"namespace": "api", "descriptor": pairs, **given_})
    asked, _ = of_query(f"namespace=api&{query}".encode(), CALLER)
    assert of_json(body.encode(), CALLER) == ([asked], False)
    assert asked == Request("api", pairs, cost, size, CALLER)
