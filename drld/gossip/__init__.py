"""How limiters tell one another what they want (docs/gossip.md).

`wire`, `health` and `fabrics` are pure. `transport` moves their datagrams over a UDP socket.
"""
