"""Brokers and limits on messages in a configuration: what is read, and what is said of mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from drld import config, reload
from drld.limit_values import limit_values
from drld.messages.frame import MAX_FRAME
from drld.messages.quantity import BURST, RATE, parse_burst, parse_rate
from drld.messages.spec import (
    ITEM,
    MESSAGES,
    BrokerSpec,
    ByClient,
    Excess,
    MessageMatch,
    MessagesSpec,
)
from drld.shared_settings import shared_settings
from drld.spec import LimiterSpec
from drld.units import QuantityError
from tests.certificates import authority, signed

from ..config.good import problems
from .good import GOOD, changed

EXAMPLE = Path(__file__).resolve().parents[3] / "docs" / "messages.example.toml"
PEERS = """
[[peer]]
name = "lim2"
address = "127.0.0.1:7947"

[[peer]]
name = "lim3"
address = "127.0.0.1:7948"
"""


def parsed(text: str) -> LimiterSpec:
    return config.parse(text, "f")


def test_brokers_and_a_limit_are_read() -> None:
    spec = parsed(GOOD)
    (limit,) = spec.limits
    assert limit.match == MessageMatch(("mqtt",), "city/#")
    assert limit.policy.unit is MESSAGES
    assert (limit.policy.rate, limit.policy.burst) == (11_000 * ITEM, 26 * ITEM)
    assert (limit.policy.excess, limit.policy.allocator) == (Excess.WAIT, "static")
    assert spec.plane(MessagesSpec).brokers == (
        BrokerSpec("mqtt", "mqtt", (("127.0.0.1", 1883),), ("127.0.0.1", 1884)),
        BrokerSpec("nats", "nats", (("127.0.0.1", 4222), "/run/drld/nats.sock"), "/run/nats.sock"),
    )
    values = limit_values(limit)
    assert (values["rate"], values["burst"]) == ("11.0 k messages/s", "26 messages")
    assert (values["match.broker"], values["match.topic"]) == ("mqtt", "city/#")


def test_a_file_may_have_brokers_without_limits_and_limits_without_brokers() -> None:
    assert parsed(GOOD[: GOOD.index("[[limit]]")].replace("[limiter]", "limit = []\n[limiter]"))
    assert parsed("limit = []\n" + GOOD[: GOOD.index("[[broker]]")]).plane(MessagesSpec) == (
        MessagesSpec()
    )


def test_every_key_of_a_broker_is_read() -> None:
    keys = (
        'hold = "1GiB"\ntimestamps = "kernel"\naccept_proxy = true\nsend_proxy = true\n'
        'max_connections = 9\nmax_frame = "1KiB"\n'
    )
    broker = parsed(changed(('name = "mqtt"\n', f'name = "mqtt"\n{keys}'))).plane(MessagesSpec)
    assert broker.brokers[0] == BrokerSpec(
        "mqtt", "mqtt", (("127.0.0.1", 1883),), ("127.0.0.1", 1884), hold=2**30,
        timestamps="kernel", accept_proxy=True, send_proxy=True, max_connections=9, max_frame=1024,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (('"127.0.0.1:1883"', '"here"'), 'broker[0].listen: must be an address and a port such as '
         '"10.0.0.1:7946" or "[fd00::1]:7946" (got \'here\')'),
        (('"127.0.0.1:1883"', '"127.0.0.1:4222"'),
         "broker[1].listen: must be unique, but broker[0].listen is the same "
         "(got '127.0.0.1:4222')"),
        (('name = "nats"', 'name = "mqtt"'),
         "broker[1].name: must be unique, but broker[0].name is the same (got 'mqtt')"),
        (('"127.0.0.1:1884"', '"127.0.0.1:4222"'),
         "broker[0].server: must be the broker's own address, and not broker[1].listen "
         "(got '127.0.0.1:4222')"),
        (('"127.0.0.1:1883"', '"0.0.0.0:1884"'),
         "broker[0].server: must be the broker's own address, and not broker[0].listen "
         "(got '127.0.0.1:1884')"),
        (('protocol = "mqtt"', 'protocol = "amqp"'),
         "broker[0].protocol: must be 'mqtt' or 'nats' (got 'amqp')"),
        (('server = "127.0.0.1:1884"', ""), "broker[0].server: is required"),
        (('server = "/run', 'key = "/k.pem"\nserver = "/run'),
         "broker[1].certificate: is required with broker[1].key"),
        (('name = "nats"', 'name = "nats"\nhold = "1kB"'),
         'broker[1].hold: must be a size such as "64MiB", from "1MiB" to "16GiB" (got \'1kB\')'),
        (('name = "nats"', 'name = "nats"\nhold = "1MiB"\nmax_frame = "2MiB"'),
         "broker[1].max_frame: must be at most hold, 1048576 bytes (got '2097152 bytes')"),
        (('"11k/s"', '"11k"'), f"limit[0].rate: must be {RATE} (got '11k')"),
        (('"11k/s"', "11000"), f"limit[0].rate: must be {RATE} (got 11000)"),
        (('"26msg"', "26"), f'limit[0].burst: must be "auto", or {BURST} (got 26)'),
        (('"messages"', '"bytes"'), 'limit[0].unit: must be "messages" (got \'bytes\')'),
        (('broker = "mqtt"', 'broker = "mqt"'),
         "limit[0].match.broker: must be the name of a [[broker]]; did you mean \"mqtt\"? "
         "(got 'mqt')"),
        (('broker = "mqtt"', 'broker = ["mqtt", "nats"]'),
         "limit[0].match.broker: must be names of brokers of one protocol (got 'mqtt, nats')"),
        (('broker = "mqtt"', 'broker = ["mqtt", "mqtt"]'),
         "limit[0].match.broker: must be the name of a broker, or an array of 1 to 64 names "
         "without repetitions (got an array)"),
        (('"city/#"', '"city/#/a"'),
         "limit[0].match.topic: must be a topic filter of MQTT such as \"city/+/traffic\" or "
         "\"city/#\": \"#\" may stand at the end alone (got 'city/#/a')"),
        (('"mqtt", topic = "city/#"', '"nats", topic = "city..a"'),
         "limit[0].match.topic: must be a topic filter of NATS such as \"city.*.traffic\" or "
         "\"city.>\", without empty tokens and blanks (got 'city..a')"),
        (('"city/#"', '""'),
         "limit[0].match.topic: must be a topic filter of 1 to 1024 characters (got '')"),
        (('"city/#"', '"city/#", client = "name"'),
         "limit[0].match.client: must be 'id', 'user' or 'address' (got 'name')"),
        (('"11k/s"', '"11k/s"\nallocator = "fair"'),
         'limit[0].allocator: must be "static" or "adaptive" where messages wait, '
         "or excess = \"drop\" (got 'fair')"),
        (('"11k/s"', '"11k/s"\non_failure = "open"'),
         "limit[0].on_failure: must be 'closed' (got 'open')"),
        (('"11k/s"', '"11k/s"\nexcess = "refuse"'),
         "limit[0].excess: must be 'wait' or 'drop' (got 'refuse')"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line(change: tuple[str, str], problem: str) -> None:
    assert problems(changed(change)) == [f"drld.toml: {problem}"]


def test_the_largest_frame_fits_into_a_small_hold() -> None:
    spec = parsed(changed(('name = "mqtt"\n', 'name = "mqtt"\nhold = "1MiB"\n')))
    small, usual = spec.plane(MessagesSpec).brokers
    assert (small.max_frame, usual.max_frame) == (1 << 20, MAX_FRAME)


def test_one_table_is_no_array() -> None:
    text = "limit = []\n" + GOOD[: GOOD.index("[[limit]]")].replace("[[broker]]", "[broker]", 1)
    text = text[: text.index("[[broker]]")]
    assert problems(text) == [
        "drld.toml: broker: must be an array of tables: [[broker]], with two brackets (got a table)"
    ]


def test_clients_may_have_buckets_of_their_own() -> None:
    text = changed(('"city/#"', '"city/#", client = "user"'))
    (limit,) = parsed(text).limits
    assert limit.match == MessageMatch(("mqtt",), "city/#", ByClient.USER)
    assert limit.policy.keyed is not None
    assert limit.policy.means == "client"
    for key in ('allocator = "static"', "shares = { lim1 = 1.0 }", "weights = { lim1 = 2 }"):
        (line,) = problems(text.replace('"11k/s"', f'"11k/s"\n{key}'))
        assert line == (
            f"drld.toml: limit[0].{key.split()[0]}: must be left out: a limit with match.client "
            "has a bucket for each client, and nothing is divided"
        )
    # A fleet must agree on it, though not on topics: its brokers may have several protocols.
    other = changed(('"city/#"', '"city/+", client = "id"'))
    settings = [
        shared_settings([it.policy], parsed(GOOD).gossip)
        for it in (limit, parsed(other).limits[0], parsed(text.replace("/#", "")).limits[0])
    ]
    assert settings[0] == settings[2] != settings[1]


def test_dropped_messages_may_have_any_allocator() -> None:
    text = changed(('"11k/s"', '"11k/s"\nexcess = "drop"'))
    assert parsed(text).limits[0].policy.allocator == "fair"
    assert parsed(text.replace('"drop"', '"drop"\nallocator = "gtb"')).limits[0]


@pytest.mark.parametrize(
    ("burst", "shares", "least"),
    [
        ("2msg", "", 'at least "3msg": each of 3 parts must hold a message (got "2msg")'),
        ("3msg", "", None),
        ("9msg", "shares = { lim1 = 0.1, lim2 = 0.9, lim3 = 0.0 }",
         'at least "10msg": the part of lim1, 0.1 of it, must hold a message (got "9msg")'),
        ("10msg", "shares = { lim1 = 0.1, lim2 = 0.9, lim3 = 0.0 }", None),
    ],
)  # fmt: skip
def test_a_burst_has_a_message_for_each_limiter(burst: str, shares: str, least: str | None) -> None:
    text = changed(('"26msg"', f'"{burst}"\n{shares}')) + PEERS
    if least is None:
        assert parsed(text)
        # Each client has a bucket with all of it, and other allocators lend.
    else:
        assert problems(text) == [f"drld.toml: limit[0].burst: must be {least}"]
        each = text.replace(shares, "").replace('"city/#"', '"city/#", client = "id"')
        assert parsed(each)
        assert parsed(text.replace('"11k/s"', '"11k/s"\nexcess = "drop"'))


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("11k/s", 11_000 * ITEM),
        ("11kmsg/s", 11_000 * ITEM),
        ("1.5/min", ITEM * 3 // 120),
        ("9/d", 104),
        ("10M/s", 10**7 * ITEM),
        ("100 msg/h", 100 * ITEM // 3600),
    ],
)
def test_rates_are_read(text: str, tokens: int) -> None:
    assert parse_rate(text) == tokens


@pytest.mark.parametrize("text", ["", "11", "/s", "8/d", "10.1M/s", "1/w", "1K/s", "-1/s", "1k"])
def test_a_text_that_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(QuantityError):
        parse_rate(text)


@pytest.mark.parametrize(
    ("text", "messages"), [("26msg", 26), ("1.5kmsg", 1500), ("1Mmsg", 10**6), ("1 msg", 1)]
)
def test_bursts_are_read(text: str, messages: int) -> None:
    assert parse_burst(text) == messages * ITEM


@pytest.mark.parametrize("text", ["", "26", "0msg", "1.5msg", "1.1Mmsg", "5k", "5B"])
def test_a_text_that_is_no_burst_is_refused(text: str) -> None:
    with pytest.raises(QuantityError):
        parse_burst(text)


def test_brokers_change_while_the_daemon_runs() -> None:
    third = """
