"""Mistakes in a configuration, and the one line that is said of each."""

from __future__ import annotations

from drld.allocators import ALLOCATORS
from drld.capture.registered.limit_table import PacketLimitTable
from tests.unit.config.good import GOOD, LIMIT, changed, with_limit_key, with_match

NAME = "a name: 1 to 64 letters, digits, dots, dashes or underscores"
NO_DIRECTORY = 'a name other than "." and "..", which paths and URLs use for directories'
ADDRESS = 'an address and a port such as "10.0.0.1:7946" or "[fd00::1]:7946"'
OR_PATTERN = ', or a pattern with "*" at its end such as "veth*"'
NO_WILDCARD = "one address, not the wildcard: a daemon binds the address it announces"
INTERVAL = 'a duration such as "50ms", from "10ms" to "10s"'
SIZE = 'a size in bytes such as "75kB" or "64KiB"'
RATE = 'a rate such as "10mbit"'
AMBIGUOUS = (
    f'{RATE}; "mbps" is ambiguous (tc reads it as bytes, others as bits): write "mbit" or "MB/s"'
)
FLOW = (
    '"5-tuple", "source", or "source" with prefix lengths: "source/24" for IPv4 (1 to 32), '
    '"source/24/56" for IPv4 and IPv6 (1 to 128)'
)
ALLOCATOR = f"an allocator: one of {', '.join(ALLOCATORS)}"
PROTOCOL = (
    "a protocol number from 0 to 255, or one of icmp, igmp, ipip, tcp, udp, dccp, ipv6, gre, esp, "
    "ah, icmpv6, ospf, vrrp, sctp, udplite"
)
PORTS = 'a port from 1 to 65535, a range such as "8000-8100", or an array of these'
NO_PORTS = "must be left out unless protocol is one of tcp, udp, sctp, udplite"
TABLES = (
    "known here: limiter, http, gossip, probes, registry, peer, limit, packets, requests, broker"
)
LIMIT_KEYS = f"known here: {', '.join(PacketLimitTable.model_fields)}"
KINDS = (
    "limit[0].match: must have the keys of packets (in, out, source, destination, protocol, "
    "source_port, destination_port, mark) or of requests (namespace, where, per) or of messages "
    "(broker, topic, client)"
)
MARK = 'a 32-bit mark such as 16, "0x10" or "0x10/0xff" (value/mask)'

