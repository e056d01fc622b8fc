"""drlctl fleet init: files that a new fleet can start with."""

import json
import stat
import tempfile
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drld import config
from drld.daemon import main
from drld.messages.spec import MessagesSpec
from drld.requests.spec import RequestsSpec
from drld.spec import format_endpoint
from tests.unit.cli.drlctl import invoke, refused

LIMITS = """
[[limit]]
id = 1
name = "a"
rate = "10mbit"
match = { out = "eth0" }
"""


@pytest.fixture
def limits(tmp_path: Path) -> Path:
    file = tmp_path / "limits.toml"
    file.write_text(LIMITS)
    return file


def test_a_fleet_is_made_once_and_only_its_owner_may_read_it(
    tmp_path: Path, limits: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet, hosts = tmp_path / "edge", tmp_path / "hosts"
    hosts.write_text("lim2 \t 10.0.0.2:99\n\nlim3  10.0.0.3\n")
    command = ("fleet", "init", fleet, "lim1=10.0.0.1", "--hosts", hosts, "--limits", limits)
    options = ("--key-file", fleet / "fleet.key", "--json")
    made = json.loads(invoke(*command, *options).stdout)
    assert [host["address"] for host in made["hosts"]] == [
        *("10.0.0.1:7946", "10.0.0.2:99", "10.0.0.3:7946")
    ]
    assert (fleet / "hosts").read_text().splitlines()[1] == "lim2 10.0.0.2:99"
    assert {stat.S_IMODE(path.stat().st_mode) for path in fleet.iterdir()} == {0o600}
    assert stat.S_IMODE(fleet.stat().st_mode) == 0o700
    for host in made["hosts"]:
        assert main(["--config", host["file"], "--check"]) == 0
        assert "ok (limits: 1, peers: 2)" in capsys.readouterr().out
    before = {path: path.read_bytes() for path in fleet.iterdir()}
    assert "File exists" in refused(invoke(*command))
    assert {path: path.read_bytes() for path in fleet.iterdir()} == before


def test_each_host_gets_the_tables_of_other_planes(tmp_path: Path) -> None:
    (tmp_path / "shared.toml").write_text(
        """
[requests]
listen = "127.0.0.1:8099"
[[broker]]
name = "m"
protocol = "mqtt"
listen = "127.0.0.1:1883"
server = "127.0.0.1:1884"
[[limit]]
id = 1
name = "api"
rate = "9/s"
match = { namespace = "api", per = ["user"] }
"""
    )
    fleet = tmp_path / "edge"
    options = ("--limits", tmp_path / "shared.toml", "--key-file", fleet / "fleet.key")
    invoke("fleet", "init", fleet, "lim1=10.0.0.1", "lim2=10.0.0.2", *options)
    for name in ("lim1", "lim2"):
        spec = config.load(fleet / f"{name}.toml")
        assert spec.plane(RequestsSpec).listen == (("127.0.0.1", 8099),)
        assert [broker.name for broker in spec.plane(MessagesSpec).brokers] == ["m"]
        assert [limit.name for limit in spec.limits] == ["api"]


def test_tables_that_it_makes_are_refused(tmp_path: Path, limits: Path) -> None:
    limits.write_text(LIMITS + '[gossip]\nfabric = "mesh"\n')
    result = invoke("fleet", "init", tmp_path / "edge", "lim1=10.0.0.1", "--limits", limits)
    said = "limits.toml: gossip: must be left out: each host's file has its own\n"
    assert refused(result).endswith(said)


def test_a_list_of_hosts_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_bytes(b"lim1 \xff")
    result = invoke("fleet", "init", tmp_path / "edge", "--hosts", tmp_path / "hosts")
    assert "--hosts: the file must be UTF-8" in refused(result)
    assert not (tmp_path / "edge").exists()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["a=10.0.0.1", "b=fd00::1"], "peer[0].address: must be IPv4, as limiter.listen"),
        (["a=10.0.0.1", "b=10.0.0.1:7946"], "host b: must have an address of its own: a has 10."),
        (["a"], "host a: must have an address"),
        (["a=10.0.0.1", "a=10.0.0.2"], "host a: must be named once"),
        (["a=host"], "limiter.listen: must be an address and a port"),
        (["a=10.0.0.1", "../b=10.0.0.2"], "peer[0].name: must be a name"),
        (["a=10.0.0.1", "--fabric", "star"], "gossip.fabric: must be"),
        (["a=10.0.0.1", "--limits", "/nowhere"], "No such file"),
    ],
)
def test_a_mistake_leaves_nothing(tmp_path: Path, given: list[str], expected: str) -> None:
    assert expected in refused(invoke("fleet", "init", tmp_path / "edge", *given))
    assert not (tmp_path / "edge").exists()


def test_a_fleet_without_hosts_is_wrong_usage(tmp_path: Path) -> None:
    assert invoke("fleet", "init", tmp_path / "edge").exit_code == 2


NAMES = st.text(st.sampled_from("abcXYZ019._-"), min_size=1, max_size=64).filter(
    lambda name: name not in {".", ".."}  # names of directories
)
FAMILIES = (
    st.integers(0x0A000000, 0x0AFFFFFF).map(IPv4Address).map(str),
    st.integers(0xFD << 120, (0xFE << 120) - 1).map(IPv6Address).map(str),
)


@st.composite
def fleets(draw: st.DrawFn) -> dict[str, str]:
    """Names and endpoints of one family, some without a port."""
    names = draw(st.lists(NAMES, min_size=1, max_size=8, unique=True))
    its = draw(st.sampled_from(FAMILIES))
    chosen = draw(st.lists(its, min_size=len(names), max_size=len(names), unique=True))
    ports = draw(st.lists(st.integers(0, 65535), min_size=len(names), max_size=len(names)))
    return {
        name: format_endpoint(address, port) if port else address
        for name, address, port in zip(names, chosen, ports, strict=True)
    }


@given(fleets(), st.sampled_from([(), ("--fabric", "mesh")]))
@settings(max_examples=10)
def test_a_daemon_can_use_every_file(hosts: dict[str, str], fabric: tuple[str, ...]) -> None:
    with tempfile.TemporaryDirectory() as parent:
        fleet = Path(parent, "fleet")
        named = ["=".join(host) for host in hosts.items()]
        key = ("--key-file", fleet / "fleet.key")
        # A name may begin like an option.
        assert invoke("fleet", "init", *fabric, *key, "--", fleet, *named).exit_code == 0
        for name in hosts:
            spec = config.load(fleet / f"{name}.toml")
            assert spec.name == name
            assert {spec.name, *(peer.name for peer in spec.peers)} == hosts.keys()
            assert spec.ring.use == 1
