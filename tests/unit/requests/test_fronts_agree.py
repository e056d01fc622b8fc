"""One table of questions for all fronts: HTTP, the batch protocol and Envoy's service."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeAlias

import pytest

from drld import config
from drld.client.protocol.model import Question
from drld.model import Enforcement
from drld.requests.caller import Client as Caller
from drld.requests.datapath import RequestDatapath
from drld.requests.grpc.call import Origin
from drld.requests.grpc.ratelimit import RateLimitService

from ...rls_messages import request, response
from .fronts import front
from .good import GOOD
from .test_batch import Client

ODD = ("zo\u00eb", "", "a=b", "a,b", 'quote" \\', "line\nfeed", "x" * 64, "x" * 65, "\u00e9" * 300)
"""Keys with overrides, which are hard to write, to quote or to bound."""
BURST, PLAN_BURST, OWN_BURST = 5, 2, 9
YES, NO = True, False


def limits(rate: str = "1/h") -> str:
    """A configuration: a bucket for each user, more for some, and one for all of a plan."""
    own = ", ".join(f"{{ user = {json.dumps(key)}, burst = {OWN_BURST} }}" for key in ODD)
    first = GOOD.replace('"api" }', f'"api", per = ["user"] }}\noverrides = [{own}]')
    first = first.replace("100/s", rate).replace("burst = 200", f"burst = {BURST}")
    return (
        first
        + f"""
