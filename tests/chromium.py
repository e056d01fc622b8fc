"""Headless Chromium, steered over a pipe by its DevTools protocol: no driver, and no open port.

https://chromedevtools.github.io/devtools-protocol has the methods and events.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import trio

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--remote-debugging-pipe",
    "--no-sandbox",  # The tests may be root's; what is loaded is our own page.
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
)
PATIENCE_S = 600.0
"""Only a hang lasts so long: a starved host has needed two minutes and a half."""


class Browser:
    """One tab, and what it complained about."""

    def __init__(self, send: trio.lowlevel.FdStream, receive: trio.lowlevel.FdStream) -> None:
        self._send = send
        self._receive = receive
        self._answers: dict[int, trio.MemorySendChannel[Any]] = {}
        self._count = 0
        self._session: str | None = None
        self.complaints: list[str] = []
        """Errors and warnings: of scripts, the network, and the content security policy."""

    async def open(self, task_status: trio.TaskStatus[None]) -> None:
        """Read what the browser says, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read)
            target = await self.call("Target.createTarget", url="about:blank")
            attached = await self.call(
                "Target.attachToTarget", targetId=target["targetId"], flatten=True
            )
            self._session = attached["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Accessibility"):
                await self.call(f"{domain}.enable")
            task_status.started()

    async def _read(self) -> None:
        buffer = b""
        while data := await self._receive.receive_some(65_536):
            *messages, buffer = (buffer + data).split(b"\0")
            for message in messages:
                await self._take(json.loads(message))

    async def _take(self, message: dict[str, Any]) -> None:
        if "id" in message:
            await self._answers.pop(message["id"]).send(message)
            return
        values = message["params"]
        if message["method"] == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(values["exceptionDetails"]))
        elif message["method"] == "Log.entryAdded":
            self.complaints.append(f"{values['entry']['text']} {values['entry'].get('url', '')}")
        elif message["method"] == "Runtime.consoleAPICalled":
            self.complaints.append(json.dumps(values["args"]))

    async def call(self, method: str, **parameters: Any) -> Any:
        """The result of a method."""
        self._count += 1
        send, receive = trio.open_memory_channel[Any](1)
        self._answers[self._count] = send
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        await self._send.send_all(json.dumps(message).encode() + b"\0")
        answer = await receive.receive()
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    async def value(self, expression: str) -> Any:
        """The value of an expression in the page; a promise is awaited."""
        result = await self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in result, (expression, result["exceptionDetails"])
        return result["result"].get("value")

    async def until(self, condition: str) -> None:
        """Wait until a condition holds in the page, which is asked after each change of it."""
        await self.value(
            "new Promise((resolve) => {"
            f"  const holds = () => Boolean({condition});"
            "  if (holds()) { resolve(); return; }"
            "  const observer = new MutationObserver(() => {"
            "    if (holds()) { observer.disconnect(); resolve(); }"
            "  });"
            "  observer.observe(document, {subtree: true, childList: true, attributes: true,"
            "    characterData: true});"
            "})"
        )

    async def press(self, key: str, code: int = 0, text: str = "") -> None:
        """Press a key, and let go."""
        key_of = {"key": key, "code": key, "windowsVirtualKeyCode": code, "text": text}
        await self.call("Input.dispatchKeyEvent", type="keyDown", **key_of)
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key)

    async def accessible(self) -> list[tuple[str, str]]:
        """The accessibility tree: role and name of each node that is not ignored."""
        tree = await self.call("Accessibility.getFullAXTree")
        return [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in tree["nodes"]
            if not node["ignored"]
        ]

    async def picture(self, width: int, height: int) -> bytes:
        """The page as a PNG, of so many pixels."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        result = await self.call("Page.captureScreenshot", format="png")
        return base64.b64decode(result["data"])


@asynccontextmanager
async def chromium(profile: Path, patience_s: float = PATIENCE_S) -> AsyncIterator[Browser]:
    """A browser with an empty profile in this folder; ends with the context, or after this time."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    assert program is not None, "no Chromium: scripts/setup installs it"
    to_read, to_send = os.pipe()
    from_read, from_send = os.pipe()
    # The browser reads from descriptor 3 and writes to 4. bash knows descriptors above 9.
    script = f'exec "$@" 3<&{to_read} 4>&{from_send}'
    flags = [*FLAGS, f"--user-data-dir={profile}"]
    process = subprocess.Popen(
        ["bash", "-c", script, "bash", program, *flags],
        pass_fds=(to_read, from_send),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_read)
    os.close(from_send)
    send, receive = trio.lowlevel.FdStream(to_send), trio.lowlevel.FdStream(from_read)
    try:
        with trio.fail_after(patience_s):
            async with trio.open_nursery() as nursery:
                browser = Browser(send, receive)
                await nursery.start(_opened, browser)
                yield browser
                nursery.cancel_scope.cancel()
    finally:
        # At the end of its pipe the browser ends, with all its processes.
        await trio.aclose_forcefully(send)
        await trio.aclose_forcefully(receive)
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise


@asynccontextmanager
async def tunnel(path: Path) -> AsyncIterator[str]:
    """The URL of a port of this host that leads to a unix socket, as `ssh -L` makes one."""

    async def copy(source: trio.SocketStream, to: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for data in source:
                await to.send_all(data)

    async def serve(client: trio.SocketStream) -> None:
        daemon = await trio.open_unix_socket(str(path))
        async with client, daemon, trio.open_nursery() as both:
            both.start_soon(copy, client, daemon)
            await copy(daemon, client)
            both.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        serving = partial(trio.serve_tcp, serve, 0, host="127.0.0.1")
        (listener,) = await nursery.start(serving)
        yield f"http://127.0.0.1:{listener.socket.getsockname()[1]}/"
        nursery.cancel_scope.cancel()


async def _opened(browser: Browser, *, task_status: trio.TaskStatus[None]) -> None:
    await browser.open(task_status)
