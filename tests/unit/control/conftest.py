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
async def serving(daemon: FakeDaemon, path: Path) -> AsyncIterator[Path]:
    """The socket of the daemon, which is served."""
    async with served(daemon, path):
        yield path


@pytest.fixture
async def api(serving: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with client(serving) as http_client:
        yield http_client
