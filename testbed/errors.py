"""The testbed's errors: about the host, and about measurements."""

from __future__ import annotations

from drld.errors import DrldError


class HostError(DrldError):
    """The host lacks or refuses something that the testbed needs."""


class MeasurementError(DrldError):
    """A run failed, so that its figures have no meaning."""


class DisturbedError(MeasurementError):
    """The host was too busy for this run; another attempt may succeed."""


def first_of(error: BaseException) -> BaseException:
    """The first error of a nursery's exception group, or the error itself."""
    inner = getattr(error, "exceptions", None)
    return first_of(inner[0]) if inner else error
