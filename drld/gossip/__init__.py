"""The exchange of demand between limiters (docs/gossip.md).

`wire`, `health` and `fabrics` are pure. `transport` moves their datagrams over a UDP socket.
"""
