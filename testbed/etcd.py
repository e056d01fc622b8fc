"""Finds the etcd server for tests and benchmarks."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from testbed.errors import HostError


def program() -> str:
    """The server: in the virtual environment (scripts/setup puts it there), or the system's.

    Raises:
        HostError: no server is installed.
    """
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    found = shutil.which("etcd", path=places)
    if found is None:
        raise HostError("no etcd: scripts/setup installs it")
    return found
