"""Mistakes in keys, [limiter], [packets], [gossip] and [[peer]]."""

from __future__ import annotations

from tests.unit.config.good import (
    GOOD,
    LIMIT,
    changed,
    with_limit_key,
    with_match,
)

WRONG: dict[str, tuple[str, str]] = {
    # Keys
    "section with an s": (
        changed(("[[limit]]", "[[limits]]")),
        'limits: unknown key; did you mean "limit"?',
    ),
    "section nobody knows": (
        GOOD + "[zzz]\n",
        "zzz: unknown key; known here: limiter, gossip, probes, registry, peer, limit, packets",
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
        "limiter.interval: unknown key; known here: name, listen, control, control_group",
    ),
    "odd key": (
        GOOD + '["a\\nb"]\n',
        r"'a\nb': unknown key; known here: limiter, gossip, probes, registry, peer, limit, packets",
    ),
    "no limiter": (
        changed(("[limiter]", "[gossip]"), ('name = "lim1"', ""), ('listen = "10.0.0.1:7946"', "")),
        "limiter: is required: the file must have a [limiter] table",
    ),
    "array of limiters": (
        changed(("[limiter]", "[[limiter]]")),
        "limiter: must be one table, [limiter] (got an array)",
    ),
    "one bracket": (
        changed(("[[peer]]", "[peer]")),
        "peer: must be an array of tables: [[peer]], with two brackets (got a table)",
    ),
    "peers by name": (
        changed(('[[peer]]\nname = "lim2"\naddress = "10.0.0.2:7946"\n', "")).replace(
            "[limiter]", 'peer = ["lim2"]\n[limiter]'
        ),
        "peer[0]: must be a table (got 'lim2')",
    ),
    "no name": (changed(('name = "lim1"\n', "")), "limiter.name: is required"),
    "no rate": (changed(('rate = "10mbit"\n', "")), "limit[0].rate: is required"),
    "no match": (changed(('match = { out = "eth1" }\n', "")), "limit[0].match: is required"),
    # [limiter]
    "limiter name with a space": (
        changed(("lim1", "lim 1")),
        "limiter.name: must be a name: 1 to 64 letters, digits, dots, dashes or underscores (got "
        "'lim 1')",
    ),
    "long name": (
        changed(('"lim1"', '"' + "x" * 65 + '"')),
        "limiter.name: must be a name: 1 to 64 letters, digits, dots, dashes or underscores (got "
        "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...)",
    ),
    "name that is a number": (
        changed(('"lim1"', "1")),
        "limiter.name: must be a name: 1 to 64 letters, digits, dots, dashes or underscores (got "
        "1)",
    ),
    "listen without a port": (
        changed(("10.0.0.1:7946", "10.0.0.1")),
        'limiter.listen: must be an address and a port such as "10.0.0.1:7946" or '
        "\"[fd00::1]:7946\" (got '10.0.0.1')",
    ),
    "listen on a port": (
        changed(('"10.0.0.1:7946"', "7946")),
        'limiter.listen: must be an address and a port such as "10.0.0.1:7946" or '
        '"[fd00::1]:7946" (got 7946)',
    ),
    "listen on a host name": (
        changed(("10.0.0.1:7946", "lim1.example.net:7946")),
        'limiter.listen: must be an address and a port such as "10.0.0.1:7946" or '
        "\"[fd00::1]:7946\", and no host name (got 'lim1.example.net:7946')",
    ),
    "IPv6 without brackets": (
        changed(("10.0.0.1:7946", "fd00::1:7946")),
        'limiter.listen: must be an address and a port such as "10.0.0.1:7946" or '
        "\"[fd00::1]:7946\" (got 'fd00::1:7946')",
    ),
    "IPv4 in brackets": (
        changed(("10.0.0.1:7946", "[10.0.0.1]:7946")),
        'limiter.listen: must be an address and a port such as "10.0.0.1:7946" or '
        "\"[fd00::1]:7946\" (got '[10.0.0.1]:7946')",
    ),
    "IPv6 zone": (
        changed(("10.0.0.1:7946", "[fe80::1%eth0]:7946")),
        "limiter.listen: must be an address without a zone, and IPv4 as IPv4 (got "
        "'[fe80::1%eth0]:7946')",
    ),
    "IPv4 as IPv6": (
        changed(("10.0.0.1:7946", "[::ffff:10.0.0.1]:7946")),
        "limiter.listen: must be an address without a zone, and IPv4 as IPv4 (got "
        "'[::ffff:10.0.0.1]:7946')",
    ),
    "wildcard": (
        changed(("10.0.0.1:7946", "0.0.0.0:7946")),
        "limiter.listen: must be one address, not the wildcard: a daemon binds the address it "
        "announces (got '0.0.0.0:7946')",
    ),
    "IPv6 wildcard": (
        changed(("10.0.0.1:7946", "[::]:7946")),
        "limiter.listen: must be one address, not the wildcard: a daemon binds the address it "
        "announces (got '[::]:7946')",
    ),
    "multicast": (
        changed(("10.0.0.2:7946", "224.0.0.1:7946")),
        "peer[0].address: must be the address of one host (got '224.0.0.1:7946')",
    ),
    "broadcast": (
        changed(("10.0.0.2:7946", "255.255.255.255:7946")),
        "peer[0].address: must be the address of one host (got '255.255.255.255:7946')",
    ),
    "port 0": (
        changed(("10.0.0.1:7946", "10.0.0.1:0")),
        "limiter.listen: must be a port from 1 to 65535 (got '10.0.0.1:0')",
    ),
    "port above 65535": (
        changed(("10.0.0.1:7946", "10.0.0.1:70000")),
        "limiter.listen: must be a port from 1 to 65535 (got '10.0.0.1:70000')",
    ),
    "relative socket": (
        changed(("[limiter]", "[limiter]\ncontrol = 'lim1.sock'")),
        'limiter.control: must be an absolute path such as "/run/drld/lim1.sock" (got '
        "'lim1.sock')",
    ),
    "socket path too long": (
        changed(("[limiter]", f"[limiter]\ncontrol = '/{'x' * 107}'")),
        "limiter.control: must be a path of at most 107 bytes, none of them zero (got "
        "'/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...)",
    ),
    **{
        f"group {written}": (
            changed(("[limiter]", f"[limiter]\ncontrol_group = {written}")),
            'limiter.control_group: must be a group of this host, such as "drld" or 1000 '
            f"(got {written})",
        )
        for written in ("-1", "4294967295", "'1000'", "'a b'")
    },
    **{
        f"{key} where older files have it": (
            changed(("[limiter]", f"[limiter]\n{key} = 'auto'")),
            f"limiter.{key}: is now packets.{key}",
        )
        for key in ("datapath", "firewall", "queue", "timestamps")
    },
    # [packets]
    "unknown timestamps": (
        changed(("[limiter]", "[packets]\ntimestamps = 'hardware'\n[limiter]")),
        "packets.timestamps: must be 'auto', 'ebpf', 'kernel' or 'read' (got 'hardware')",
    ),
    "firewall on the kernel datapath": (
        changed(("[limiter]", "[packets]\ndatapath = 'kernel'\nfirewall = 'nft'\n[limiter]")),
        'packets.firewall: must be "auto": datapath = "kernel" needs no firewall (got \'nft\')',
    ),
    "queue on the kernel datapath": (
        changed(("[limiter]", "[packets]\ndatapath = 'kernel'\nqueue = 0\n[limiter]")),
        'packets.queue: must be left out: datapath = "kernel" has no queue (got 0)',
    ),
    "a share that nfqueue cannot keep up": (
        changed(
            ("[limiter]", "[packets]\ndatapath = 'nfqueue'\n[limiter]"),
            ("[[limit]]", "[[limit]]\non_failure = 'share'"),
        ),
        'limit[0].on_failure: must be "open" or "closed": datapath = "nfqueue" cannot '
        "keep up a share (got 'share')",
    ),
    "open and closed in one rule of nfqueue": (
        changed(("[limiter]", "[packets]\ndatapath = 'nfqueue'\n[limiter]"))
        + LIMIT.replace("id = 1", "id = 2").replace('"a"', "'b'\non_failure = 'open'"),
        'limit[1].on_failure: must be "open" on both this limit and limit[0], or on neither: with '
        'datapath = "nfqueue" the limits of an interface and direction share a rule',
    ),
    "timestamps on the kernel datapath": (
        changed(("[limiter]", "[packets]\ndatapath = 'kernel'\ntimestamps = 'read'\n[limiter]")),
        'packets.timestamps: must be "auto": datapath = "kernel" judges packets as they '
        "arrive (got 'read')",
    ),
    "unknown datapath": (
        changed(("[limiter]", "[packets]\ndatapath = 'xdp'\n[limiter]")),
        'packets.datapath: must be "auto", "kernel" or "nfqueue" (got \'xdp\')',
    ),
    "unknown firewall": (
        changed(("[limiter]", "[packets]\nfirewall = 'ufw'\n[limiter]")),
        "packets.firewall: must be 'auto', 'nft', 'iptables' or 'none' (got 'ufw')",
    ),
    "queue out of range": (
        changed(("[limiter]", "[packets]\nqueue = 65536\n[limiter]")),
        "packets.queue: must be at most 65535 (got 65536)",
    ),
    "queue as a text": (
        changed(("[limiter]", "[packets]\nqueue = '1'\n[limiter]")),
        "packets.queue: must be an integer (got '1')",
    ),
    "queue as a truth": (
        changed(("[limiter]", "[packets]\nqueue = true\n[limiter]")),
        "packets.queue: must be an integer (got true)",
    ),
    # [gossip]
    "unknown fabric": (
        GOOD + "[gossip]\nfabric = 'gossip'",
        "gossip.fabric: must be 'mesh', 'pushsum' or 'tree' (got 'gossip')",
    ),
    "no branching": (
        GOOD + "[gossip]\nbranching = 0",
        "gossip.branching: must be at least 1 (got 0)",
    ),
    "interval as a number": (
        GOOD + "[gossip]\ninterval = 50",
        'gossip.interval: must be a duration such as "50ms", from "10ms" to "10s" (got 50)',
    ),
    "interval without a unit": (
        GOOD + "[gossip]\ninterval = '50'",
        'gossip.interval: must be a duration such as "50ms" or "1.5s", with its unit (got \'50\')',
    ),
    "interval too short": (
        GOOD + "[gossip]\ninterval = '9.999ms'",
        'gossip.interval: must be a duration such as "50ms", from "10ms" to "10s" (got '
        "'9.999ms')",
    ),
    "interval too long": (
        with_limit_key("interval = '10.001s'"),
        'limit[0].interval: must be a duration such as "50ms", from "10ms" to "10s" (got '
        "'10.001s')",
    ),
    # [[peer]]
    "own name among the peers": (
        changed(("lim2", "lim1")),
        "peer[0].name: must be unique, but limiter.name is the same (got 'lim1')",
    ),
    "own address among the peers": (
        changed(("10.0.0.2:7946", "10.0.0.1:7946")),
        "peer[0].address: must be unique, but limiter.listen is the same (got '10.0.0.1:7946')",
    ),
    "peer twice": (
        GOOD + '[[peer]]\nname = "lim2"\naddress = "10.0.0.3:7946"',
        "peer[1].name: must be unique, but peer[0].name is the same (got 'lim2')",
    ),
    "peer address twice": (
        GOOD + '[[peer]]\nname = "lim3"\naddress = "10.0.0.2:7946"',
        "peer[1].address: must be unique, but peer[0].address is the same (got '10.0.0.2:7946')",
    ),
    "peer of another family": (
        changed(("10.0.0.2:7946", "[fd00::2]:7946")),
        "peer[0].address: must be IPv4, as limiter.listen (got 'fd00::2')",
    ),
    "listen on loopback": (
        changed(("10.0.0.1:7946", "127.0.0.1:7946")),
        "peer[0].address: must be an address that limiter.listen (127.0.0.1) can reach: both "
        "loopback, or neither (got '10.0.0.2')",
    ),
}
"""The change to a good file, and the one line that is said of it."""
