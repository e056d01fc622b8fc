"""`scripts/bench rls`: what a call of Envoy's rate limit service costs its server."""
