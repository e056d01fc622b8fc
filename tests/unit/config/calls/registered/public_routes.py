from tests.unit.config.calls.registered.routes import routes

__all__ = ["routes"]
