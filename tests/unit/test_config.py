"""A good configuration becomes a spec; each mistake becomes one line that says what to do."""

from __future__ import annotations

import math
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path

import pytest

from drld import config
from drld.allocators import ALLOCATORS
from drld.errors import ConfigError
from drld.spec import Direction, GossipSpec, LimiterSpec, Match, Mode, OnFailure, PeerSpec

DOCS = Path(__file__).resolve().parents[2] / "docs"

GOOD = """
[limiter]
name = "lim1"
listen = "10.0.0.1:7946"

[[peer]]
name = "lim2"
address = "10.0.0.2:7946"

[[limit]]
id = 1
name = "a"
rate = "10mbit"
burst = "75kB"
match = { out = "eth1" }
"""
LIMIT = GOOD[GOOD.index("[[limit]]") :]


def changed(*changes: tuple[str, str]) -> str:
    """The good configuration with the first occurrence of each text replaced."""
    text = GOOD
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    return text


def with_match(match: str) -> str:
    return changed(('{ out = "eth1" }', f'{{ out = "eth1", {match} }}'))


def with_limit_key(line: str) -> str:
    return changed(("[[limit]]\n", f"[[limit]]\n{line}\n"))


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        config.parse(text, "drld.toml")
    assert all("\n" not in line for line in caught.value.problems)
    return caught.value.problems


def match(text: str) -> Match:
    return config.parse(with_match(text), "drld.toml").limits[0].match


# What is right.


def test_defaults() -> None:
    spec = config.parse(GOOD, "drld.toml")
    assert spec.name == "lim1"
    assert spec.listen == ("10.0.0.1", 7946)
    assert spec.control == "/run/drld/lim1.sock"
    assert (spec.datapath, spec.firewall, spec.queue) == ("auto", "auto", None)
    assert spec.timestamps == "auto"
    assert spec.gossip == GossipSpec("pushsum", 3, 50_000_000)
    assert spec.peers == (PeerSpec("lim2", ("10.0.0.2", 7946)),)
    (limit,) = spec.limits
    assert (limit.id, limit.name) == (1, "a")
    assert (limit.rate, limit.burst) == (1_250_000, 75_000)
    assert limit.match == Match("eth1", Direction.OUT)
    assert limit.allocator == "fps"
    assert limit.parameters == ALLOCATORS["fps"].Parameters()
    assert (limit.interval_ns, limit.ewma) == (50_000_000, 0.1)
    assert (limit.mode, limit.on_failure) == (Mode.ENFORCE, OnFailure.DEFAULT)
    assert limit.shares == {}


def test_the_example_shows_every_kind_of_value() -> None:
    spec = config.load(DOCS / "drld.example.toml")
    assert spec.members == {"lim1", "lim2", "lim3"}
    first, second = spec.limits
    assert first.match == Match(
        "eth1", Direction.OUT, destination=IPv4Network("10.9.2.0/24"), protocol=6
    )
    assert second.allocator == "fps-random-drop"
    assert second.parameters == ALLOCATORS["fps-random-drop"].Parameters(headroom=0.2)
    assert (second.mode, second.on_failure) == (Mode.SHADOW, OnFailure.OPEN)
    assert second.shares == {"lim1": 0.5, "lim2": 0.25, "lim3": 0.25}
    assert second.match == Match(
        "wg0",
        Direction.IN,
        source=IPv6Network("fd00:9:2::/64"),
        destination=IPv6Network("fd00:1::/48"),
        protocol=17,
        source_ports=((4500, 4500), (8000, 8100)),
        destination_ports=((51820, 51820),),
        mark=(0x10, 0xFF),
    )


def test_the_defaults_in_the_example_are_the_defaults() -> None:
    text = (DOCS / "drld.example.toml").read_text()
    start = text.index("[[limit]]")
    one = text[: text.index("[[limit]]", start + 1)]
    required = ("name =", "listen =", "address =", "id =", "rate =", "burst =", "match =", "[")
    bare = "\n".join(line for line in one.splitlines() if line.startswith(required))
    assert config.parse(one, "full") == config.parse(bare, "bare")


def test_the_interval_of_a_limit_is_the_gossip_interval_unless_given() -> None:
    text = GOOD + '[gossip]\ninterval = "100ms"\n'
    assert config.parse(text, "f").limits[0].interval_ns == 100_000_000
    text = text.replace("id = 1", 'id = 1\ninterval = "500ms"')
    assert config.parse(text, "f").limits[0].interval_ns == 500_000_000


