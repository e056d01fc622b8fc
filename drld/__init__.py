"""drld: a distributed rate limiter. Start reading at docs/architecture.md."""

__version__ = "0.1.0"
