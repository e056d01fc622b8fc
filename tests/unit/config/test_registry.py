"""The table [registry], and what becomes of the others beside it."""

from __future__ import annotations

import os
from pathlib import Path

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


def test_shares_need_not_name_every_limiter() -> None:
    text = HEAD + REGISTRY + LIMIT
    (limit,) = config.parse(text + "shares = { lim1 = 0.25, lim9 = 0.75 }\n", "f").limits
    assert limit.policy.shares
    (line,) = problems(text + "shares = { lim1 = 0.25 }\n")
    assert line == "drld.toml: limit[0].shares: must sum to 1 (got 0.25)"


def test_weights_of_limiters_that_the_file_does_not_name() -> None:
    text = HEAD + REGISTRY + LIMIT + "weights = { lim1 = 2, lim9 = 0.5 }\n"
    assert config.parse(text, "f").limits[0].policy.weights == {"lim1": 2.0, "lim9": 0.5}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("https://etcd1:2379", "etcd1:2379", "registry.endpoints[0]: must be the URL of"),
        ("https://etcd1:2379", "http://e:99999", "registry.endpoints[0]: must be a port"),
        (
            '"https://etcd1:2379"',
            "",
            "registry.endpoints: must have 1 or more elements, not 0 (got an empty array)",
        ),
        ('["https://etcd1:2379"]', '"https://e:1"', "registry.endpoints: must be an array"),
        ('"edge"', '"a/b"', "registry.fleet: must be a name"),
        ('"edge"', '"edge"\nttl = "1s"', "registry.ttl: must be a duration such as"),
        ('"edge"', '"edge"\nforget_after = "1s"', "registry.forget_after: must be a duration"),
        (
            '"edge"',
            '"edge"\nttl = "2m"\nforget_after = "2m"',
            "registry.forget_after: must be longer than registry.ttl, 120s, for which",
        ),
        ('"edge"', '"edge"\nuser = 7', "registry.user: must be a text"),
        ('"edge"', '"edge"\nuser = "x"', "registry.password_file: is required with registry.user"),
        ('"edge"', '"edge"\nkey = "/k"', "registry.cert: is required with registry.key"),
        ('"edge"', '"edge"\ncache = "c"', "registry.cache: must be an absolute path"),
        (
            '"edge"',
            '"edge"\ninterfaces = { up = "*" }',
            "registry.interfaces.up: must be the name of",
        ),
        (
            '2379"',
            '2379", "http://e:1"',
            "registry.endpoints: must begin with https:// all, or with http:// all",
        ),
        ("https", "http", None),
    ],
)
def test_each_mistake_is_one_line_that_names_the_key(old: str, new: str, said: str | None) -> None:
    text = HEAD + REGISTRY.replace(old, new)
    if said is None:
        text += 'ca = "/ca.pem"\n'
        said = "registry.ca: must be left out unless the endpoints begin with https://"
    (line,) = problems(text)
    assert line.startswith(f"drld.toml: {said}")


@pytest.mark.parametrize(
    "host", [64 * "a", "a..b", ".a", "...", "[::::]", "[1]", "[::ffff:1.2.3.4.5]"]
)
def test_hosts_that_no_resolver_takes_are_refused(host: str) -> None:
    """Such hosts once ended the daemon: resolvers raise errors of other kinds."""
    (line,) = problems(HEAD + REGISTRY.replace("etcd1", host))
    assert line.startswith(
        "drld.toml: registry.endpoints[0]: must be the URL of an etcd server such as "
        '"https://10.0.0.9:2379" (got '
    )