def test_ipv6_addresses_are_bracketed_and_canonical() -> None:
    text = changed(("10.0.0.1:7946", "[FD00::1]:7946"), ("10.0.0.2:7946", "[fd00:0::2]:1"))
    spec = config.parse(text, "f")
    assert spec.listen == ("fd00::1", 7946)
    assert spec.peers[0].address == ("fd00::2", 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('source = "10.9.2.5"', Match("eth1", Direction.OUT, source=IPv4Network("10.9.2.5/32"))),
        ('source = "0.0.0.0/0"', Match("eth1", Direction.OUT, source=IPv4Network("0.0.0.0/0"))),
        ('protocol = "TCP"', Match("eth1", Direction.OUT, protocol=6)),
        ("protocol = 0", Match("eth1", Direction.OUT, protocol=0)),
        ('protocol = "47"', Match("eth1", Direction.OUT, protocol=47)),
        (
            'protocol = "icmpv6", source = "fd00::/16"',
            Match("eth1", Direction.OUT, protocol=58, source=IPv6Network("fd00::/16")),
        ),
        (
            'protocol = "sctp", source_port = "80"',
            Match("eth1", Direction.OUT, protocol=132, source_ports=((80, 80),)),
        ),
        (
            'protocol = 6, destination_port = [80, "443", "8000-8100"]',
            Match(
                "eth1",
                Direction.OUT,
                protocol=6,
                destination_ports=((80, 80), (443, 443), (8000, 8100)),
            ),
        ),
        ("mark = 16", Match("eth1", Direction.OUT, mark=(16, 0xFFFFFFFF))),
        ("mark = 0", Match("eth1", Direction.OUT, mark=(0, 0xFFFFFFFF))),
        ('mark = "0x10"', Match("eth1", Direction.OUT, mark=(16, 0xFFFFFFFF))),
        ('mark = "16/255"', Match("eth1", Direction.OUT, mark=(16, 255))),
    ],
)
def test_matches(text: str, expected: Match) -> None:
    assert match(text) == expected


def test_shares_written_with_nine_digits_are_close_enough() -> None:
    text = with_limit_key("shares = { lim1 = 0.333333333, lim2 = 0.666666667 }")
    assert math.isclose(sum(config.parse(text, "f").limits[0].shares.values()), 1)


def test_a_single_limiter_may_have_a_central_bucket() -> None:
    text = changed(('[[peer]]\nname = "lim2"\naddress = "10.0.0.2:7946"\n', ""))
    text = text.replace("id = 1", 'id = 1\nallocator = "ctb"')
    assert config.parse(text, "f").limits[0].allocator == "ctb"


def test_no_limits_at_all_must_be_meant() -> None:
    assert problems(GOOD.replace(LIMIT, "")) == [
        "drld.toml: limit: missing: the file needs a [[limit]] table (limit = [] for none)"
    ]
    text = "limit = []\n" + GOOD.replace(LIMIT, "")
    assert config.parse(text, "f").limits == ()


# What is wrong: the change to a good file, and the one line that is said of it.

