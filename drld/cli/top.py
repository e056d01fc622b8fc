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
from typing import cast

import click

from drld.cli.client import Daemon, NotFound, Refused
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
    utf8 = "utf" in (sys.stdout.encoding or "").lower()
    bars = BARS if utf8 and not ascii_only else ASCII_BARS
    dumb = os.environ.get("TERM", "dumb") == "dumb"
    if not as_json and (dumb or not (sys.stdin.isatty() and sys.stdout.isatty())):
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


class _Feed:
    """Asks the daemon in a thread, so that keys work while it does not answer."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._asked: SimpleQueue[tuple[View, int]] = SimpleQueue()
        self._answers: SimpleQueue[tuple[View, StatusReport, list[LimitReport]] | Refused]
        self._answers = SimpleQueue()
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

    def answer(self) -> tuple[View, StatusReport, list[LimitReport]] | Refused | None:
        """The daemon's answer, if there is one."""
        if self._answers.empty():
            return None
        self.since = None
        return self._answers.get()


def _live(daemon: Daemon, view: View, interval: float, bars: str) -> None:
    from drld.cli.terminal import Terminal

    # An error at the start appears on the operator's own screen.
    status, limits = _asked(daemon, view, 1)
    now = time.monotonic()
    minute = Minute()
    seen = Seen(status, limits, minute, now, _clock())
    feed, due, news_until, lost = _Feed(daemon), now, 0.0, ""
    with Terminal() as terminal:
        feed.start(terminal.wake)
        while not view.done:
            width, height = terminal.size
            now = time.monotonic()
            if seen.news and now > news_until:
                seen = seen._replace(news="")
            terminal.show(draw(view, seen, width, height, bars))
            if feed.since is None and now >= due and not view.paused:
                feed.ask(view, rows_of(height))
                due = now + interval
            before = view
            # An answer, a key and another size of the screen end the wait.
            idle = view.paused or feed.since is not None
            for key in terminal.wait(0.5 if idle else min(due - now, 0.5)):
                view = pressed(view, key, seen.limits, rows_of(height))
            if replace(view, cursor=0, typing=False) != replace(before, cursor=0, typing=False):
                due = 0.0  # Something else is to be shown.
            now = time.monotonic()
            if feed.since is not None and now - feed.since > _LATE_S:
                seen = seen._replace(trouble=f"the daemon does not answer since {seen.clock}")
            answer = feed.answer()
            if isinstance(answer, NotFound) and view.opened is not None:
                view = replace(view, opened=None)
                seen, news_until = seen._replace(news=answer.message), now + _NEWS_S
                due = 0.0
            elif isinstance(answer, Refused):
                lost = lost or seen.clock
                text = f"no answer since {lost}, trying again: {answer.message}"
                seen = seen._replace(trouble=text)
            elif answer is not None:
                asked, status, limits = answer
                minute.add(now, status["uptime_s"], limits)
                news = seen.news
                if lost or status["pid"] != seen.status["pid"]:
                    again = " after a restart" if status["pid"] != seen.status["pid"] else ""
                    news, news_until, lost = f"the daemon answers again{again}", now + _NEWS_S, ""
                if (asked.opened, asked.skip, asked.sort, asked.find) == (
                    view.opened, view.skip, view.sort, view.find
                ):  # fmt: skip
                    seen = Seen(status, limits, minute, now, _clock(), "", news)
                    view = replace(view, cursor=max(min(view.cursor, len(limits) - 1), 0))


def _clock() -> str:
    return time.strftime("%H:%M:%S UTC", time.gmtime())