[[limit]]
id = 2
name = "plan"
rate = "{rate}"
burst = {PLAN_BURST}
match = {{ namespace = "api", where = {{ plan = "free" }} }}
"""
    )


def attach(path: RequestDatapath, text: str) -> None:
    """Use these limits, as a daemon does at its start and by a reload."""
    found = config.parse(text, "f").limits
    path.attach(
        [
            (it, Enforcement() if it.policy.keyed else Enforcement(0, 0, it.policy.burst))
            for it in found
        ],
        0,
    )


class Said(NamedTuple):
    """An answer, as far as all fronts have it."""

    admitted: bool
    limit: str | None
    remaining: int | None


Ask: TypeAlias = Callable[[Question], Awaitable[Said]]


@asynccontextmanager
async def over_http(path: RequestDatapath, folder: Path) -> AsyncIterator[Ask]:
    async with front(folder, path) as made, made.client() as http:

        async def ask(it: Question) -> Said:
            more = {} if it.at_least is None else {"at_least": it.at_least}
            asked = {
                "namespace": it.namespace, "descriptor": dict(it.descriptor), "cost": it.cost,
                "charge": it.charge, **more,
            }  # fmt: skip
            answer = await http.post("/v1/check", json=asked)
            found = answer.json()
            assert answer.status_code == (200 if found["admitted"] else 429), found
            return said(found["admitted"], found["limit"], found["remaining"])

        yield ask


@asynccontextmanager
async def over_batches(path: RequestDatapath, folder: Path) -> AsyncIterator[Ask]:
    async with front(folder, path) as made, await made.stream() as stream:
        client = Client(stream)
        await client.greet()

        async def ask(it: Question) -> Said:
            (answer,) = await client.ask(it)
            assert answer.error is None
            return said(answer.admitted, answer.limit, answer.remaining)

        yield ask


@asynccontextmanager
async def over_grpc(path: RequestDatapath, _: Path) -> AsyncIterator[Ask]:
    service = RateLimitService(path, lambda: 0, tuple)

    async def ask(it: Question) -> Said:
        assert it.at_least is None, "Envoy has none"
        pairs = dict(it.descriptor) | ({"charge": "true"} if it.charge else {})
        asked = request(pairs, domain=it.namespace, each=(it.cost,))
        origin = Origin(Caller("192.0.2.1"), ())
        answer = response(service.should_rate_limit(asked.SerializeToString(), origin))
        (status,) = answer.statuses
        known = status.HasField("current_limit")
        return Said(
            answer.overall_code == 1,
            status.current_limit.name if known else None,
            status.limit_remaining if known else None,
        )

    yield ask


def said(admitted: bool, limit: str | None, remaining: float | None) -> Said:
    """An answer; a limit that can never admit the request has 0 left, as protobuf has no null."""
    return Said(admitted, limit, None if limit is None else int(remaining or 0))


FRONTS = {"http": over_http, "batch": over_batches, "grpc": over_grpc}
EVERY = tuple(FRONTS)
ALICE = {"user": "alice"}
FREE = {"user": "alice", "plan": "free"}


def of(pairs: dict[str, str], cost: int = 1, **more: Any) -> Question:
    return Question("api", pairs, cost, **more)


CASES: dict[str, Sequence[tuple[Question, Said]]] = {
    "until the bucket is empty": [
        *((of(ALICE), Said(YES, "api", left)) for left in (4, 3, 2, 1, 0)),
        (of(ALICE), Said(NO, "api", 0)),
        (of({"user": "bob"}), Said(YES, "api", 4)),
    ],
    "odd keys have the bucket of their override": [
        *((of({"user": key}, 2), Said(YES, "api", OWN_BURST - 2)) for key in ODD),
        *((of({"user": key}, 8), Said(NO, "api", OWN_BURST - 2)) for key in ODD),
        (of({"user": "x" * 66}), Said(YES, "api", 4)),
    ],
    "cost 0 asks, and takes nothing": [
        (of(ALICE, 0), Said(YES, "api", 5)),
        (of(ALICE, 5), Said(YES, "api", 0)),
        (of(ALICE, 0), Said(NO, "api", 0)),
    ],
    "a cost above the burst never passes, and takes nothing": [
        (of(ALICE, 6), Said(NO, "api", 0)),
        (of(ALICE, 2**31 - 1), Said(NO, "api", 0)),
        (of(FREE, 3), Said(NO, "plan", 0)),
        (of(ALICE, 5), Said(YES, "api", 0)),
    ],
    "where the second limit refuses, the first is not charged": [
        (of(FREE, 2), Said(YES, "plan", 0)),
        (of(FREE), Said(NO, "plan", 0)),
        (of(FREE), Said(NO, "plan", 0)),
        (of(ALICE, 3), Said(YES, "api", 0)),
    ],
    "where the first refuses, the second is not charged": [
        (of(ALICE, 5), Said(YES, "api", 0)),
        (of(FREE), Said(NO, "api", 0)),
        (of({"user": "bob", "plan": "free"}, 2), Said(YES, "plan", 0)),
    ],
    "a charge after the fact leaves a debt": [
        (of(ALICE, 7, charge=True), Said(YES, "api", 0)),
        (of(ALICE), Said(NO, "api", 0)),
        (of({"user": "bob"}, 3, charge=True), Said(YES, "api", 2)),
        (of({"user": "bob"}, 2), Said(YES, "api", 0)),
    ],
    "under no limit": [
        (Question("apj", ALICE), Said(YES, None, None)),
        (of({}), Said(YES, None, None)),
        (of({"plan": "paid"}), Said(YES, None, None)),
    ],
    "as much as there is, from at_least on": [
        (of(ALICE, 9, at_least=2), Said(YES, "api", 0)),
        (of(ALICE, 9, at_least=2), Said(NO, "api", 0)),
        (of({"user": "bob"}, 9, at_least=6), Said(NO, "api", 0)),
    ],
}  # fmt: skip
NOT_OVER_GRPC = {"as much as there is, from at_least on"}


@pytest.mark.parametrize(
    ("name", "case"),
    [(name, case) for case in CASES for name in EVERY
     if name != "grpc" or case not in NOT_OVER_GRPC],
)  # fmt: skip
async def test_each_front_answers_alike(tmp_path: Path, name: str, case: str) -> None:
    path = RequestDatapath(Random(1), b"of this daemon")
    attach(path, limits())
    async with FRONTS[name](path, tmp_path) as ask:
        assert [await ask(question) for question, _ in CASES[case]] == [
            answer for _, answer in CASES[case]
        ]


@pytest.mark.parametrize("name", EVERY)
async def test_a_reload_keeps_levels_in_tokens(tmp_path: Path, name: str) -> None:
    """Between any two questions: each bucket has what it had, and no verdict is wrong."""
    path = RequestDatapath(Random(1), b"of this daemon")
    attach(path, limits())
    async with FRONTS[name](path, tmp_path) as ask:
        found = []
        for number in range(BURST + 1):
            found.append(await ask(of(ALICE)))
            found.append(await ask(of({"user": ODD[number % len(ODD)]})))
            attach(path, limits(rate=f"{2 + number}/h"))
        assert [it.admitted for it in found[::2]] == [YES] * BURST + [NO]
        assert [it.remaining for it in found[::2]] == [4, 3, 2, 1, 0, 0]
        assert [it.remaining for it in found[1::2]] == [OWN_BURST - 1] * (BURST + 1)
        attach(path, limits().replace(f"burst = {BURST}\n", "burst = 7\n"))
        assert await ask(of(ALICE, 2)) == Said(YES, "api", 0), "two tokens more"


async def test_an_answer_under_no_limit_says_why(tmp_path: Path) -> None:
    path = RequestDatapath(Random(1), b"of this daemon")
    attach(path, limits())
    async with front(tmp_path, path) as made, made.client() as http:
        answers = [await http.get(f"/v1/check?{it}") for it in ("namespace=apj", "namespace=api")]
    assert [it.json()["reason"] for it in answers] == [
        "no limit has the namespace apj", "no limit covers this descriptor",
    ]  # fmt: skip
    assert all("ratelimit" not in it.headers for it in answers)
    assert path.counters()["requests_unmatched"] == 2