WRONG: dict[str, tuple[str, str]] = {
    # Keys
    "section with an s": (
        changed(("[[limit]]", "[[limits]]")),
        'limits: unknown key; did you mean "limit"?',
    ),
    "section nobody knows": (
        GOOD + "[zzz]\n",
        "zzz: unknown key; known here: limiter, gossip, peer, limit",
    ),
    "misspelt key": (
        with_limit_key("on_failures = 'open'"),
        'limit[0].on_failures: unknown key; did you mean "on_failure"?',
    ),
    "misspelt key in match": (
        with_match('dest = "10.0.0.0/8"'),
        'limit[0].match.dest: unknown key; did you mean "destination"?',
    ),
    "key in the wrong section": (
        changed(("[limiter]", "[limiter]\ninterval = '50ms'")),
        "limiter.interval: unknown key; "
        "known here: name, listen, control, datapath, firewall, queue, timestamps",
    ),
    "odd key": (
        GOOD + '["a\\nb"]\n',
        r"'a\nb': unknown key; known here: limiter, gossip, peer, limit",
    ),
    "no limiter": (
        changed(("[limiter]", "[gossip]"), ('name = "lim1"', ""), ('listen = "10.0.0.1:7946"', "")),
        "limiter: missing: the file needs a [limiter] table",
    ),
    "array of limiters": (
        changed(("[limiter]", "[[limiter]]")),
        "limiter: an array: one table, [limiter]",
    ),
    "one bracket": (
        changed(("[[peer]]", "[peer]")),
        "peer: a table: an array of tables: [[peer]], with two brackets",
    ),
    "peers by name": (
        changed(('[[peer]]\nname = "lim2"\naddress = "10.0.0.2:7946"\n', "")).replace(
            "[limiter]", 'peer = ["lim2"]\n[limiter]'
        ),
        "peer[0]: 'lim2': a table",
    ),
    "no name": (changed(('name = "lim1"\n', "")), "limiter.name: missing"),
    "no rate": (changed(('rate = "10mbit"\n', "")), "limit[0].rate: missing"),
    "no match": (changed(('match = { out = "eth1" }\n', "")), "limit[0].match: missing"),
    # [limiter]
    "limiter name with a space": (
        changed(("lim1", "lim 1")),
        "limiter.name: 'lim 1': a name: 1 to 64 letters, digits, dots, dashes or underscores",
    ),
    "long name": (
        changed(('"lim1"', '"' + "x" * 65 + '"')),
        f"limiter.name: '{'x' * 59}...: "
        "a name: 1 to 64 letters, digits, dots, dashes or underscores",
    ),
    "name that is a number": (
        changed(('"lim1"', "1")),
        "limiter.name: 1: a name: 1 to 64 letters, digits, dots, dashes or underscores",
    ),
    "listen without a port": (
        changed(("10.0.0.1:7946", "10.0.0.1")),
        "limiter.listen: '10.0.0.1': "
        'an address and a port such as "10.0.0.1:7946" or "[fd00::1]:7946"',
    ),
    "listen on a port": (
        changed(('"10.0.0.1:7946"', "7946")),
        'limiter.listen: 7946: an address and a port such as "10.0.0.1:7946" or "[fd00::1]:7946"',
    ),
    "listen on a host name": (
        changed(("10.0.0.1:7946", "lim1.example.net:7946")),
        "limiter.listen: 'lim1.example.net:7946': an address and a port such as "
        '"10.0.0.1:7946" or "[fd00::1]:7946", and no host name',
    ),
    "IPv6 without brackets": (
        changed(("10.0.0.1:7946", "fd00::1:7946")),
        "limiter.listen: 'fd00::1:7946': "
        'an address and a port such as "10.0.0.1:7946" or "[fd00::1]:7946"',
    ),
    "IPv4 in brackets": (
        changed(("10.0.0.1:7946", "[10.0.0.1]:7946")),
        "limiter.listen: '[10.0.0.1]:7946': "
        'an address and a port such as "10.0.0.1:7946" or "[fd00::1]:7946"',
    ),
    "IPv6 zone": (
        changed(("10.0.0.1:7946", "[fe80::1%eth0]:7946")),
        "limiter.listen: '[fe80::1%eth0]:7946': an address without a zone, and IPv4 as IPv4",
    ),
    "IPv4 as IPv6": (
        changed(("10.0.0.1:7946", "[::ffff:10.0.0.1]:7946")),
        "limiter.listen: '[::ffff:10.0.0.1]:7946': an address without a zone, and IPv4 as IPv4",
    ),
    "wildcard": (
        changed(("10.0.0.1:7946", "0.0.0.0:7946")),
        "limiter.listen: '0.0.0.0:7946': "
        "one address, not the wildcard: a daemon binds the address it announces",
    ),
    "IPv6 wildcard": (
        changed(("10.0.0.1:7946", "[::]:7946")),
        "limiter.listen: '[::]:7946': "
        "one address, not the wildcard: a daemon binds the address it announces",
    ),
    "multicast": (
        changed(("10.0.0.2:7946", "224.0.0.1:7946")),
        "peer[0].address: '224.0.0.1:7946': the address of one host",
    ),
    "broadcast": (
        changed(("10.0.0.2:7946", "255.255.255.255:7946")),
        "peer[0].address: '255.255.255.255:7946': the address of one host",
    ),
    "port 0": (
        changed(("10.0.0.1:7946", "10.0.0.1:0")),
        "limiter.listen: '10.0.0.1:0': a port from 1 to 65535",
    ),
    "port above 65535": (
        changed(("10.0.0.1:7946", "10.0.0.1:70000")),
        "limiter.listen: '10.0.0.1:70000': a port from 1 to 65535",
    ),
    "relative socket": (
        changed(("[limiter]", "[limiter]\ncontrol = 'lim1.sock'")),
        "limiter.control: 'lim1.sock': an absolute path such as \"/run/drld/lim1.sock\"",
    ),
    "socket path too long": (
        changed(("[limiter]", f"[limiter]\ncontrol = '/{'x' * 107}'")),
        f"limiter.control: '/{'x' * 58}...: a path of at most 107 bytes, none of them zero",
    ),
    "unknown timestamps": (
        changed(("[limiter]", "[limiter]\ntimestamps = 'hardware'")),
        "limiter.timestamps: 'hardware': 'auto', 'ebpf', 'kernel' or 'read'",
    ),
    "firewall on the kernel datapath": (
        changed(("[limiter]", "[limiter]\ndatapath = 'kernel'\nfirewall = 'nft'")),
        'limiter.firewall: \'nft\': "auto", for datapath = "kernel" needs no firewall',
    ),
    "queue on the kernel datapath": (
        changed(("[limiter]", "[limiter]\ndatapath = 'kernel'\nqueue = 0")),
        'limiter.queue: 0: left out, for datapath = "kernel" has no queue',
    ),
    "a share that nfqueue cannot keep up": (
        changed(
            ("[limiter]", "[limiter]\ndatapath = 'nfqueue'"),
            ("[[limit]]", "[[limit]]\non_failure = 'share'"),
        ),
        'limit[0].on_failure: \'share\': "open" or "closed", for with datapath = "nfqueue" '
        "nobody can keep up a share",
    ),
    "open and closed in one rule of nfqueue": (
        changed(("[limiter]", "[limiter]\ndatapath = 'nfqueue'"))
        + LIMIT.replace("id = 1", "id = 2").replace('"a"', "'b'\non_failure = 'open'"),
        'limit[1].on_failure: "open" on both this limit and limit[0], or on neither: with '
        'datapath = "nfqueue" the limits of an interface and direction share a rule',
    ),
    "timestamps on the kernel datapath": (
        changed(("[limiter]", "[limiter]\ndatapath = 'kernel'\ntimestamps = 'read'")),
        "limiter.timestamps: 'read': "
        '"auto", for datapath = "kernel" judges packets as they arrive',
    ),
    "unknown datapath": (
        changed(("[limiter]", "[limiter]\ndatapath = 'xdp'")),
        'limiter.datapath: \'xdp\': "auto", "kernel" or "nfqueue"',
    ),
    "unknown firewall": (
        changed(("[limiter]", "[limiter]\nfirewall = 'ufw'")),
        "limiter.firewall: 'ufw': 'auto', 'nft', 'iptables' or 'none'",
    ),
    "queue out of range": (
        changed(("[limiter]", "[limiter]\nqueue = 65536")),
        "limiter.queue: 65536: less than or equal to 65535",
    ),
    "queue as a text": (
        changed(("[limiter]", "[limiter]\nqueue = '1'")),
        "limiter.queue: '1': a valid integer",
    ),
    "queue as a truth": (
        changed(("[limiter]", "[limiter]\nqueue = true")),
        "limiter.queue: True: a valid integer",
    ),
    # [gossip]
    "unknown fabric": (
        GOOD + "[gossip]\nfabric = 'gossip'",
        "gossip.fabric: 'gossip': 'mesh' or 'pushsum'",
    ),
    "no branching": (
        GOOD + "[gossip]\nbranching = 0",
        "gossip.branching: 0: greater than or equal to 1",
    ),
    "interval as a number": (
        GOOD + "[gossip]\ninterval = 50",
        'gossip.interval: 50: a duration such as "50ms", from "10ms" to "10s"',
    ),
    "interval without a unit": (
        GOOD + "[gossip]\ninterval = '50'",
        'gossip.interval: \'50\': a duration such as "50ms" or "1.5s", with its unit',
    ),
    "interval too short": (
        GOOD + "[gossip]\ninterval = '9.999ms'",
        'gossip.interval: \'9.999ms\': a duration such as "50ms", from "10ms" to "10s"',
    ),
    "interval too long": (
        with_limit_key("interval = '10.001s'"),
        'limit[0].interval: \'10.001s\': a duration such as "50ms", from "10ms" to "10s"',
    ),
    # [[peer]]
    "own name among the peers": (
        changed(("lim2", "lim1")),
        "peer[0].name: 'lim1': unique, but limiter.name is the same",
    ),
    "own address among the peers": (
        changed(("10.0.0.2:7946", "10.0.0.1:7946")),
        "peer[0].address: '10.0.0.1:7946': unique, but limiter.listen is the same",
    ),
    "peer twice": (
        GOOD + '[[peer]]\nname = "lim2"\naddress = "10.0.0.3:7946"',
        "peer[1].name: 'lim2': unique, but peer[0].name is the same",
    ),
    "peer address twice": (
        GOOD + '[[peer]]\nname = "lim3"\naddress = "10.0.0.2:7946"',
        "peer[1].address: '10.0.0.2:7946': unique, but peer[0].address is the same",
    ),
    "peer of another family": (
        changed(("10.0.0.2:7946", "[fd00::2]:7946")),
        "peer[0].address: 'fd00::2': IPv4, as limiter.listen",
    ),
    "listen on loopback": (
        changed(("10.0.0.1:7946", "127.0.0.1:7946")),
        "peer[0].address: '10.0.0.2': an address that limiter.listen (127.0.0.1) can reach: "
        "both loopback, or neither",
    ),
    # [[limit]]
    "limit id 0": (
        changed(("id = 1", "id = 0")),
        "limit[0].id: 0: greater than or equal to 1",
    ),
    "limit id too high": (
        changed(("id = 1", "id = 65536")),
        "limit[0].id: 65536: less than or equal to 65535",
    ),
    "enormous limit id": (
        changed(("id = 1", "id = 0x1" + "0" * 5000)),
        "limit[0].id: an integer beyond 64 bits: less than or equal to 65535",
    ),
    "limit id twice": (
        GOOD + LIMIT.replace('"a"', '"b"'),
        "limit[1].id: 1: unique, but limit[0].id is the same",
    ),
    "limit name twice": (
        GOOD + LIMIT.replace("id = 1", "id = 2"),
        "limit[1].name: 'a': unique, but limit[0].name is the same",
    ),
    "limit name with a slash": (
        changed(('"a"', '"a/b"')),
        "limit[0].name: 'a/b': a name: 1 to 64 letters, digits, dots, dashes or underscores",
    ),
    "rate with a typing error": (
        changed(("10mbit", "10mbot")),
        "limit[0].rate: '10mbot': a rate such as \"10mbit\"",
    ),
    "rate as a number": (
        changed(('"10mbit"', "10_000_000")),
        'limit[0].rate: 10000000: a rate such as "10mbit"',
    ),
    "ambiguous rate": (
        changed(("10mbit", "10mbps")),
        'limit[0].rate: \'10mbps\': a rate such as "10mbit"; "mbps" is ambiguous '
        '(tc reads it as bytes, others as bits): write "mbit" or "MB/s"',
    ),
    "rate of nothing": (
        changed(("10mbit", "0bit")),
        'limit[0].rate: \'0bit\': a rate from "8bit" (1 B/s) to "100gbit"',
    ),
    "burst below a packet": (
        changed(("75kB", "1499B")),
        "limit[0].burst: '1499B': "
        'a size such as "75kB", from "1500B" (one full-size packet) to "4GB"',
    ),
    "burst in bits": (
        changed(("75kB", "600kbit")),
        'limit[0].burst: \'600kbit\': a size in bytes such as "75kB" or "64KiB"',
    ),
    "burst as a number": (
        changed(('"75kB"', "75000")),
        "limit[0].burst: 75000: "
        'a size such as "75kB", from "1500B" (one full-size packet) to "4GB"',
    ),
    "ewma of 1": (with_limit_key("ewma = 1.0"), "limit[0].ewma: 1.0: less than 1"),
    "negative ewma": (
        with_limit_key("ewma = -0.1"),
        "limit[0].ewma: -0.1: greater than or equal to 0",
    ),
    "ewma that is no number": (with_limit_key("ewma = nan"), "limit[0].ewma: nan: a finite number"),
    "ewma as a text": (with_limit_key("ewma = '0.1'"), "limit[0].ewma: '0.1': a valid number"),
    "unknown mode": (
        with_limit_key("mode = 'monitor'"),
        "limit[0].mode: 'monitor': 'enforce' or 'shadow'",
    ),
    "unknown failure mode": (
        with_limit_key("on_failure = 'fail-open'"),
        "limit[0].on_failure: 'fail-open': 'share', 'open' or 'closed'",
    ),
    # allocator
    "unknown allocator": (
        with_limit_key("allocator = 'FPS'"),
        "limit[0].allocator: 'FPS': "
        "an allocator: one of ctb, static, gtb, grd, fps, fps-random-drop",
    ),
    "unknown allocator in a table": (
        with_limit_key("allocator = { name = 'wfq' }"),
        "limit[0].allocator.name: 'wfq': "
        "an allocator: one of ctb, static, gtb, grd, fps, fps-random-drop",
    ),
    "allocator without a name": (
        with_limit_key("allocator = { headroom = 0.2 }"),
        "limit[0].allocator.name: missing",
    ),
    "allocator as an array": (
        with_limit_key("allocator = ['fps']"),
        "limit[0].allocator: an array: "
        "an allocator: one of ctb, static, gtb, grd, fps, fps-random-drop",
    ),
    "unknown parameter": (
        with_limit_key("allocator = { name = 'fps', head_room = 0.2 }"),
        'limit[0].allocator.head_room: unknown key; did you mean "headroom"?',
    ),
    "parameter of an allocator that has none": (
        with_limit_key("allocator = { name = 'grd', headroom = 0.2 }"),
        "limit[0].allocator.headroom: unknown key; none is known here",
    ),
    "parameter as a text": (
        with_limit_key("allocator = { name = 'fps', headroom = '20%' }"),
        "limit[0].allocator.headroom: '20%': a valid number",
    ),
    "infinite parameter": (
        with_limit_key("allocator = { name = 'fps', growth = inf }"),
        "limit[0].allocator.growth: inf: a finite number",
    ),
    "fraction of a packet": (
        with_limit_key("allocator = { name = 'fps', depth_packets = 1.5 }"),
        "limit[0].allocator.depth_packets: 1.5: a valid integer",
    ),
    "parameter the allocator refuses": (
        with_limit_key("allocator = { name = 'fps', saturation = 1.5 }"),
        "limit[0].allocator.saturation: 1.5 is not in (0, 1]",
    ),
    "central bucket with peers": (
        with_limit_key("allocator = 'ctb'"),
        "limit[0].allocator: 'ctb': an allocator for a fleet: ctb is for one limiter alone",
    ),
    # shares
    "share of a stranger": (
        with_limit_key("shares = { lim1 = 0.5, lim2 = 0.5, lim3 = 0 }"),
        'limit[0].shares.lim3: unknown key; did you mean "lim2"?',
    ),
    "share left out": (
        with_limit_key("shares = { lim1 = 1.0 }"),
        "limit[0].shares: missing lim2: every limiter of the fleet has a share",
    ),
    "shares below 1": (
        with_limit_key("shares = { lim1 = 0.3333, lim2 = 0.6666 }"),
        "limit[0].shares: sum to 0.9999: the shares of a fleet sum to 1",
    ),
    "share above 1": (
        with_limit_key("shares = { lim1 = 30, lim2 = 0.7 }"),
        "limit[0].shares.lim1: 30: less than or equal to 1",
    ),
    "share as a text": (
        with_limit_key("shares = { lim1 = '50%', lim2 = 0.5 }"),
        "limit[0].shares.lim1: '50%': a valid number",
    ),
    "shares as an array": (
        with_limit_key("shares = [0.5, 0.5]"),
        "limit[0].shares: an array: a table",
    ),
    # match
    "no direction": (
        changed(('{ out = "eth1" }', '{ protocol = "tcp" }')),
        'limit[0].match: exactly one of "in" and "out" names the interface',
    ),
    "both directions": (
        with_match('in = "eth0"'),
        'limit[0].match: exactly one of "in" and "out" names the interface',
    ),
    "match as a text": (
        changed(('{ out = "eth1" }', '"eth1"')),
        "limit[0].match: 'eth1': a table",
    ),
    "interface with a wildcard": (
        changed(("eth1", "eth+")),
        "limit[0].match.out: 'eth+': the name of one interface such as \"eth0\", no wildcard",
    ),
    "interface name too long": (
        changed(("eth1", "x" * 16)),
        f"limit[0].match.out: '{'x' * 16}': "
        'the name of one interface such as "eth0", no wildcard',
    ),
    "interface name like an option": (
        changed(("eth1", "-j")),
        "limit[0].match.out: '-j': the name of one interface such as \"eth0\", no wildcard",
    ),
    "interface copied from ip link": (
        changed(("eth1", "veth0@if7")),
        "limit[0].match.out: 'veth0@if7': the interface's name alone: \"veth0\"",
    ),
    "prefix that is none": (
        with_match('source = "10.9.2.0/33"'),
        "limit[0].match.source: '10.9.2.0/33': "
        'an address or a prefix such as "10.9.2.0/24" or "fd00:9::/64"',
    ),
    "prefix as a number": (
        with_match("source = 10"),
        'limit[0].match.source: 10: an address or a prefix such as "10.9.2.0/24" or "fd00:9::/64"',
    ),
    "host bits": (
        with_match('source = "10.9.2.5/24"'),
        "limit[0].match.source: '10.9.2.5/24': a prefix without host bits: \"10.9.2.0/24\"?",
    ),
    "IPv6 host bits": (
        with_match('source = "fd00::1/64"'),
        "limit[0].match.source: 'fd00::1/64': a prefix without host bits: \"fd00::/64\"?",
    ),
    "two families": (
        with_match('source = "10.9.2.0/24", destination = "fd00::/64"'),
        "limit[0].match.destination: 'fd00::/64': of the source's family",
    ),
    "unknown protocol": (
        with_match('protocol = "http"'),
        "limit[0].match.protocol: 'http': a protocol number from 0 to 255, or one of icmp, igmp, "
        "ipip, tcp, udp, dccp, ipv6, gre, esp, ah, icmpv6, ospf, vrrp, sctp, udplite",
    ),
    "protocol number too high": (
        with_match("protocol = 256"),
        "limit[0].match.protocol: 256: a protocol number from 0 to 255, or one of icmp, igmp, "
        "ipip, tcp, udp, dccp, ipv6, gre, esp, ah, icmpv6, ospf, vrrp, sctp, udplite",
    ),
    "protocol as a truth": (
        with_match("protocol = true"),
        "limit[0].match.protocol: True: a protocol number from 0 to 255, or one of icmp, igmp, "
        "ipip, tcp, udp, dccp, ipv6, gre, esp, ah, icmpv6, ospf, vrrp, sctp, udplite",
    ),
    "icmp over IPv6": (
        with_match('protocol = "icmp", source = "fd00::/64"'),
        "limit[0].match.protocol: 'icmp': \"icmpv6\", for the prefix is not IPv4",
    ),
    "icmpv6 over IPv4": (
        with_match('protocol = "icmpv6", destination = "10.0.0.0/8"'),
        "limit[0].match.protocol: 'icmpv6': \"icmp\", for the prefix is not IPv6",
    ),
    "port without a protocol": (
        with_match("source_port = 80"),
        "limit[0].match.source_port: needs protocol = one of tcp, udp, sctp, udplite",
    ),
    "port of a protocol without ports": (
        with_match('protocol = "gre", destination_port = 80'),
        "limit[0].match.destination_port: needs protocol = one of tcp, udp, sctp, udplite",
    ),
    "port below 1": (
        with_match("protocol = 6, source_port = 0"),
        "limit[0].match.source_port: 0: "
        'a port from 1 to 65535, a range such as "8000-8100", or an array of these',
    ),
    "port by name": (
        with_match('protocol = 6, source_port = "http"'),
        "limit[0].match.source_port: 'http': "
        'a port from 1 to 65535, a range such as "8000-8100", or an array of these',
    ),
    "range backward": (
        with_match('protocol = 6, source_port = "8100-8000"'),
        "limit[0].match.source_port: '8100-8000': "
        'a port from 1 to 65535, a range such as "8000-8100", or an array of these',
    ),
    "one bad port of several": (
        with_match("protocol = 6, source_port = [80, true]"),
        "limit[0].match.source_port: an array: "
        'a port from 1 to 65535, a range such as "8000-8100", or an array of these',
    ),
    "no ports": (
        with_match("protocol = 6, source_port = []"),
        "limit[0].match.source_port: an array: at least one port",
    ),
    "mark that is none": (
        with_match('mark = "ten"'),
        "limit[0].match.mark: 'ten': "
        'a 32-bit mark such as 16, "0x10" or "0x10/0xff" (value/mask)',
    ),
    "mark above 32 bits": (
        with_match("mark = 0x100000000"),
        "limit[0].match.mark: 4294967296: "
        'a 32-bit mark such as 16, "0x10" or "0x10/0xff" (value/mask)',
    ),
    "mask of nothing": (
        with_match('mark = "0/0"'),
        "limit[0].match.mark: '0/0': "
        'a 32-bit mark such as 16, "0x10" or "0x10/0xff" (value/mask); '
        "a mask of 0 selects every packet",
    ),
    "mark outside its mask": (
        with_match('mark = "0x110/0xff"'),
        "limit[0].match.mark: '0x110/0xff': "
        'a 32-bit mark such as 16, "0x10" or "0x10/0xff" (value/mask); '
        "the mask 0xff leaves no packet the mark 0x110",
    ),
}


