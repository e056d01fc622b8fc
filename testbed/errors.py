"""The testbed's errors: what the host cannot do, and what could not be measured properly."""

from __future__ import annotations

from drld.errors import DrldError


class HostError(DrldError):
    """The host lacks or refuses something that the testbed needs."""


class MeasurementError(DrldError):
    """A run went wrong in a way that makes its figures worthless."""


class DisturbedError(MeasurementError):
    """The host was too busy for a run to be the one that was asked for; another may be."""
