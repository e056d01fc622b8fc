"""The public path of the plane of calls."""

from tests.unit.config.calls.registered.routes import routes

__all__ = ["routes"]
