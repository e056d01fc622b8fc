"""Undoing things, each as far as it can be undone."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from drld.errors import DatapathError

log = logging.getLogger(__name__)


@contextmanager
def cleaning_up() -> Iterator[None]:
    """For each step of undoing something: the other steps follow though this one fails.

    What fails in it is logged, and does not hide the error for which something is undone.
    """
    try:
        yield
    except DatapathError as error:
        log.error("a step of cleaning up failed: %s", error)