[[broker]]
name = "third"
protocol = "mqtt"
listen = "127.0.0.1:2883"
server = "127.0.0.1:2884"
"""
    before = parsed(GOOD)
    for other in (changed(("11k/s", "2k/s")), changed(("1883", "2883")), GOOD + third):
        reload.check(before, parsed(other))
        reload.check(parsed(other), before)


def test_the_files_for_tls_are_read_for_each_broker(tmp_path: Path) -> None:
    own = signed(tmp_path, "broker", authority(tmp_path, "ca"), "serverAuth")
    lines = f'certificate = "{own.cert}"\nkey = "{own.key}"\n'
    spec = parsed(changed(('name = "nats"\n', f'name = "nats"\n{lines}')))
    plain, tls = spec.plane(MessagesSpec).brokers
    assert plain.tls is None
    assert tls.tls is not None


def test_the_example_is_good() -> None:
    spec = config.load(EXAMPLE)
    assert spec.plane(MessagesSpec).brokers
    assert spec.limits


def fleet_of(limiters: int, gossip: str = "") -> LimiterSpec:
    peers = "".join(
        f'[[peer]]\nname = "p{number}"\naddress = "127.0.0.1:{10_000 + number}"\n'
        for number in range(limiters - 1)
    )
    return parsed(f"{GOOD}\n{gossip}\n{peers}".replace("26msg", "64msg"))


def test_the_limiters_of_brokers_gossip_in_a_mesh_unless_they_are_many() -> None:
    assert fleet_of(30).gossip.fabric == "mesh"
    assert fleet_of(31).gossip.fabric == "tree"
    assert fleet_of(2, '[gossip]\nfabric = "tree"').gossip.fabric == "tree"


def test_adaptive_needs_sums() -> None:
    text = GOOD.replace(
        'match = { broker = "mqtt"', 'allocator = "adaptive"\nmatch = { broker = "mqtt"'
    )
    assert "adaptive" in text
    assert parsed(text).limits[0].policy.allocator == "adaptive"
    assert problems(f'{text}\n[gossip]\nfabric = "pushsum"\n') == [
        "drld.toml: limit[0].allocator: must be an allocator for the fabric pushsum: adaptive "
        "needs a mesh or a tree (got 'adaptive')"
    ]
