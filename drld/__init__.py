"""drld: a distributed rate limiter. Start reading at docs/architecture.md."""

from importlib.util import find_spec

__version__ = "0.1.0"


def compiled() -> bool:
    """Whether this is drld with the compiled modules of setup.py."""
    spec = find_spec("drld.police.policer")
    return spec is not None and not str(spec.origin).endswith(".py")
