"""Cleanup in steps: a step that fails does not stop the others."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from drld.errors import DatapathError
from drld.log_event import event

log = logging.getLogger(__name__)


@contextmanager
def cleaning_up() -> Iterator[None]:
    """Run one step of a cleanup; log its `DatapathError` instead of raising it.

    So the other steps run, and the error that caused the cleanup is not hidden.
    """
    try:
        yield
    except DatapathError as error:
        log.error(
            "a cleanup step failed, and may leave something of drld behind: %s",
            error,
            extra=event("cleanup.failed", reason=str(error)),
        )
