"""The testbed's errors: what the host cannot do, and what could not be measured properly."""

from __future__ import annotations

from drld.errors import DrldError


class HostError(DrldError):
    """The host lacks or refuses something that the testbed needs."""


class MeasurementError(DrldError):
    """A run went wrong in a way that makes its figures worthless."""


class DisturbedError(MeasurementError):
    """The host was too busy for a run to be the one that was asked for; another may be."""


def first_of(error: BaseException) -> BaseException:
    """The first error inside the groups that nurseries make, or the error itself."""
    inner = getattr(error, "exceptions", None)
    return first_of(inner[0]) if inner else error