@pytest.mark.parametrize(("text", "line"), WRONG.values(), ids=WRONG.keys())
def test_a_mistake_is_one_line(text: str, line: str) -> None:
    found = problems(text)
    assert f"drld.toml: {line}" in found
    # A misspelt section is also a missing one; nothing else is said twice.
    rest = [other for other in found if other != f"drld.toml: {line}"]
    assert rest in (
        [],
        ["drld.toml: limit: missing: the file needs a [[limit]] table (limit = [] for none)"],
    )


def test_all_mistakes_are_reported_at_once() -> None:
    text = """
        [limiter]
        name = "lim1"
        listen = "0.0.0.0:7946"
        [[peer]]
        name = "lim1"
        address = "10.0.0.2"
        [gossip]
        interval = "5ms"
        [[limit]]
        id = 1
        name = "a"
        rate = "10mbps"
        burst = "1B"
        allocator = { name = "fps", growth = 0.5 }
        match = { in = "eth0" }
        [[limit]]
        id = 2
        name = "b"
        rate = "1mbit"
        burst = "15kB"
        match = { in = "eth0", protocol = "gre", source_port = 1 }
        [[limit]]
        id = 2
        name = "c"
        rate = "1mbit"
        burst = "15kB"
        match = { }
    """
    assert [line.split(":")[1].strip() for line in problems(text)] == [
        "limiter.listen",
        "gossip.interval",
        "peer[0].address",
        "limit[0].rate",
        "limit[0].burst",
        "limit[2].id",
        "limit[0].allocator.growth",
        "limit[1].match.source_port",
        "limit[2].match",
    ]


