"""`drlctl top`: a live view of limits."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from queue import SimpleQueue
from threading import Thread
from typing import TypeAlias, cast

import click

from drld.cli.client import Daemon, NotFound, Refused, limit_path
from drld.cli.completion import limit_names
from drld.cli.output import json_option
from drld.cli.view.frame import plain
from drld.cli.view.live import SORT_KEYS, Seen, View, draw, pressed, rows_of, table
from drld.cli.view.minute import ASCII_BARS, BARS, Minute
from drld.control.schema.limits import LimitReport, SortKey
from drld.control.schema.status import StatusReport

_LATE_S = 3.0
"""The view says that the daemon does not answer after this time."""
_NEWS_S = 5.0
_ANY = 10**8


@click.command()
@click.argument("name", required=False, shell_complete=limit_names)
@click.option("--interval", type=click.FloatRange(min=0.1), default=1.0, help="Seconds; default 1.")
@click.option("--sort", type=click.Choice(SORT_KEYS), default="demand", help="Default: demand.")
@click.option("--find", default="", metavar="TEXT", help="Only limits with TEXT in their names.")
@click.option(
    "--count", type=click.IntRange(min=1), metavar="N", help="With --once or --json: N limits."
)
@click.option("--once", is_flag=True, help="Write one table, as without a terminal.")
@click.option("--ascii", "ascii_only", is_flag=True, help="For terminals without UTF-8.")
@json_option
@click.pass_obj
def top(
    daemon: Daemon,
    *,
    name: str | None,
    interval: float,
    sort: SortKey,
    find: str,
    count: int | None,
    once: bool,
    ascii_only: bool,
    as_json: bool,
) -> None:
    """Watch all limits live, or the limit NAME.

    \b
    Keys: q quit, up and down pick, enter opens, esc goes back, s sorts, / finds, p pauses.
    Rates are those of this limiter, over the last interval. A full bar is the local limit, or the
    largest demand of the minute if that is more. `excess` is demand above the local limit.
    --json writes an object a line, until interrupted; with --once, one.

    \b
    drlctl top
    drlctl top --once --sort excess --count 5
    """
    view = View(sort=sort, find=find, opened=name)
    utf8 = "utf" in ((sys.stdout and sys.stdout.encoding) or "").lower()
    bars = BARS if utf8 and not ascii_only else ASCII_BARS
    dumb = os.environ.get("TERM", "dumb") == "dumb"
    if name is not None:
        limit_path(name)
    # A closed stream is None.
    terminal = all(stream and stream.isatty() for stream in (sys.stdin, sys.stdout))
    if not as_json and (dumb or not terminal):
        once = True
    try:
        if once or as_json:
            rows = count or _ANY
            for seen in _samples(daemon, view, interval, rows, once):
                if as_json:
                    click.echo(json.dumps(_record(seen)))
                else:
                    for line in table(seen, 120, bars=""):
                        click.echo(plain(line))
        else:
            _live(daemon, view, interval, bars)
    except KeyboardInterrupt:
        return


def _asked(daemon: Daemon, view: View, rows: int) -> tuple[StatusReport, list[LimitReport]]:
    """The daemon's answers.

    Raises:
        Refused: the daemon cannot be reached, or refuses.
    """
    status = cast(StatusReport, daemon.get("/v1/status"))
    limits = daemon.get(view.path(rows))
    return status, [limits] if view.opened is not None else limits


def _samples(daemon: Daemon, view: View, interval: float, rows: int, once: bool) -> Iterator[Seen]:
    """One sample each interval. The first gives no rates, so it is left out."""
    minute, first = Minute(), True
    while True:
        due = time.monotonic() + interval
        status, limits = _asked(daemon, view, rows)
        now = time.monotonic()
        minute.add(now, status["uptime_s"], limits)
        if not first:
            yield Seen(status, limits, minute, now)
            if once:
                return
        first = False
        # The rest of the interval; rates need two samples that are an interval apart.
        time.sleep(max(due - time.monotonic(), 0.0))


def _record(seen: Seen) -> dict[str, object]:
    """A sample for scripts: the reports, and the rates of the last interval."""
    limits = []
    for report in seen.limits:
        last = seen.minute.points(report["id"])[-1]
        rates = {
            "forwarded_bps": last.forwarded,
            "dropped_bps": last.dropped,
            "marked_bps": last.marked,
        }
        limits.append({**report, **rates})
    return {"t": time.time(), "limiter": seen.status["name"], "limits": limits}


_Answer: TypeAlias = tuple[View, StatusReport, list[LimitReport]]
"""The view that was asked for, and the daemon's answers."""


