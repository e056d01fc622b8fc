"""The metric of the plane of calls."""

from collections.abc import Iterator

from drld.control.backend import Backend
from drld.control.exposition import Sample, gauge

_CALLS = gauge("calls", "Calls under way.")


def samples(backend: Backend) -> Iterator[Sample]:
    yield Sample(_CALLS, 0)