# Files that are no TOML, or no files.


def test_a_syntax_error_is_one_line_with_its_place() -> None:
    (line,) = problems("[limiter]\nname = lim1\n")
    assert line.startswith("drld.toml: ")
    assert "line 2, column 8" in line


def test_an_unfinished_file_is_one_line() -> None:
    (line,) = problems('[limiter]\nname = "lim1')
    assert line.startswith("drld.toml: ")


def test_a_number_without_end_is_one_line() -> None:
    (line,) = problems("id = " + "9" * 5000)
    assert line.startswith("drld.toml: ")


def test_arrays_without_end_are_one_line() -> None:
    (line,) = problems("a = " + "[" * 100_000)
    assert line.startswith("drld.toml: ")


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "drld.toml"
    with pytest.raises(ConfigError) as caught:
        config.load(path)
    assert caught.value.problems == [f"{path}: No such file or directory"]


def test_a_directory_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        config.load(tmp_path)
    assert caught.value.problems == [f"{tmp_path}: Is a directory"]


def test_a_path_with_a_zero_byte_is_one_line() -> None:
    with pytest.raises(ConfigError) as caught:
        config.load("a\0b")
    assert len(caught.value.problems) == 1


def test_bytes_that_are_not_utf8_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "drld.toml"
    path.write_bytes(b'[limiter]\nname = "l\xefm1"\n')
    with pytest.raises(ConfigError) as caught:
        config.load(path)
    assert caught.value.problems == [f"{path}: not UTF-8 (at line 2)"]


def test_a_file_without_end_is_one_line() -> None:
    with pytest.raises(ConfigError) as caught:
        config.load("/dev/zero")
    assert caught.value.problems == ["/dev/zero: more than 64000000 bytes"]


def test_a_good_file_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "drld.toml"
    path.write_text(GOOD)
    assert isinstance(config.load(path), LimiterSpec)
    assert config.load(str(path)) == config.load(path)