VALUES: dict[str, dict[str, list[str]]] = {
    "limiter.name": {NAME: ["'lim 1'", "1"], NO_DIRECTORY: ["'..'"]},
    "limiter.listen": {
        ADDRESS: ["'10.0.0.1'", "7946", "'fd00::1:7946'", "'[10.0.0.1]:7946'"],
        f"{ADDRESS}, and no host name": ["'lim1.example.net:7946'"],
        "an address without a zone": ["'[fe80::1%eth0]:7946'"],
        'an IPv4 address without "::ffff:", such as "10.0.0.1:7946"': ["'[::ffff:10.0.0.1]:7946'"],
        NO_WILDCARD: ["'0.0.0.0:7946'", "'[::]:7946'"],
        "a port from 1 to 65535": ["'10.0.0.1:0'", "'10.0.0.1:70000'"],
    },
    "limiter.control": {'an absolute path such as "/run/drld/lim1.sock"': ["'lim1.sock'"]},
    "limiter.control_group": {
        'a group of this host, such as "drld" or 1000': ["-1", "4294967295", "'1000'", "'a b'"]
    },
    "http.listen": {
        ADDRESS: ["9617", "'localhost'", "'10.0.0.1'"],
        f"{ADDRESS}, and no host name": ["'localhost:9617'"],
        "the address of one host": ["'224.0.0.1:9617'"],
    },
    "http.page": {"true or false": ["'yes'", "1"]},
    "packets.timestamps": {"'auto', 'ebpf', 'kernel' or 'read'": ["'hardware'"]},
    "packets.datapath": {'"auto", "kernel" or "nfqueue"': ["'xdp'"]},
    "packets.firewall": {"'auto', 'nft', 'iptables' or 'none'": ["'ufw'"]},
    "packets.queue": {"at most 65535": ["65536"], "an integer": ["'1'", "true"]},
    "gossip.fabric": {"'mesh', 'pushsum' or 'tree'": ["'gossip'"]},
    "gossip.branching": {"at least 1": ["0"]},
    "gossip.interval": {
        INTERVAL: ["50", "'9.999ms'"],
        'a duration such as "50ms" or "1.5s", with its unit': ["'50'"],
    },
    "peer[0].name": {"unique, but limiter.name is the same": ["'lim1'"], NAME: ["''", "2"]},
    "peer[0].address": {
        ADDRESS: [
            *("''", "7946", "true", "'10.0.0.2'", "'10.0.0.2:-1'", "'10.0.0.2:7946 '"),
            *("'fd00::2:7946'", "'[10.0.0.2]:7946'", "'[fd00::2'"),
        ],
        f"{ADDRESS}, and no host name": ["'lim2:7946'", "':7946'", "'*:7946'"],
        "a port from 1 to 65535": ["'10.0.0.2:0'", "'10.0.0.2:65536'"],
        "the address of one host": ["'224.0.0.1:7946'", "'255.255.255.255:7946'"],
        "unique, but limiter.listen is the same": ["'10.0.0.1:7946'"],
    },
    "limit[0].id": {
        "at least 1": ["0", "-1"],
        "at most 65535": ["65536"],
        "an integer": ["1.0", "nan", "'1'", "true"],
    },
    "limit[0].name": {NAME: ["'a/b'", "''", "'\u00fc'", "1"], NO_DIRECTORY: ["'.'", "'..'"]},
    "limit[0].rate": {
        RATE: ["'10mbot'", "''", "'-10mbit'", "'1e7bit'", "'1,5mbit'", "'10 / s'", "'\uff11mbit'"],
        f"{RATE}, with its unit": ["'10'"],
        f'{RATE}, from "10kbit" to "400gbit"': ["10000000", "nan", "inf", "-1", "true"],
        AMBIGUOUS: ["'10mbps'"],
        AMBIGUOUS.replace("mbps", "Mb/s"): ["'10Mb/s'"],
        'a rate from "10kbit" to "400gbit"': [
            *("'0bit'", "'9.999kbit'", "'400.000001gbit'", "'999999999999999999gbit'"),
        ],
    },
    "limit[0].burst": {
        '"auto", or a size such as "75kB", from "1500B" to "4GB"': ["'1499B'", "75000", "'4.1GB'"],
        f'"auto", or {SIZE}': ["'600kbit'", "'AUTO'", "'400kb'", "'-1B'"],
        f'"auto", or {SIZE}, a whole number of bytes below 2**63': [
            *("'1.5B'", "'999999999999999999GB'"),
        ],
    },
    "limit[0].interval": {INTERVAL: ["'10.001s'", "'11s'", "'0s'", "50"]},
    "limit[0].ewma": {
        "at most 0.999": ["0.9999999999999999"],
        "at least 0": ["-0.1"],
        "a finite number": ["nan", "inf"],
        "a number": ["'0.1'"],
    },
    "limit[0].mode": {"'enforce', 'shadow' or 'pause'": ["'monitor'"]},
    "limit[0].on_failure": {"'share', 'open' or 'closed'": ["'fail-open'"]},
    "limit[0].flow": {
        FLOW: ["'port'", "'source/0'", "'source/33'", "'source/24/129'", "'source/'", "24"]
    },
    "limit[0].excess": {"'drop' or 'mark'": ["'ecn'"]},
    "limit[0].allocator": {
        ALLOCATOR: ["'FPS'"],
        "an allocator for several limiters: ctb is for one limiter alone": ["'ctb'"],
    },
    "limit[0].allocator.name": {ALLOCATOR: ["'wfq'"]},
    "limit[0].allocator.headroom": {"a number": ["'20%'"]},
    "limit[0].allocator.growth": {"a finite number": ["inf"]},
    "limit[0].allocator.depth_packets": {"an integer": ["1.5"]},
    "limit[0].allocator.saturation": {"above 0 and at most 1": ["1.5"]},
    "limit[0].shares.lim1": {"at most 1": ["30"], "a number": ["'50%'"]},
    "limit[0].weights": {"a table": ["2"]},
    "limit[0].weights.lim1": {
        "a number from 0.001 to 1000": ["1e-300", "-1.5", "1000.1", "nan", "'2'", "true"]
    },
    "limit[0].match": {"a table": ["'eth1'"]},
    "limit[0].match.out": {
        f'the name of one interface such as "eth0"{OR_PATTERN}': [
            "'eth+'",
            f"'{'x' * 16}'",
            f"'{'x' * 15}*'",
            "'-j'",
            "'*'",
            "'-*'",
            "'e*h'",
            "'eth**'",
        ],
        f'the interface\'s name alone: "veth0"{OR_PATTERN}': ["'veth0@if7'"],
    },
    "limit[0].match.source": {
        'an address or a prefix such as "10.9.2.0/24" or "fd00:9::/64"': ["'10.9.2.0/33'", "10"],
        'a prefix without host bits: "10.9.2.0/24"?': ["'10.9.2.5/24'"],
        'a prefix without host bits: "fd00::/64"?': ["'fd00::1/64'"],
    },
    "limit[0].match.protocol": {PROTOCOL: ["'http'", "256", "true"]},
    "limit[0].match.source_port": {PORTS: ["0", "'http'", "'8100-8000'"]},
    "limit[0].match.mark": {
        MARK: ["'ten'", "4294967296"],
        f"{MARK}; a mask of 0 selects every packet": ["'0/0'"],
        f"{MARK}; the mask 0xff leaves no packet the mark 0x110": ["'0x110/0xff'"],
    },
}
"""The requirement on each key's value, and wrong values as they are written, by key."""

