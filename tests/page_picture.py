"""Makes docs/page.png: the page after five minutes of a fleet in virtual time.

    .venv/bin/python -m tests.page_picture

The browser's time is virtual, too: it asks for three hundred answers as fast as they come.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import trio
from PIL import Image

from drld.model import NS_PER_S
from drld.police.policer import Excess

from .chromium import chromium, tunnel
from .control_fake import served
from .page_fleet import Flow, PageDaemon, limit

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "page.png"
SIZE = (1100, 900)
COLOURS = 96
"""The colours of the picture: enough for text, and a third of the bytes."""
BEGAN_S = 1_700_000_000
LASTS_S = 300

LIMITS = [limit(1, "web", 20), limit(2, "backup", 8), limit(3, "video", 12, Excess.MARK)]
FLOWS = [
    *(Flow("paris", "web", number) for number in range(3)),
    *(Flow("tokyo", "web", 10 + number, begin_s=40) for number in range(4)),
    *(Flow("lima", "web", 20 + number, ceiling=4e5) for number in range(2)),
    Flow("paris", "backup", 30, ceiling=5e5),
    Flow("lima", "backup", 31, begin_s=100),
    *(Flow("paris", "video", 40 + number, capable=True) for number in range(2)),
    Flow("tokyo", "video", 45, capable=True),
]


def fleet() -> PageDaemon:
    """Three limiters; one of them dies, and comes back."""
    daemon = PageDaemon(["paris", "tokyo", "lima"], LIMITS, FLOWS, "mesh")
    tokyo = daemon.sites["tokyo"]
    say = partial(daemon.event_log.add, "reload", "reloaded /etc/drld/drld.toml: limits: 3")
    events: list[tuple[int, Callable[[], None]]] = [
        (70, say), (150, tokyo.kill), (230, tokyo.revive),
    ]  # fmt: skip
    for second, happens in events:
        daemon.clock.at(second * NS_PER_S, _called, happens)
    return daemon


def _called(happens: Callable[[], None]) -> None:
    happens()


async def main() -> None:
    """Make the picture."""
    daemon = fleet()

    def now() -> float:
        return BEGAN_S + daemon.clock.now_ns / NS_PER_S

    with TemporaryDirectory() as name, patch.object(time, "time", now):
        socket = Path(name) / "lim.sock"
        async with (
            served(daemon, socket),
            tunnel(socket) as url,
            chromium(Path(name) / "profile", 4 * LASTS_S) as browser,
        ):
            await browser.picture(*SIZE)
            await browser.call("Page.navigate", url=f"{url}#limit=web")
            await browser.until("document.querySelector('#limits-table button')")
            await browser.call(
                "Emulation.setVirtualTimePolicy",
                policy="pauseIfNetworkFetchesPending",
                budget=LASTS_S * 1000,
            )
            await browser.until("document.querySelector('#facts').innerText.includes('up 5 min')")
            data = await browser.picture(*SIZE)
    picture = Image.open(io.BytesIO(data)).convert("RGB")
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(PICTURE, optimize=True)


if __name__ == "__main__":
    trio.run(main)
