"""Finds the programs of others that tests and benchmarks run."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from testbed.errors import HostError


def program(name: str) -> str:
    """A program of the virtual environment (scripts/setup puts it there), or of the system.

    Raises:
        HostError: it is not installed.
    """
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    if (found := shutil.which(name, path=f"{places}{os.pathsep}/usr/sbin")) is None:
        raise HostError(f"no {name}: scripts/setup installs it")
    return found


def environment(name: str) -> Mapping[str, str]:
    """The environment of a program whose libraries lie beside it."""
    return {**os.environ, "LD_LIBRARY_PATH": str(Path(sys.prefix, "lib", name))}