BESIDE = {
    "http": "listen = '127.0.0.1:9617'",
    "limit[0].allocator": "name = 'fps'",
    "limit[0].match": "protocol = 6",
    "limit[0].shares": "lim2 = 0.5",
}
"""Further lines in the table of a wrong value, so that there is no other mistake."""


def packets(keys: str) -> tuple[str, str]:
    return "[limiter]", f"[packets]\n{keys}\n[limiter]"


def in_limiter(key: str) -> str:
    return changed(("[limiter]", f"[limiter]\n{key}"))


OTHERS: list[tuple[str, str]] = [
    # Keys
    (changed(("[[limit]]", "[[limits]]")), 'limits: unknown key; did you mean "limit"?'),
    (
        GOOD + "[zzz]\n",
        f"zzz: unknown key; {TABLES}",
    ),
    (
        GOOD + '["a\\nb"]\n',
        rf"'a\nb': unknown key; {TABLES}",
    ),
    (
        with_limit_key("on_failures = 'open'"),
        'limit[0].on_failures: unknown key; did you mean "on_failure"?',
    ),
    (
        with_match('dest = "10.0.0.0/8"'),
        'limit[0].match.dest: unknown key; did you mean "destination"?',
    ),
    (
        in_limiter("interval = '50ms'"),
        "limiter.interval: unknown key; known here: name, listen, control, control_group",
    ),
    (
        changed(("[limiter]", "[gossip]"), ('name = "lim1"', ""), ('listen = "10.0.0.1:7946"', "")),
        "limiter: is required: the file must have a [limiter] table",
    ),
    (
        changed(("[limiter]", "[[limiter]]")),
        "limiter: must be one table, [limiter] (got an array)",
    ),
    (
        changed(("[[peer]]", "[peer]")),
        "peer: must be an array of tables: [[peer]], with two brackets (got a table)",
    ),
    (
        changed(
            ('[[peer]]\nname = "lim2"\naddress = "10.0.0.2:7946"\n', ""),
            ("[limiter]", 'peer = ["lim2"]\n[limiter]'),
        ),
        "peer[0]: must be a table (got 'lim2')",
    ),
    *(
        (in_limiter(f"{key} = 'auto'"), f"limiter.{key}: is now packets.{key}")
        for key in ("datapath", "firewall", "queue", "timestamps")
    ),
    (with_limit_key('"" = 1'), f"limit[0].'': unknown key; {LIMIT_KEYS}"),
    (with_limit_key('"ключ" = 1'), f"limit[0].'ключ': unknown key; {LIMIT_KEYS}"),
    (changed(("out =", "uot =")), f'{KINDS}; did you mean "out"? (got uot)'),
    # Elements of arrays
    (
        GOOD + '[http]\nlisten = ["10.0.0.1:80", "10.0.0.1"]',
        f"http.listen[1]: must be {ADDRESS} (got '10.0.0.1')",
    ),
    (
        GOOD + '[http]\nlisten = ["10.0.0.1:80", "10.0.0.1:80"]',
        "http.listen[1]: must be unique in its array (got '10.0.0.1:80')",
    ),
    # Dates
    (
        changed(('"10mbit"', "2026-11-26")),
        f'limit[0].rate: must be {RATE}, from "10kbit" to "400gbit" '
        "(got the date or time 2026-11-26)",
    ),
    # Long values are cut off.
    (
        changed(('"lim1"', '"' + "x" * 65 + '"')),
        f"limiter.name: must be {NAME} (got '{'x' * 59}...)",
    ),
    (
        in_limiter(f"control = '/{'x' * 107}'"),
        "limiter.control: must be a path of at most 107 bytes, none of them zero "
        f"(got '/{'x' * 58}...)",
    ),
    (
        changed(("id = 1", "id = 0x1" + "0" * 5000)),
        "limit[0].id: must be at most 65535 (got an integer beyond 64 bits)",
    ),
    # Datapaths
    (
        changed(packets("datapath = 'kernel'\nfirewall = 'nft'")),
        'packets.firewall: must be "auto": datapath = "kernel" needs no firewall (got \'nft\')',
    ),
    (
        changed(packets("datapath = 'kernel'\nqueue = 0")),
        'packets.queue: must be left out: datapath = "kernel" has no queue (got 0)',
    ),
    (
        changed(packets("datapath = 'kernel'\ntimestamps = 'read'")),
        'packets.timestamps: must be "auto": datapath = "kernel" judges packets as they '
        "arrive (got 'read')",
    ),
    (
        changed(packets("datapath = 'nfqueue'"), ("[[limit]]", "[[limit]]\non_failure = 'share'")),
        'limit[0].on_failure: must be "open" or "closed": datapath = "nfqueue" cannot '
        "keep up a share (got 'share')",
    ),
    (
        changed(packets("datapath = 'nfqueue'"))
        + LIMIT.replace("id = 1", "id = 2").replace('"a"', "'b'\non_failure = 'open'"),
        'limit[1].on_failure: must be "open" on both this limit and limit[0], or on neither: with '
        'datapath = "nfqueue" the limits of an interface and direction share a rule',
    ),
    # Names and addresses that are not unique, or do not fit each other
    (
        GOOD + '[[peer]]\nname = "lim2"\naddress = "10.0.0.3:7946"',
        "peer[1].name: must be unique, but peer[0].name is the same (got 'lim2')",
    ),
    (
        GOOD + '[[peer]]\nname = "lim3"\naddress = "10.0.0.2:7946"',
        "peer[1].address: must be unique, but peer[0].address is the same (got '10.0.0.2:7946')",
    ),
    (
        changed(("10.0.0.2:7946", "[fd00::2]:7946")),
        "peer[0].address: must be IPv4, as limiter.listen (got 'fd00::2')",
    ),
    (
        changed(("10.0.0.1:7946", "127.0.0.1:7946")),
        "peer[0].address: must be an address that limiter.listen (127.0.0.1) can reach: both "
        "loopback, or neither (got '10.0.0.2')",
    ),
    (
        GOOD + LIMIT.replace('"a"', '"b"'),
        "limit[1].id: must be unique, but limit[0].id is the same (got 1)",
    ),
    (
        GOOD + LIMIT.replace("id = 1", "id = 2"),
        "limit[1].name: must be unique, but limit[0].name is the same (got 'a')",
    ),
    # Allocators
    (with_limit_key("allocator = { headroom = 0.2 }"), "limit[0].allocator.name: is required"),
    (
        with_limit_key("allocator = ['fps']"),
        f"limit[0].allocator: must be {ALLOCATOR} (got an array)",
    ),
    (
        with_limit_key("allocator = { name = 'fps', head_room = 0.2 }"),
        'limit[0].allocator.head_room: unknown key; did you mean "headroom"?',
    ),
    (
        with_limit_key("allocator = { name = 'gtb', headroom = 0.2 }"),
        "limit[0].allocator.headroom: unknown key; none is known here",
    ),
    # Shares and weights
    (
        with_limit_key("shares = { lim1 = 0.5, lim2 = 0.5, lim3 = 0 }"),
        'limit[0].shares.lim3: lim3 is not a limiter of this fleet; did you mean "lim2"?',
    ),
    (
        with_limit_key("shares = { lim1 = 1.0 }"),
        "limit[0].shares: must name every limiter of the fleet (missing: lim2)",
    ),
    (
        with_limit_key("shares = { lim1 = 0.3333, lim2 = 0.6666 }"),
        "limit[0].shares: must sum to 1 (got 0.9999)",
    ),
    (with_limit_key("shares = [0.5, 0.5]"), "limit[0].shares: must be a table (got an array)"),
    (
        with_limit_key("weights = { lim9 = 2 }"),
        'limit[0].weights.lim9: lim9 is not a limiter of this fleet; did you mean "lim2"?',
    ),
    (
        with_limit_key("weights = { lim1 = 2, edge = 2 }"),
        "limit[0].weights.edge: edge is not a limiter of this fleet; known here: lim1, lim2",
    ),
    (
        with_limit_key("weights = { 'lim/1' = 2 }"),
        f"limit[0].weights.'lim/1': must be {NAME} (got 'lim/1')",
    ),
    # Matches
    (
        changed(('{ out = "eth1" }', '{ protocol = "tcp" }')),
        'limit[0].match: must have exactly one of "in" and "out" (got neither)',
    ),
    (
        with_match('in = "eth0"'),
        'limit[0].match: must have exactly one of "in" and "out" (got both)',
    ),
    (
        with_match('source = "10.9.2.0/24", destination = "fd00::/64"'),
        "limit[0].match.destination: must be of the source's family (got 'fd00::/64')",
    ),
    (
        with_match('protocol = "icmp", source = "fd00::/64"'),
        "limit[0].match.protocol: must be \"icmpv6\": the prefix is not IPv4 (got 'icmp')",
    ),
    (
        with_match('protocol = "icmpv6", destination = "10.0.0.0/8"'),
        "limit[0].match.protocol: must be \"icmp\": the prefix is not IPv6 (got 'icmpv6')",
    ),
    (with_match("source_port = 80"), f"limit[0].match.source_port: {NO_PORTS}"),
    (
        with_match('protocol = "gre", destination_port = 80'),
        f"limit[0].match.destination_port: {NO_PORTS}",
    ),
    (
        with_match("protocol = 6, source_port = [80, true]"),
        f"limit[0].match.source_port: must be {PORTS} (got an array)",
    ),
    (
        with_match("protocol = 6, source_port = []"),
        "limit[0].match.source_port: must be at least one port (got an empty array)",
    ),
]
"""The change to a good file, and the line that is said of it."""