class _Feed:
    """Asks the daemon in a thread, so that keys work while it does not answer."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._asked: SimpleQueue[tuple[View, int]] = SimpleQueue()
        self._answers: SimpleQueue[_Answer | Refused] = SimpleQueue()
        self.since: float | None = None
        """Time of the question that has no answer yet."""

    def start(self, wake: Callable[[], None]) -> None:
        """Begin; `wake` is called after each answer."""

        def run() -> None:
            while True:
                view, rows = self._asked.get()
                try:
                    self._answers.put((view, *_asked(self._daemon, view, rows)))
                except (Refused, click.UsageError) as error:
                    refused = error if isinstance(error, Refused) else Refused(error.message)
                    self._answers.put(refused)
                wake()

        Thread(target=run, daemon=True).start()

    def ask(self, view: View, rows: int) -> None:
        """Ask for the limits that the view shows; one question at a time."""
        self.since = time.monotonic()
        self._asked.put((view, rows))

    def answer(self) -> _Answer | Refused | None:
        """The daemon's answer, if there is one."""
        if self._answers.empty():
            return None
        self.since = None
        return self._answers.get()


class _Live:
    """The view between two frames: the choices of the operator, and the answers of the daemon."""

    def __init__(self, view: View, status: StatusReport, limits: list[LimitReport]) -> None:
        self.view = view
        self.seen = Seen(status, limits, Minute(), time.monotonic(), _clock())
        self.stale = False
        """Whether the operator has chosen something that no answer shows yet."""
        self._news_until = 0.0
        self._lost = ""
        """When the daemon answered last, if it does not answer now."""

    def press(self, keys: list[str], rows: int) -> None:
        """Change the choices by these keys, on a screen of so many rows."""
        before = self.view
        for key in keys:
            self.view = pressed(self.view, key, self.seen.limits, rows)
        self.stale |= _content(self.view) != _content(before)

    def wait(self, now: float, asked: float | None) -> None:
        """Note that it is `now`, and that a question waits for an answer since `asked`."""
        if self.seen.news and now > self._news_until:
            self.seen = self.seen._replace(news="")
        if asked is not None and now - asked > _LATE_S:
            trouble = f"the daemon does not answer since {self.seen.clock}"
            self.seen = self.seen._replace(trouble=trouble)

    def take(self, answer: _Answer | Refused, now: float) -> None:
        """Take an answer of the daemon."""
        if isinstance(answer, NotFound) and self.view.opened is not None:
            self.view = replace(self.view, opened=None)
            self.stale = True
            self._tell(answer.message, now)
        elif isinstance(answer, Refused):
            self._lost = self._lost or self.seen.clock
            text = f"no answer since {self._lost}, trying again: {answer.message}"
            self.seen = self.seen._replace(trouble=text)
        else:
            self._show(*answer, now)

    def _show(
        self, asked: View, status: StatusReport, limits: list[LimitReport], now: float
    ) -> None:
        minute = self.seen.minute
        minute.add(now, status["uptime_s"], limits)
        restarted = status["pid"] != self.seen.status["pid"]
        if self._lost or restarted:
            self._tell(f"the daemon answers again{' after a restart' if restarted else ''}", now)
            self._lost = ""
        if _content(asked) == _content(self.view):
            self.seen = Seen(status, limits, minute, now, _clock(), "", self.seen.news)
            cursor = max(min(self.view.cursor, len(limits) - 1), 0)
            self.view = replace(self.view, cursor=cursor)

    def _tell(self, news: str, now: float) -> None:
        self.seen, self._news_until = self.seen._replace(news=news), now + _NEWS_S


def _content(view: View) -> View:
    """The choices that decide what the daemon is asked for."""
    return replace(view, cursor=0, typing=False, paused=False, done=False)


def _live(daemon: Daemon, view: View, interval: float, bars: str) -> None:
    from drld.cli.terminal import Terminal

    # An error at the start appears on the operator's own screen.
    live = _Live(view, *_asked(daemon, view, 1))
    feed, due = _Feed(daemon), time.monotonic()
    with Terminal() as terminal:
        feed.start(terminal.wake)
        while not live.view.done:
            width, height = terminal.size
            now = time.monotonic()
            live.wait(now, feed.since)
            terminal.show(draw(live.view, live.seen, width, height, bars))
            if feed.since is None and (now >= due or live.stale) and not live.view.paused:
                feed.ask(live.view, rows_of(height))
                live.stale = False
                due = now + interval
            # An answer, a key and another size of the screen end the wait.
            idle = live.view.paused or feed.since is not None
            live.press(terminal.wait(0.5 if idle else min(due - now, 0.5)), rows_of(height))
            answer = feed.answer()
            if answer is not None:
                live.take(answer, time.monotonic())


def _clock() -> str:
    return time.strftime("%H:%M:%S UTC", time.gmtime())
