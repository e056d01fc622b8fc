"""Replicated token buckets: any limiter decides any request at once, and gossip makes them agree.

`gcra` is one bucket without replicas. `counter` and `queue` are those of *Trading performance for
precision in a CRDT-based rate-limiting system* (Henriksson and Bennhage, Gothenburg 2021, "the
thesis"); `ledger` mends them. `replica` holds the buckets of one limiter, `spread` chooses the peer
of a round, and `urgency` what cannot wait for its round (docs/replicated-buckets.md).
"""
