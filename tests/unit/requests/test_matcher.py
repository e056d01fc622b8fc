"""Which limits a request falls under."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drld.errors import InputError
from drld.requests.descriptor import MAX_BYTES, MAX_PAIRS, Descriptor, check
from drld.requests.matcher import Matcher
from drld.requests.spec import RequestMatch
from drld.spec import LimitSpec

from ...factories import limit_spec

NAMES = st.sampled_from("abc")
PAIRS = st.dictionaries(NAMES, st.sampled_from("xy"), max_size=3)


def limits(*matches: RequestMatch) -> list[LimitSpec]:
    return [
        replace(limit_spec(id=number, name=str(number)), match=match)
        for number, match in enumerate(matches, 1)
    ]


@given(
    st.lists(st.builds(RequestMatch, st.sampled_from(["api", "web"]), PAIRS), max_size=8),
    st.sampled_from(["api", "web", "other"]),
    PAIRS,
)
def test_the_matcher_finds_what_a_search_of_all_limits_finds(
    matches: list[RequestMatch], namespace: str, descriptor: Descriptor
) -> None:
    given_limits = limits(*matches)
    found = Matcher((limit, limit) for limit in given_limits).find(namespace, descriptor)
    assert found == [
        limit
        for limit, match in zip(given_limits, matches, strict=True)
        if match.namespace == namespace
        and all(descriptor.get(name) == value for name, value in match.where.items())
    ]


@pytest.mark.parametrize(
    ("pairs", "reason"),
    [
        ({str(number): "" for number in range(MAX_PAIRS + 1)}, "8 pairs at most"),
        ({"x" * MAX_BYTES: "a"}, "256 bytes at most"),
        ({"\u00e9" * (MAX_BYTES // 2): "a"}, "256 bytes at most"),
        ({"": "x"}, "must not be empty"),
        ({"cost": "1"}, "cost: is no name for a descriptor"),
        ({"a": 1}, "must be a text"),
        ({"a": "\ud800"}, "must be text in UTF-8"),
    ],
)
def test_a_bad_descriptor_is_refused(pairs: dict[str, object], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        check(pairs)


def test_the_largest_descriptor_is_accepted() -> None:
    largest = {str(number): "x" * 31 for number in range(MAX_PAIRS)}
    assert check(largest) == largest
