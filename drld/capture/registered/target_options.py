"""The options of `drlctl limit` that say which packets fall under a limit."""

from __future__ import annotations

from drld.capture.notation import PROTOCOLS

OPTIONS: dict[str, tuple[str, str]] = {
    "in": ("INTERFACE", 'Packets that arrive at it; "veth*" is a pattern.'),
    "out": ("INTERFACE", "Packets that leave by it, as --in."),
    "source": ("PREFIX", 'Such as "10.9.2.0/24"; default: any, as for all below.'),
    "destination": ("PREFIX", "Of the family of --source."),
    "protocol": ("NAME", 'Such as "tcp", or a number.'),
    "source_port": ("PORT,...", 'Ports and ranges, such as "80,8000-8100"; needs --protocol.'),
    "destination_port": ("PORT,...", "As --source-port."),
    "mark": ("MARK", 'Of the packet: "0x10", or "0x10/0xff" with a mask.'),
}
"""For each key of `match`, the placeholder of its value in the help, and the help text."""
WORDS = {"protocol": tuple(PROTOCOLS), "flow": ("5-tuple", "source")}
"""Words for a shell to complete, by key of a limit."""
