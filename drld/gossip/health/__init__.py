"""The state and configuration of every limiter: probes, peer states and digests."""
