"""Values in etcd: a good one is used, a bad one changes nothing and is told in a line.

An input is what happens to a store of keys, one event a line: `KEY=VALUE` puts a value under a key
of the fleet, `KEY` alone deletes it, `wipe` makes etcd forget everything, and `read` has the
limiter read all there is anew, as it does when its watch broke off. `merge` of what it knows with
its file must be a configuration at any time.
"""

from __future__ import annotations

from drld.errors import ConfigError
from drld.registry.model.merge import merge
from drld.registry.model.state import Registry
from drld.registry.records import read_alive, write_members
from drld.spec import LimiterSpec
from tests.fuzz.targets.base import Target
from tests.registry_factories import FLEET, KEYS, OTHER, Store, file_spec, known, limit, member

FILE = "drld.toml"
_MOST_EVENTS = 40


def check(data: bytes) -> bool:
    """Whether the limiter knows a limit at the end."""
    store, registry = Store(), known()
    registry.resync(*store.read())
    for line in data.split(b"\n")[:_MOST_EVENTS]:
        before = store.revision
        if line == b"wipe":
            store.wipe()
            registry.resync(*store.read())
        elif line == b"read":
            registry.resync(*store.read())
        else:
            name, equals, value = line.partition(b"=")
            key = KEYS.prefix + name.decode(errors="replace")
            store.commit({key: value if equals else None})
            registry.apply(store.since(before))
            if KEYS.alive_of(key) is not None:
                check_alive(value, key)
        check_registry(registry)
    return bool(registry.limits)


def check_registry(registry: Registry) -> None:
    """The known state is usable, and can be written again."""
    for key, problem in registry.problems.items():
        assert problem.startswith(f"etcd {key}: "), problem
        check_problem(problem)
    for limit_id, held in registry.limits.items():
        assert held.value.id == limit_id
    for _, value in registry.restoration():
        assert value
    knowledge = registry.knowledge()
    again = known()
    former = write_members(KEYS, registry.former)
    again.recall(registry.fleet, registry.revision, knowledge, former)
    assert again.knowledge() == knowledge
    assert again.former == registry.former
    if (registration := registry.registration(1)) is not None:
        assert registration[1] >= 0
    merged = merge(file_spec(), FILE, registry)
    assert isinstance(merged.spec, LimiterSpec)
    for key, problem in merged.problems.items():
        assert key in knowledge
        check_problem(problem)


def check_problem(problem: str) -> None:
    """A few lines of bounded length."""
    for line in problem.split("\n"):
        assert len(line.splitlines()) <= 1
        assert len(line) < 1000


def check_alive(value: bytes, key: str) -> None:
    """A limiter's report on itself is read for drlctl."""
    try:
        alive = read_alive(value, key)
    except ConfigError as error:
        for problem in error.problems:
            check_problem(problem)
        return
    assert len(alive.refused) <= 16


def seeds() -> list[bytes]:
    fleet = b"fleet=" + FLEET.encode()
    both = [b"members/a=" + member(1), b"members/b=" + member(2)]
    one, two = b"limits/1=" + limit(1), b"limits/2=" + limit(2, shares={"a": 0.5, "b": 0.5})
    marking = b"limits/1=" + limit(1, burst="auto", excess="mark", weights={"a": 2, "c": 0.5})
    alive = b'alive/b={"address":"127.0.0.2:7946","applied":3,"refused":{"limits/1":"no"}}'
    scripts = [
        [fleet, *both, one, two, alive],
        [fleet, *both, one, b"read", b"limits/2", b"members/b", two],
        [fleet, *both, one, marking, two, b"read"],
        [fleet, *both, one, b"wipe", b"fleet=" + OTHER.encode(), two, b"read"],
        [fleet, one, b"limits/1={}", b"limits/1=" + limit(2), b"members/b=[]", b"read"],
    ]
    return [b"\n".join(script) for script in scripts]


WORDS = (
    *(b"fleet=", b"members/", b"limits/", b"alive/", b"removed/", b"wipe\n", b"read\n", b"\n"),
    *(b"=", b"a", b"b", b"1", b"2", b"65535", b"65536", b"0", b"..", b"/", b"\x00", b"\xff"),
    *(b'"id":', b'"name":', b'"rate":', b'"burst":', b'"match":', b'"out":', b'"in":', b"null"),
    *(b'"flow":', b'"source"', b'"source/24/56"', b'"5-tuple"'),
    *(b'"excess":', b'"weights":', b'"auto"', b'"mark"', b'"drop"', b'"400gbit"', b'{"a":2}'),
    *(b'"shares":', b'"allocator":', b'"address":', b'"joined":', b'"since":', b'"applied":'),
    *(b'"refused":', b'"10mbit"', b'"75kB"', b'"127.0.0.2:7946"', b'"ctb"', b'"fps"', b"true"),
    *(b"NaN", b"1e999", b'"\\ud800"', b"{", b"}", b"[", b"]", b"[" * 3000, b","),
    *(FLEET.encode(), OTHER.encode()),
)

TARGET = Target(check, seeds, words=WORDS, max_bytes=4000)
