"""Replicated buckets under virtual time: data sets, an oracle, fleets and measures (pure)."""
