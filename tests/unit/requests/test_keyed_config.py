"""Limits with a bucket for each key in a configuration: what is read, compared and remarked on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drld import config
from drld.config.overrides import edited
from drld.limit_values import limit_values
from drld.limiter import static_share
from drld.model import Enforcement
from drld.policy import Keyed, Override
from drld.requests.spec import ITEM, RequestMatch, RequestsSpec
from drld.shared_settings import shared_settings
from drld.units import BYTES

from ..config.good import problems
from .good import changed

BIGCO = '{ user = "bigco", rate = "1000/s" }'
PEERS = "".join(
    f'[[peer]]\nname = "lim{number}"\naddress = "127.0.0.{number}:7946"\n'
    for number in range(2, 13)
)


def keyed(extra: str = "", per: str = '["user"]') -> str:
    return changed(('"api" }', f'"api", per = {per} }}\n{extra}'))


@pytest.mark.parametrize("per", ['["user", "plan"]', '"user,plan"'], ids=["array", "text"])
def test_a_limit_with_a_bucket_for_each_key_is_read(per: str) -> None:
    (limit,) = config.parse(keyed(per=per), "f").limits
    assert limit.match == RequestMatch("api", {}, ("user", "plan"))
    assert limit.match.written()["per"] == "user,plan"
    assert str(limit.match) == "api per user per plan"
    assert limit.policy.keyed == Keyed("ledger", 1_000_000)
    # Nothing is divided: no limiter polices a share of a rate that is each key's.
    assert static_share(limit.policy, 0.5) == Enforcement()


def test_a_limit_without_keys_says_nothing_of_them() -> None:
    (limit,) = config.parse(changed(), "f").limits
    assert limit.policy.keyed is None
    assert "per" not in limit.match.written()
    assert static_share(limit.policy, 0.5) != Enforcement()


@pytest.mark.parametrize(
    ("per", "known", "edits", "after"),
    [
        ("user", [], ["user=a,rate=1/s"], [{"user": "a", "rate": "1/s"}]),
        # One key alone changes, and it is the same however it is written.
        (
            ["user"],
            [{"user": "a", "rate": "1/s"}, {"burst": 9, "user": "b"}],
            ["rate=2/s, user=b"],
            [{"user": "a", "rate": "1/s"}, {"user": "b", "rate": "2/s"}],
        ),
        ("user", [{"user": "a", "rate": "1/s"}, {"user": "b", "burst": 9}], ["user=a"],
         [{"user": "b", "burst": 9}]),
        ("user", [{"user": "a", "rate": "1/s"}], ["user=c"], [{"user": "a", "rate": "1/s"}]),
        ("user,plan", [{"user": "a", "plan": "x", "rate": "1/s"}],
         ["plan=x,user=a", "plan=x,user=b,burst=3"],
         [{"plan": "x", "user": "b", "burst": "3"}]),
        # What is no edit is left to whoever validates it.
        ("user", [{"user": "a", "rate": "1/s"}], ["a"], ["a"]),
        ("user", [{"user": "a", "rate": "1/s"}], [{"user": "b"}], [{"user": "b"}]),
        ("user", [{"user": "a", "rate": "1/s"}], [], []),
        ("user", [{"user": "a", "rate": "1/s"}], 7, 7),
        ("user", 7, ["user=a,rate=1/s"], ["user=a,rate=1/s"]),
    ],
)  # fmt: skip
def test_edits_are_of_single_keys(per: object, known: object, edits: object, after: object) -> None:
    match = {"namespace": "api", "per": per}
    table = {"name": "n", "match": match, "overrides": known}
    assert edited(table, {"overrides": edits, "rate": "3/s"}) == {"overrides": after, "rate": "3/s"}
    assert edited(table, {"rate": "3/s"}) == {"rate": "3/s"}
    assert table == {"name": "n", "match": match, "overrides": known}


def test_single_keys_may_have_more_or_less() -> None:
    overrides = f'{BIGCO}, {{ user = "mallory", burst = 1 }}'
    text = keyed(f'bucket = "queue"\nmax_keys = 10\noverrides = [{overrides}]')
    found = config.parse(text, "f").limits[0].policy.keyed
    assert found == Keyed(
        "queue",
        10,
        (
            Override(("bigco",), 1000 * ITEM, 200 * ITEM),
            Override(("mallory",), 100 * ITEM, ITEM),
        ),
    )
    values = limit_values(config.parse(text, "f").limits[0])
    assert values["overrides.bigco"] == "1.00 k requests/s, burst 200 requests"
    assert (values["bucket"], values["max_keys"], values["match.per"]) == ("queue", "10", "user")
    assert "allocator" not in values


def test_a_limit_on_bytes_may_have_keys() -> None:
    text = keyed('overrides = [{ user = "a", rate = "1mbit", burst = "9kB" }]')
    text = text.replace('"requests"', '"bytes"').replace('"100/s"', '"10mbit"')
    (limit,) = config.parse(text.replace("burst = 200", 'burst = "75kB"'), "f").limits
    assert limit.policy.unit is BYTES
    assert limit.policy.keyed is not None
    assert limit.policy.keyed.overrides == (Override(("a",), 125_000, 9_000),)


@pytest.mark.parametrize(
    ("extra", "problem"),
    [
        (
            'allocator = "fair"',
            "limit[0].allocator: must be left out: a limit with match.per has a bucket for each "
            "key, and nothing is divided",
        ),
        (
            "shares = { lim1 = 1.0 }",
            "limit[0].shares: must be left out: a limit with match.per has a bucket for each key, "
            "and nothing is divided",
        ),
        ('bucket = "bag"', "limit[0].bucket: must be 'ledger', 'queue' or 'counter' (got 'bag')"),
        ("max_keys = 0", "limit[0].max_keys: must be a number of keys, from 1 to 10000000 (got 0)"),
        (
            "max_keys = 10000001",
            "limit[0].max_keys: must be a number of keys, from 1 to 10000000 (got 10000001)",
        ),
        (
            'max_keys = "5"',
            "limit[0].max_keys: must be a number of keys, from 1 to 10000000 (got '5')",
        ),
        (
            "overrides = 1",
            'limit[0].overrides: must be an array of tables such as { user = "bigco", rate = '
            '"1000/s" } (got 1)',
        ),
        (
            'overrides = ["bigco"]',
            'limit[0].overrides[0]: must be a table such as { user = "bigco", rate = "1000/s" }, '
            "or a text such as \"user=bigco,rate=1000/s\" (got 'bigco')",
        ),
        (
            'overrides = ["user=bigco"]',
            "limit[0].overrides[0]: must have rate or burst",
        ),
        (
            'overrides = [{ rate = "1/s" }]',
            "limit[0].overrides[0].user: is required: it is a name of match.per",
        ),
        ('overrides = [{ user = "a" }]', "limit[0].overrides[0]: must have rate or burst"),
        (
            'overrides = [{ user = 1, rate = "1/s" }]',
            "limit[0].overrides[0].user: must be a text (got 1)",
        ),
        (
            'overrides = [{ user = "a", burst = 0 }]',
            'limit[0].overrides[0].burst: must be "auto", or a number of requests, from 1 to '
            "1000000 (got 0)",
        ),
        (
            'overrides = [{ user = "a", rates = "1/s", burst = 1 }]',
            'limit[0].overrides[0].rates: unknown key; did you mean "rate"?',
        ),
        (
            f"overrides = [{BIGCO}, {BIGCO}]",
            "limit[0].overrides[1]: must be of a key of its own (overrides[0] is of the same)",
        ),
    ],
)
def test_mistakes_are_named(extra: str, problem: str) -> None:
    assert problems(keyed(extra)) == [f"drld.toml: {problem}"]


def test_a_queue_has_no_element_for_each_byte() -> None:
    text = keyed('bucket = "queue"').replace('"100/s"', '"10mbit"')
    text = text.replace('unit = "requests"', 'unit = "bytes"').replace("burst = 200", "")
    reason = 'must not be "queue" for a limit on bytes'
    assert problems(text) == [f"drld.toml: limit[0].bucket: {reason}"]


@pytest.mark.parametrize("per", ["[]", '["rate"]', '["a", "a"]', "1"])
def test_a_bad_per_is_refused(per: str) -> None:
    (problem,) = problems(keyed(per=per))
    assert problem.startswith("drld.toml: limit[0].match.per: must be an array of 1 to 8 names")
    got = {"[]": "an empty array", "1": "1"}.get(per, "an array")
    assert problem.endswith(f"(got {got})")


def test_keys_of_limits_with_keys_are_for_them_alone() -> None:
    assert problems(changed(("burst = 200", "burst = 200\nmax_keys = 5"))) == [
        "drld.toml: limit[0].max_keys: must be left out: it is for limits with match.per"
    ]


def test_the_fleet_agrees_on_keys_and_buckets_but_not_on_memory() -> None:
    def agreed(text: str) -> dict[int, bytes]:
        spec = config.parse(text, "f")
        return shared_settings([limit.policy for limit in spec.limits], spec.gossip)

    forms = [
        agreed(text)
        for text in (
            changed(),
            keyed(),
            keyed(per='["plan"]'),
            keyed('bucket = "counter"'),
            keyed(f"overrides = [{BIGCO}]"),
        )
    ]
    assert len({tuple(sorted(form.items())) for form in forms}) == len(forms)
    assert agreed(keyed("max_keys = 5")) == agreed(keyed())


def test_the_port_for_deltas_is_read() -> None:
    text = changed(("[requests]", "[requests]\npeer_port = 8000"))
    assert config.parse(text, "f").plane(RequestsSpec).peer_port == 8000
    assert problems(text.replace("8000", "0")) == [
        "drld.toml: requests.peer_port: must be at least 1 (got 0)"
    ]


def test_a_pair_that_is_in_where_and_in_per_is_remarked_on() -> None:
    text = keyed(per='["user", "plan"]').replace('"api",', '"api", where = { plan = "free" },')
    assert config.remarks(config.parse(text, "f")) == [
        "limit.match: where and per name the same pair, so plan is the same in all keys of api: "
        "leave it out of per"
    ]
    other = text.replace("plan = ", "region = ")
    assert config.remarks(config.parse(other, "f")) == []


def test_buckets_that_surprise_draw_remarks() -> None:
    def remarks(extra: str, peers: str = PEERS) -> list[str]:
        spec = config.parse(keyed(extra) + peers, "f")
        return [line for line in config.remarks(spec) if not line.startswith("limit.match.per")]

    assert remarks("") == []
    (forgetful,) = remarks('bucket = "queue"')
    assert forgetful.startswith('limit.bucket: "queue" has no limit in the long run')
    assert remarks('bucket = "queue"', "") == []
    (lasting,) = remarks('bucket = "counter"')
    assert lasting.startswith('limit.bucket: "counter" never forgets a key')


def test_a_large_fleet_is_told_what_it_would_gossip() -> None:
    spec = config.parse(keyed() + PEERS, "f")
    # Twelve limiters tell eleven others twenty times a second at most.
    assert config.remarks(spec) == [
        "limit.match.per: entries a second, at most, for a key in use at all limiters: api "
        "(2.64 k) (docs/requests-per-user.md)"
    ]
    assert config.remarks(replace(spec, peers=spec.peers[:9])) == []
