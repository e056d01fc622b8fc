"""A daemon that only answers, its socket, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.control_fake import FakeDaemon, client, served


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "lim1.sock"


@pytest.fixture
def daemon() -> FakeDaemon:
    return FakeDaemon()


@pytest.fixture
async def api(daemon: FakeDaemon, path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with served(daemon, path), client(path) as http_client:
        yield http_client
