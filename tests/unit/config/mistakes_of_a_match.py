"""Mistakes in what packets a limit is for."""

from __future__ import annotations

from tests.unit.config.good import (
    changed,
    with_match,
)

WRONG: dict[str, tuple[str, str]] = {
    "no direction": (
        changed(('{ out = "eth1" }', '{ protocol = "tcp" }')),
        'limit[0].match: must have exactly one of "in" and "out" (got neither)',
    ),
    "both directions": (
        with_match('in = "eth0"'),
        'limit[0].match: must have exactly one of "in" and "out" (got both)',
    ),
    "match as a text": (
        changed(('{ out = "eth1" }', '"eth1"')),
        "limit[0].match: must be a table (got 'eth1')",
    ),
    "interface with a wildcard": (
        changed(("eth1", "eth+")),
        'limit[0].match.out: must be the name of one interface such as "eth0", no wildcard (got '
        "'eth+')",
    ),
    "interface name too long": (
        changed(("eth1", "x" * 16)),
        'limit[0].match.out: must be the name of one interface such as "eth0", no wildcard (got '
        "'xxxxxxxxxxxxxxxx')",
    ),
    "interface name like an option": (
        changed(("eth1", "-j")),
        'limit[0].match.out: must be the name of one interface such as "eth0", no wildcard (got '
        "'-j')",
    ),
    "interface copied from ip link": (
        changed(("eth1", "veth0@if7")),
        "limit[0].match.out: must be the interface's name alone: \"veth0\" (got 'veth0@if7')",
    ),
    "prefix that is none": (
        with_match('source = "10.9.2.0/33"'),
        'limit[0].match.source: must be an address or a prefix such as "10.9.2.0/24" or '
        "\"fd00:9::/64\" (got '10.9.2.0/33')",
    ),
    "prefix as a number": (
        with_match("source = 10"),
        'limit[0].match.source: must be an address or a prefix such as "10.9.2.0/24" or '
        '"fd00:9::/64" (got 10)',
    ),
    "host bits": (
        with_match('source = "10.9.2.5/24"'),
        'limit[0].match.source: must be a prefix without host bits: "10.9.2.0/24"? (got '
        "'10.9.2.5/24')",
    ),
    "IPv6 host bits": (
        with_match('source = "fd00::1/64"'),
        'limit[0].match.source: must be a prefix without host bits: "fd00::/64"? (got '
        "'fd00::1/64')",
    ),
    "two families": (
        with_match('source = "10.9.2.0/24", destination = "fd00::/64"'),
        "limit[0].match.destination: must be of the source's family (got 'fd00::/64')",
    ),
    "unknown protocol": (
        with_match('protocol = "http"'),
        "limit[0].match.protocol: must be a protocol number from 0 to 255, or one of icmp, igmp, "
        "ipip, tcp, udp, dccp, ipv6, gre, esp, ah, icmpv6, ospf, vrrp, sctp, udplite (got 'http')",
    ),
    "protocol number too high": (
        with_match("protocol = 256"),
        "limit[0].match.protocol: must be a protocol number from 0 to 255, or one of icmp, igmp, "
        "ipip, tcp, udp, dccp, ipv6, gre, esp, ah, icmpv6, ospf, vrrp, sctp, udplite (got 256)",
    ),
    "protocol as a truth": (
        with_match("protocol = true"),
        "limit[0].match.protocol: must be a protocol number from 0 to 255, or one of icmp, igmp, "
        "ipip, tcp, udp, dccp, ipv6, gre, esp, ah, icmpv6, ospf, vrrp, sctp, udplite (got true)",
    ),
    "icmp over IPv6": (
        with_match('protocol = "icmp", source = "fd00::/64"'),
        "limit[0].match.protocol: must be \"icmpv6\": the prefix is not IPv4 (got 'icmp')",
    ),
    "icmpv6 over IPv4": (
        with_match('protocol = "icmpv6", destination = "10.0.0.0/8"'),
        "limit[0].match.protocol: must be \"icmp\": the prefix is not IPv6 (got 'icmpv6')",
    ),
    "port without a protocol": (
        with_match("source_port = 80"),
        "limit[0].match.source_port: must be left out unless protocol is one of tcp, "
        "udp, sctp, udplite",
    ),
    "port of a protocol without ports": (
        with_match('protocol = "gre", destination_port = 80'),
        "limit[0].match.destination_port: must be left out unless protocol is one of tcp, "
        "udp, sctp, udplite",
    ),
    "port below 1": (
        with_match("protocol = 6, source_port = 0"),
        "limit[0].match.source_port: must be a port from 1 to 65535, a range such as "
        '"8000-8100", or an array of these (got 0)',
    ),
    "port by name": (
        with_match('protocol = 6, source_port = "http"'),
        "limit[0].match.source_port: must be a port from 1 to 65535, a range such as "
        "\"8000-8100\", or an array of these (got 'http')",
    ),
    "range backward": (
        with_match('protocol = 6, source_port = "8100-8000"'),
        "limit[0].match.source_port: must be a port from 1 to 65535, a range such as "
        "\"8000-8100\", or an array of these (got '8100-8000')",
    ),
    "one bad port of several": (
        with_match("protocol = 6, source_port = [80, true]"),
        "limit[0].match.source_port: must be a port from 1 to 65535, a range such as "
        '"8000-8100", or an array of these (got an array)',
    ),
    "no ports": (
        with_match("protocol = 6, source_port = []"),
        "limit[0].match.source_port: must be at least one port (got an array)",
    ),
    "mark that is none": (
        with_match('mark = "ten"'),
        'limit[0].match.mark: must be a 32-bit mark such as 16, "0x10" or "0x10/0xff" '
        "(value/mask) (got 'ten')",
    ),
    "mark above 32 bits": (
        with_match("mark = 0x100000000"),
        'limit[0].match.mark: must be a 32-bit mark such as 16, "0x10" or "0x10/0xff" '
        "(value/mask) (got 4294967296)",
    ),
    "mask of nothing": (
        with_match('mark = "0/0"'),
        'limit[0].match.mark: must be a 32-bit mark such as 16, "0x10" or "0x10/0xff" '
        "(value/mask); a mask of 0 selects every packet (got '0/0')",
    ),
    "mark outside its mask": (
        with_match('mark = "0x110/0xff"'),
        'limit[0].match.mark: must be a 32-bit mark such as 16, "0x10" or "0x10/0xff" '
        "(value/mask); the mask 0xff leaves no packet the mark 0x110 (got '0x110/0xff')",
    ),
}
"""The change to a good file, and the one line that is said of it."""
