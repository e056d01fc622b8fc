"""Whatever stands in etcd, answers instead of it, or lies in the cache: an error, or a problem."""

from __future__ import annotations

import base64
import contextlib
import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drld.errors import RegistryError
from drld.registry import cache
from drld.registry.etcd import Etcd
from drld.registry.model.merge import merge
from drld.registry.model.state import Event

from ..registry_factories import FLEET, KEYS, file_spec, known, limit, member, registry_spec

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4)
    ),
    max_leaves=12,
)
FIELDS = ("id", "name", "rate", "burst", "match", "allocator", "shares", "ewma", "address")


@st.composite
def values(draw: st.DrawFn) -> bytes:
    """Garbage, JSON, or a good value with something else in one place."""
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return draw(st.binary(max_size=60))
    if kind == 1:
        return json.dumps(draw(JSON)).encode()
    good = json.loads(draw(st.sampled_from([limit(1), limit(2), member(2), member(3)])))
    good[draw(st.sampled_from(FIELDS) | st.text(max_size=8))] = draw(JSON)
    return json.dumps(good).encode()


KEY = st.sampled_from(
    [KEYS.fleet, *map(KEYS.member, "abc"), *map(KEYS.limit, (1, 2)), KEYS.prefix + "limits/x"]
) | st.text(max_size=20).map(lambda rest: KEYS.prefix + rest)
EVENT = st.tuples(KEY, st.none() | values(), st.integers(1, 100)).map(lambda e: Event(*e))


@given(st.lists(st.tuples(st.booleans(), st.lists(EVENT, max_size=5)), max_size=5))
def test_any_history_leaves_a_usable_configuration(
    history: list[tuple[bool, list[Event]]],
) -> None:
    registry = known()
    registry.resync([Event(KEYS.fleet, FLEET.encode(), 1), Event(KEYS.limit(1), limit(1), 1)], 1)
    for revision, (anew, events) in enumerate(history, start=2):
        if anew:
            registry.resync(events, revision)
        else:
            registry.apply(events)
        spec, problems = merge(file_spec(), "f", registry)
        assert len({found.name for found in spec.limits}) == len(spec.limits)
        assert len({peer.address for peer in spec.peers}) == len(spec.peers)
        for key, problem in {**registry.problems, **problems}.items():
            assert problem.startswith(f"etcd {key}: ")
        registry.registration(0)
        for key, raw in registry.restoration():
            assert registry.knowledge()[key] == raw


class Canned:
    """A connection on which every answer is this."""

    idle = True

    def __init__(self, status: int, body: bytes) -> None:
        self._status = status
        self._pieces = iter((body, body + b"\n"))

    async def __aenter__(self) -> Canned:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def post(self, *_: object) -> int:
        return self._status

    async def piece(self) -> bytes | None:
        await trio.lowlevel.checkpoint()
        return next(self._pieces, None)


PAIR = st.fixed_dictionaries(
    {},
    optional={
        "key": st.binary(max_size=9).map(lambda b: base64.b64encode(b).decode()) | JSON,
        "value": st.binary(max_size=9).map(lambda b: base64.b64encode(b).decode()) | JSON,
        "mod_revision": st.integers(0, 9).map(str) | JSON,
    },
)
HEADER = st.fixed_dictionaries({"revision": st.integers(0, 9).map(str)}) | JSON
ANSWER = st.fixed_dictionaries(
    {},
    optional={
        "header": HEADER,
        "kvs": st.lists(PAIR, max_size=3) | JSON,
        "more": st.booleans() | JSON,
        "succeeded": JSON,
        "ID": JSON,
        "result": st.fixed_dictionaries(
            {},
            optional={
                "header": HEADER,
                "TTL": JSON,
                "events": st.lists(st.fixed_dictionaries({"kv": PAIR}) | JSON, max_size=3),
                "canceled": st.booleans(),
                "compact_revision": JSON,
            },
        ),
    },
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from([200, 200, 200, 401, 404, 503]),
    ANSWER.map(lambda answer: json.dumps(answer).encode()) | st.binary(max_size=40),
)
def test_any_answer_in_the_place_of_etcds_is_survived(status: int, body: bytes) -> None:
    async def answer(*_: object) -> Canned:
        return Canned(status, body)

    async def ask() -> None:
        etcd = Etcd("http://127.0.0.1:2379", registry_spec())
        calls: list[Any] = [
            lambda: etcd.read(KEYS.followed),
            lambda: etcd.commit({"a": b"b"}, {"a": 0}),
            lambda: etcd.grant(10),
            lambda: etcd.keep_alive(7),
            lambda: etcd.watch(KEYS.followed, 1, lambda *_: None),
        ]
        for call in calls:
            with contextlib.suppress(RegistryError):
                await call()

    with patch("drld.registry.etcd.connect", answer):
        trio.run(ask)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_content_of_the_cache_is_survived(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "cache"
    path.write_bytes(data)
    assert cache.load(str(path), KEYS) is None
