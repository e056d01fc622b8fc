"""drlctl top: in a real terminal, and for scripts."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pyte
import pytest
import trio

from drld.cli.view.frame import Span, Style, painted, plain
from drld.cli.view.live import Seen, View, draw, pressed, table
from drld.cli.view.minute import ASCII_BARS, Minute, sparkline
from drld.control.schema.limits import LimitReport
from tests.control_fake import FPS_LIMIT, GRD_LIMIT, STATUS, FakeDaemon, many_limits, served

from .drlctl import drlctl, lines, output, refused
from .test_process import environment

FAST = ("--interval", "0.1")


def seen_at(seconds: int) -> Seen:
    """One limit that forwards 125 kB/s and drops 1 kB/s, a sample a second."""
    minute = Minute()
    for at in range(seconds + 1):
        report = LimitReport(
            **{**FPS_LIMIT, "forwarded_bytes": at * 125_000, "dropped_bytes": at * 1000}
        )
        minute.add(at, at, [report])
    return Seen(STATUS, [report], minute, seconds, "12:00:00 UTC")


def test_the_table_fits_80_columns() -> None:
    assert [plain(line) for line in table(seen_at(1), 80, ASCII_BARS)] == [
        "NAME        DEMAND   LOCAL FORWARD DROPPED PEERS   LIMIT    MODE LAST MINUTE",
        "customer-a  3.12 M  3.05 M  1.00 M  8.00 k     3  6.67 M enforce               #",
    ]


def test_a_table_without_limits_says_so() -> None:
    shown = table(Seen(STATUS, [], Minute(), 0, "12:00:00 UTC"), 80, ASCII_BARS)
    assert plain(shown[0]).startswith("NAME ")
    assert [plain(line) for line in shown[1:]] == ["(none)"]


def test_a_restart_of_the_daemon_gives_no_rates() -> None:
    minute = Minute()
    minute.add(0, 100, [FPS_LIMIT])
    minute.add(1, 101, [FPS_LIMIT])
    assert minute.points(1)[-1].forwarded == 0
    minute.add(2, 0.5, [LimitReport(**{**FPS_LIMIT, "forwarded_bytes": 1e12})])
    assert minute.points(1)[-1].forwarded is None
    # Nor does a limit that was removed and added again.
    minute.add(3, 1.5, [FPS_LIMIT])
    assert minute.points(1)[-1].forwarded is None
    minute.add(61.5, 60, [])
    assert [point.at for point in minute.points(1)] == [2, 3]
    minute.add(100, 99, [])
    assert minute.points(1) == ()


def test_a_sparkline_shows_the_largest_of_its_time() -> None:
    points = [(0.0, 100.0), (30.0, 0.0), (31.0, 50.0), (59.0, 1.0), (60.0, 200.0)]
    assert sparkline(points, 60, 6, 100, ASCII_BARS) == "  _= #"
    assert sparkline([(60, 0), (50, 1e-9)], 60, 6, 100, ASCII_BARS) == "    ._"


def test_the_view_of_one_limit_names_its_peers() -> None:
    view = pressed(View(), "enter", [FPS_LIMIT], 20)
    assert view.path(20) == "/v1/limits/customer-a"
    text = "\n".join(plain(line) for line in draw(view, seen_at(3), 80, 24, ASCII_BARS))
    assert "3: lim2 and 2 more" in text
    assert "forwarded   1.00 Mbit/s" in text
    assert "dropped     8.00 kbit/s" in text


def test_keys_choose_what_the_daemon_is_asked_for() -> None:
    view, shown = View(), list(many_limits(3))
    for key in ("s", "/", "a", "&", "enter", "down", "down", "down", "up"):
        view = pressed(view, key, shown, 3)
    assert view.path(3) == "/v1/limits?sort=excess&skip=1&count=3&name=a%26"
    assert view.cursor == 1
    view = pressed(pressed(view, "escape", shown, 3), "page-down", shown, 3)
    assert (view.find, view.skip, view.cursor) == ("", 1, 2)
    assert pressed(view, "q", shown, 3).done


async def test_once_is_a_table(control: Path) -> None:
    assert await output(control, "top", "--once", *FAST, "--count", "1") == lines("""
        NAME        DEMAND   LOCAL FORWARD DROPPED PEERS   LIMIT    MODE
        customer-a  3.12 M  3.05 M       0       0     3  6.67 M enforce
    """)


async def test_once_with_json_is_an_object(control: Path, daemon: FakeDaemon) -> None:
    for verb in (("top",), ("limit", "top")):
        record = json.loads(await output(control, *verb, "b", "--once", "--json", *FAST))
        rates = {"forwarded_bps": 0, "dropped_bps": 0, "marked_bps": 0}
        assert record["limits"] == [{**GRD_LIMIT, **rates}]
        assert record["limiter"] == "lim1"
    assert "no limit is named 'nix'" in refused(await drlctl(control, "top", "nix", "--once"))


async def test_without_a_terminal_it_is_a_table(control: Path) -> None:
    assert (await output(control, "top", *FAST)).startswith("NAME ")


class Terminal:
    """A terminal with drlctl top in it."""

    def __init__(self, descriptor: int, process: subprocess.Popen[bytes]) -> None:
        self._descriptor = descriptor
        self.process = process
        self.screen = pyte.Screen(80, 24)
        self._stream = pyte.ByteStream(self.screen)

    @property
    def text(self) -> str:
        return "\n".join(self.screen.display)

    async def shows(self, condition: Callable[[str], bool]) -> None:
        with trio.fail_after(60):
            while not condition(self.text):
                await trio.lowlevel.wait_readable(self._descriptor)
                self._stream.feed(os.read(self._descriptor, 65536))

    def type(self, keys: str) -> None:
        os.write(self._descriptor, keys.encode())

    def resize(self, columns: int, height: int) -> None:
        size = struct.pack("HHHH", height, columns, 0, 0)
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, size)
        self.screen.resize(height, columns)

    async def ends(self) -> int:
        """The exit status; the last output is read as well."""
        with trio.fail_after(60):
            while self.process.poll() is None:
                with trio.move_on_after(0.05):
                    await trio.lowlevel.wait_readable(self._descriptor)
                    try:
                        self._stream.feed(os.read(self._descriptor, 65536))
                    except OSError:  # Its side of the terminal is closed.
                        return await trio.to_thread.run_sync(self.process.wait)
        return self.process.returncode


@asynccontextmanager
async def terminal(control: Path, *arguments: str) -> AsyncIterator[Terminal]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [sys.executable, "-m", "drld.cli", "--socket", str(control), "top", *FAST]
    process = subprocess.Popen(
        ["setsid", "--ctty", *command, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**environment(), "TERM": "xterm"},
    )
    before = termios.tcgetattr(theirs)
    try:
        yield Terminal(ours, process)
        assert termios.tcgetattr(theirs) == before
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)


async def test_a_terminal_shows_pages_of_limits(tmp_path: Path) -> None:
    path, daemon = tmp_path / "lim1.sock", FakeDaemon()
    daemon.reports = list(many_limits(100))
    for number in (70, 71):
        daemon.reports[number]["demand_bps"] *= 1000
    daemon.reports[71]["name"] = "\x1b[31mevil\x07"
    async with served(daemon, path), terminal(path) as shown:
        await shown.shows(lambda text: "1-20 by demand" in text and "█" in text)
        rows = shown.text.splitlines()
        assert rows[0].startswith("lim1  ready  up 2h 03m  limits 2")
        assert rows[3].startswith("c70 ")
        assert rows[4].startswith("?[31mevil? ")
        assert rows[-1].startswith("q quit")
        shown.type("s")
        await shown.shows(lambda text: "by excess" in text)
        shown.type("/c9")
        await shown.shows(lambda text: "find: c9_" in text)
        shown.type("\r")
        await shown.shows(lambda text: "1-11 by excess, with 'c9'" in text)
        shown.type("\x1b[B\r")
        await shown.shows(lambda text: "limit       c90, id 91" in text)
        assert "largest in the last minute: 3.12 Mbit/s" in shown.text
        shown.resize(40, 10)
        await shown.shows(lambda text: len(text.splitlines()) == 10 and "q quit" in text)
        shown.resize(100, 30)
        shown.type("\x1b")
        await shown.shows(lambda text: "1-11 by excess" in text)
        shown.type("p")
        await shown.shows(lambda text: "paused" in text)
        shown.type("q")
        assert await shown.ends() == 0
        assert "\x1b" not in shown.text


async def test_a_daemon_that_goes_and_comes_again(tmp_path: Path) -> None:
    path, daemon = tmp_path / "lim1.sock", FakeDaemon()
    async with terminal(path) as shown:
        # With nothing to look at from the start: a line, and the status of any other command.
        assert await shown.ends() == 1
    async with AsyncExitStack() as stack:
        async with served(daemon, path):
            shown = await stack.enter_async_context(terminal(path))
            await shown.shows(lambda text: "customer-a" in text)
        await shown.shows(
            lambda text: "no answer since" in text and "cannot reach a daemon" in text
        )
        assert "customer-a" in shown.text
        daemon.report["pid"] += 1
        async with served(daemon, path):
            await shown.shows(lambda text: "the daemon answers again after a restart" in text)
            # A limit that is removed while it is looked at.
            shown.type("\r")
            await shown.shows(lambda text: "limit       customer-a" in text)
            del daemon.reports[0]
            await shown.shows(lambda text: "no limit is named 'customer-a'" in text)
            os.killpg(shown.process.pid, signal.SIGINT)
            assert await shown.ends() == 0


def test_an_alarm_without_colour_is_bold() -> None:
    frame = [[Span("dropped", Style.ALARM), Span("fine")]]
    assert "\x1b[1;31mdropped" in painted(frame, 1)
    assert "\x1b[1mdropped" in painted(frame, 1, colour=False)
    assert "31" not in painted(frame, 1, colour=False)


@pytest.mark.parametrize(("value", "colours"), [("1", {"default"}), ("", {"default", "red"})])
async def test_no_color_is_obeyed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, colours: set[str]
) -> None:
    """https://no-color.org: it counts unless it is empty."""
    monkeypatch.setenv("NO_COLOR", value)
    path, daemon = tmp_path / "lim1.sock", FakeDaemon()
    async with served(daemon, path), terminal(path) as shown:
        row = 3
        await shown.shows(lambda text: "█" in text and " - " not in text.splitlines()[row])
        daemon.reports[0]["dropped_bytes"] += 10**9
        await shown.shows(lambda text: " G " in text.splitlines()[row])
        assert {shown.screen.buffer[row][column].fg for column in range(80)} == colours
        shown.type("q")
        assert await shown.ends() == 0