@pytest.mark.parametrize("host", ["10.0.0.9", "etcd-1.example.org.", 63 * "a", "[fd00::9]"])
def test_names_and_addresses_of_hosts_are_accepted(host: str) -> None:
    spec = config.parse(HEAD + REGISTRY.replace("etcd1", host), "f")
    assert spec.registry is not None
    assert spec.registry.endpoints == (f"https://{host}:2379",)


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    """Reading the file finds the errors that a session would find, and shows no secret."""
    secret = "hunter2 " * 600
    (no_pem := tmp_path / "no.pem").write_text("no certificate")
    (long := tmp_path / "long").write_text(secret)
    (binary := tmp_path / "binary").write_bytes(b"hunter2\xff")
    (empty := tmp_path / "empty").touch()
    os.mkfifo(pipe := tmp_path / "pipe")
    none = tmp_path / "none"
    with_user = 'user = "u"\npassword_file = "{}"\n'
    for lines, path, said in (
        ('ca = "{}"\n', none, "registry.ca: {}: No such file or directory"),
        ('ca = "{}"\n', tmp_path, "registry.ca: {}: not a file"),
        ('ca = "{}"\n', pipe, "registry.ca: {}: not a file"),
        ('ca = "{}"\n', no_pem, "registry.ca: {}: TLS: no certificate or crl found"),
        ('ca = "{}"\n', empty, "registry.ca: {}: TLS: no certificate or crl found"),
        (with_user, none, "registry.password_file: {}: No such file or directory"),
        (with_user, pipe, "registry.password_file: {}: not a file"),
        (with_user, empty, "registry.password_file: {}: not a password"),
        (with_user, binary, "registry.password_file: {}: not a password"),
        (with_user, long, "registry.password_file: {}: not a password"),
        ('cert = "{0}"\nkey = "{0}"\n', none, "registry.cert, registry.key: {0}, {0}: No such"),
        (
            'cert = "{0}"\nkey = "{0}"\n',
            no_pem,
            "registry.cert, registry.key: {0}, {0}: not a certificate",
        ),
    ):
        (line,) = problems(HEAD + REGISTRY + lines.format(path))
        assert line.startswith(f"drld.toml: {said.format(path)}")
        assert "hunter2" not in line


@pytest.mark.parametrize("url", ["https://u:hunter2@etcd1:2379", "https://a@b:hunter2@etcd1:2379"])
@pytest.mark.parametrize("where", ["endpoints = ['{}']\n", "fleet = '{}'\n", "user = ['{}']\n"])
def test_no_password_of_a_url_is_shown(where: str, url: str) -> None:
    key = where.partition(" ")[0]
    lines = [line for line in REGISTRY.splitlines() if not line.startswith(key)]
    found = problems(HEAD + "\n".join(lines) + "\n" + where.format(url))
    assert "hunter2" not in "".join(found)
    assert f"registry.{key}" in found[0]


def test_a_password_in_a_url_is_refused_with_its_place() -> None:
    (line,) = problems(HEAD + REGISTRY.replace("https://", "https://u:hunter2@"))
    assert line == (
        "drld.toml: registry.endpoints[0]: must be the URL of an etcd server "
        'such as "https://10.0.0.9:2379"; registry.user and registry.password_file say who we are '
        "(got 'https://...@etcd1:2379')"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            HEAD + REGISTRY + 'user = "u"\npassword_file = "hunter2"\n',
            "registry.password_file: must be an absolute path",
        ),
        (HEAD + '[gossip]\nkeys = "hunter2"\n' + LIMIT, "gossip.keys: must be an array"),
        (HEAD + '[gossip]\nkeys = ["hunter2"]\n' + LIMIT, "gossip.keys[0]: must be a table"),
        (
            HEAD + '[gossip]\nkeys = [{ id = 1, file = "hunter2" }]\n' + LIMIT,
            "gossip.keys[0].file: must be an absolute path",
        ),
    ],
)
def test_a_secret_in_the_place_of_its_file_is_not_shown(text: str, said: str) -> None:
    (line,) = problems(text)
    assert line.startswith(f"drld.toml: {said}")
    assert line.endswith(" (got a text)")


def test_a_central_bucket_has_no_fleet() -> None:
    (line,) = problems(HEAD + REGISTRY + LIMIT + 'allocator = "ctb"\n')
    assert "ctb is for one limiter alone" in line
