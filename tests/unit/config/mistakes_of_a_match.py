"""Mistakes in what packets a limit is for."""

from __future__ import annotations

from tests.unit.config.good import (
    changed,
    with_match,
)

WRONG: dict[str, tuple[str, str]] = {
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
"""The change to a good file, and the one line that is said of it."""
