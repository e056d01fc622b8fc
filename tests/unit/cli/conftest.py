"""A daemon that only answers, for drlctl."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.control_fake import FakeDaemon, served


@pytest.fixture
def daemon() -> FakeDaemon:
    return FakeDaemon()


@pytest.fixture
async def control(daemon: FakeDaemon, tmp_path: Path) -> AsyncIterator[Path]:
    path = tmp_path / "lim1.sock"
    async with served(daemon, path):
        yield path
