"""A real etcd."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ...etcd_server import EtcdServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EtcdServer]:
    made = EtcdServer(tmp_path / "etcd")
    try:
        made.start()
        yield made
    finally:
        made.kill()
