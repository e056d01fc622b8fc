"""The testbed: experiments on real daemons and real TCP in namespaces (docs/testbed.md)."""

MTU = 1500
"""Bytes of an IP packet, on every link of the testbed."""
ETHERNET_HEADER = 14
"""Bytes that interface counters and queueing disciplines count on top of an IP packet."""
TBF_BURST = 2 * (MTU + ETHERNET_HEADER)
"""Bytes that a shaped link sends at once."""
