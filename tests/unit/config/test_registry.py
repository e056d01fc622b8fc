"""The table [registry], and what becomes of the others beside it."""

from __future__ import annotations

import pytest

from drld import config
from drld.spec import RegistrySpec

from .good import GOOD, LIMIT, problems

HEAD = GOOD[: GOOD.index("[[peer]]")]
REGISTRY = '[registry]\nendpoints = ["https://etcd1:2379"]\nfleet = "edge"\n'


def test_peers_and_limits_may_be_left_out() -> None:
    spec = config.parse(HEAD + REGISTRY, "f")
    assert (spec.peers, spec.limits) == ((), ())
    assert spec.registry == RegistrySpec(
        endpoints=("https://etcd1:2379",),
        fleet="edge",
        ttl_ns=10**10,
        cache="/var/lib/drld/lim1.registry.json",
    )
    assert config.parse(GOOD + REGISTRY, "f").peers[0].name == "lim2"


def test_shares_need_not_name_everybody() -> None:
    text = HEAD + REGISTRY + LIMIT
    assert config.parse(text + "shares = { lim1 = 0.25, lim9 = 0.75 }\n", "f").limits[0].shares
    (line,) = problems(text + "shares = { lim1 = 0.25 }\n")
    assert line == "drld.toml: limit[0].shares: sum to 0.25: the shares of a fleet sum to 1"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("https://etcd1:2379", "etcd1:2379", "registry.endpoints[0]: 'etcd1:2379': the URL of"),
        ("https://etcd1:2379", "http://e:99999", "registry.endpoints[0]: 'http://e:99999': a port"),
        ('"https://etcd1:2379"', "", "registry.endpoints: an array: with 1 or more elements"),
        ('["https://etcd1:2379"]', '"https://e:1"', "registry.endpoints: 'https://e:1': an array"),
        ('"edge"', '"a/b"', "registry.fleet: 'a/b': a name"),
        ('"edge"', '"edge"\nttl = "1s"', "registry.ttl: '1s': a duration such as"),
        ('"edge"', '"edge"\nforget_after = "1s"', "registry.forget_after: '1s': a duration"),
        ('"edge"', '"edge"\nuser = "x"', "registry.password_file: missing: registry.user needs it"),
        ('"edge"', '"edge"\nkey = "/k"', "registry.cert: missing: registry.key needs it"),
        ('"edge"', '"edge"\ncache = "c"', "registry.cache: 'c': an absolute path"),
        ('"edge"', '"edge"\ninterfaces = { up = "*" }', "registry.interfaces.up: '*': the name of"),
        ('2379"', '2379", "http://e:1"', "registry.endpoints: all of them https, or none"),
        ("https", "http", None),
    ],
)
def test_mistakes(old: str, new: str, said: str | None) -> None:
    text = HEAD + REGISTRY.replace(old, new)
    if said is None:
        text += 'ca = "/ca.pem"\n'
        said = "registry.ca: is for endpoints that begin with https://"
    (line,) = problems(text)
    assert line.startswith(f"drld.toml: {said}")


def test_a_central_bucket_has_no_fleet() -> None:
    (line,) = problems(HEAD + REGISTRY + LIMIT + 'allocator = "ctb"\n')
    assert "ctb is for one limiter alone" in line
