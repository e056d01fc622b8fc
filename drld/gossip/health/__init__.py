"""Which limiters are alive, and which have the same configuration: probes, states and digests."""
