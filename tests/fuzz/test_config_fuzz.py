"""Whatever a file holds, the answer is a LimiterSpec or a ConfigError with one line a mistake."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ..factories import example
from .targets.config import check_document, check_text

GOOD: dict[str, Any] = {
    "limiter": {
        "name": "lim1",
        "listen": "10.0.0.1:7946",
        "control": "/run/drld/lim1.sock",
    },
    "packets": {"datapath": "auto", "firewall": "nft", "queue": 3},
    "gossip": {"fabric": "mesh", "branching": 2, "interval": "50ms"},
    "peer": [{"name": "lim2", "address": "10.0.0.2:7946"}],
    "limit": [
        {
            "id": 1,
            "name": "a",
            "rate": "10mbit",
            "burst": "75kB",
            "allocator": {"name": "fps", "headroom": 0.2},
            "interval": "100ms",
            "ewma": 0.2,
            "mode": "shadow",
            "on_failure": "open",
            "shares": {"lim1": 0.5, "lim2": 0.5},
            "match": {
                "in": "eth0",
                "source": "10.0.0.0/8",
                "destination": "10.9.0.0/16",
                "protocol": "tcp",
                "source_port": [80, "8000-8100"],
                "destination_port": 443,
                "mark": "0x10/0xff",
            },
        },
        {
            "id": 2,
            "name": "b",
            "rate": "1mbit",
            "burst": "15kB",
            "allocator": "grd",
            "match": {"out": "eth1"},
        },
    ],
}

# Words of the configuration, so that many values are nearly right.
WORDS = st.sampled_from(
    [
        *("limiter", "gossip", "peer", "limit", "name", "in", "out", "match", "shares", "id"),
        *("lim1", "lim2", "10mbit", "10mbps", "75kB", "50ms", "ctb", "fps", "shadow", "kernel"),
        *("10.0.0.1:7946", "[fd00::1]:1", "0.0.0.0:1", "[::]:1", "10.0.0.1/8", "fd00::/64", "::/0"),
        *("fe80::1%a", "fe80::%a/64", "::ffff:1.2.3.4/128", "eth0@if2", "80-8", "0x10/0", "/", ""),
    ]
)
SCALARS = (
    WORDS
    | st.text(max_size=12)
    | st.integers()
    | st.sampled_from([2**63, 2**32, 2**32 - 1, 65535, 65536, 0, -1])
    | st.builds(lambda bits: 1 << bits, st.integers(60, 20_000))
    | st.floats()
    | st.booleans()
    | st.dates()
    | st.datetimes()
    | st.times()
)
KEYS = WORDS | st.text(max_size=6)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)
SECTIONS = st.sampled_from(["limiter", "gossip", "peer", "limit"])


@given(st.dictionaries(SECTIONS | KEYS, VALUES, max_size=4))
def test_any_document_is_read_or_refused_by_its_keys(document: dict[str, Any]) -> None:
    check_document(document)


def places(value: object) -> list[tuple[Any, ...]]:
    """The path of every value inside a document."""
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    return [path for key, inner in items for path in ((key,), *((key, *p) for p in places(inner)))]


PLACES = places(GOOD)


@given(
    st.lists(
        st.tuples(st.sampled_from(PLACES), st.none() | VALUES, st.none() | KEYS),
        min_size=1,
        max_size=3,
    )
)
def test_mutated_documents_are_read_or_refused_by_their_keys(
    mutations: list[tuple[tuple[Any, ...], Any, str | None]],
) -> None:
    document = copy.deepcopy(GOOD)
    for path, value, new_key in mutations:
        inside: Any = document
        try:
            for key in path[:-1]:
                inside = inside[key]
            if new_key is not None and isinstance(inside, dict):
                inside[new_key] = value if value is not None else inside.pop(path[-1])
            elif value is not None:
                inside[path[-1]] = value
            else:
                del inside[path[-1]]
        except (KeyError, IndexError, TypeError, ValueError):
            continue  # An earlier mutation took this place away.
    check_document(document)


def test_the_document_that_is_mutated_is_good() -> None:
    assert check_document(GOOD)


@given(st.data())
def test_mutated_text_is_read_or_refused(data: st.DataObject) -> None:
    text = example()
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = start + data.draw(st.integers(0, 8))
        text = text[:start] + data.draw(st.text(max_size=4)) + text[end:]
    check_text(text)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    check_text(text)
