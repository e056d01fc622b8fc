"""The live view: what the operator chose, what keys do to it, and how it is drawn. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args
from urllib.parse import quote, urlencode

from drld.cli.view.cells import NO_ROWS, cells, fit, visible
from drld.cli.view.frame import Line, Span, Style
from drld.cli.view.minute import BARS, Minute, Point, sparkline
from drld.control.schema.limits import LimitReport, SortKey, WaitsReport
from drld.control.schema.status import StatusReport
from drld.units import human_amount, human_duration, human_number, human_rate

SORT_KEYS: tuple[SortKey, ...] = get_args(SortKey)
_FRAME_LINES = 4
"""Lines of the table that show no limit."""
_NAME_CELLS = (8, 24)
_SPARKLINE_CELLS = (10, 60)
_HELP = "q quit  up/down pick  enter open  s sort  / find  p pause"
_HELP_ONE = "q quit  esc back to all limits  p pause"


@dataclass(frozen=True, slots=True)
class View:
    """The choices of the operator."""

    sort: SortKey = "demand"
    find: str = ""
    """Part of the names that are shown."""
    typing: bool = False
    """Keys go into `find`."""
    skip: int = 0
    """Limits above the first that is shown."""
    cursor: int = 0
    """The row that is picked, from 0."""
    opened: str | None = None
    """The limit that is shown alone."""
    paused: bool = False
    done: bool = False

    def path(self, rows: int) -> str:
        """The path to ask the daemon for: no more limits than the screen shows."""
        if self.opened is not None:
            return f"/v1/limits/{quote(self.opened, safe='')}"
        query = {"sort": self.sort, "skip": self.skip, "count": rows}
        return f"/v1/limits?{urlencode(query | ({'name': self.find} if self.find else {}))}"


class Seen(NamedTuple):
    """The last answers of the daemon, and texts about them."""

    status: StatusReport
    limits: Sequence[LimitReport]
    minute: Minute
    at: float
    """Time of the reports, on the clock of `minute`."""
    clock: str = ""
    """The time of the reports, as people read it."""
    trouble: str = ""
    """Why there is nothing newer; empty: nothing is wrong."""
    news: str = ""
    """A message about the last action or failure."""


def rows_of(height: int) -> int:
    """Limits that a screen of so many lines shows."""
    return max(height - _FRAME_LINES, 1)


def pressed(view: View, key: str, shown: Sequence[LimitReport], rows: int) -> View:
    """The choices after a key; `shown` are the limits on a screen of so many rows."""
    if view.typing:
        return _typed(view, key)
    if key == "q":
        return replace(view, done=True)
    if key in ("p", " "):
        return replace(view, paused=not view.paused)
    if view.opened is not None:
        return replace(view, opened=None) if key in ("escape", "backspace") else view
    if key == "s":
        after = SORT_KEYS[(SORT_KEYS.index(view.sort) + 1) % len(SORT_KEYS)]
        return replace(view, sort=after, skip=0, cursor=0)
    if key == "/":
        return replace(view, typing=True)
    if key == "escape":
        return replace(view, find="", skip=0, cursor=0)
    if key == "enter" and view.cursor < len(shown):
        return replace(view, opened=shown[view.cursor]["name"])
    return _moved(view, key, len(shown), rows)


def _typed(view: View, key: str) -> View:
    if key in ("enter", "escape"):
        return replace(view, typing=False, find=view.find if key == "enter" else "")
    if key == "backspace":
        return replace(view, find=view.find[:-1], skip=0, cursor=0)
    if len(key) == 1 and len(view.find) < 64:
        return replace(view, find=view.find + key, skip=0, cursor=0)
    return view


def _moved(view: View, key: str, shown: int, rows: int) -> View:
    steps = {"up": -1, "k": -1, "down": 1, "j": 1, "page-up": -rows, "page-down": rows}
    if key == "home":
        return replace(view, skip=0, cursor=0)
    if key not in steps:
        return view
    cursor, skip = view.cursor + steps[key], view.skip
    if cursor < 0:
        skip, cursor = max(skip + cursor, 0), 0
    elif cursor >= rows and shown >= rows:
        skip, cursor = skip + cursor - rows + 1, rows - 1
    return replace(view, skip=skip, cursor=max(min(cursor, shown - 1), 0))


def draw(view: View, seen: Seen, width: int, height: int, bars: str = BARS) -> list[Line]:
    """The frame; `bounded` cuts it to the screen."""
    if view.opened is None:
        body = table(seen, width, bars, view.cursor)[: max(height - _FRAME_LINES + 1, 1)]
        help_ = _HELP
    else:
        body, help_ = _alone(seen, width, bars), _HELP_ONE
    lines = [_head(seen), _note(view, seen), *body[: max(height - 3, 0)]]
    lines += [Line() for _ in range(height - 1 - len(lines))]
    return [*lines[: max(height - 1, 0)], [Span(help_, Style.DIM)]]


def _head(seen: Seen) -> Line:
    status = seen.status
    peers, probes = status["peers"], status["probes"]
    dead = f", {probes['dead']} dead" if probes and probes["dead"] else ""
    text = (
        f"{status['name']}  {'ready' if status['ready'] else 'starting'}  "
        f"up {human_duration(status['uptime_s'])}  limits {status['limits']}  "
        f"peers {peers['connected']} of {peers['configured']} connected{dead}"
    )
    return [Span(text, Style.BOLD), Span(f"  {seen.clock}", Style.DIM)]


def _note(view: View, seen: Seen) -> Line:
    if view.typing:
        return [Span(f"find: {view.find}_")]
    if seen.trouble:
        return [Span(seen.trouble, Style.ALARM)]
    if seen.news:
        return [Span(seen.news, Style.BOLD)]
    if view.paused:
        return [Span("paused: p goes on", Style.BOLD)]
    if view.opened is not None:
        return []
    found = f", with {view.find!r} in the name" if view.find else ""
    last = view.skip + len(seen.limits)
    return [Span(f"{view.skip + min(1, last)}-{last} by {view.sort}{found}", Style.DIM)]


class _Column(NamedTuple):
    head: str
    width: int
    text: Callable[[LimitReport, Point], str]


def table(seen: Seen, width: int, bars: str = BARS, cursor: int | None = None) -> list[Line]:
    """Headings and a line for each limit; columns that do not fit are left out, the last first.

    Without bars there are no sparklines.
    """
    limits = seen.limits
    columns = [
        _Column("DEMAND", 7, lambda _, last: human_number(last.demand)),
        _Column("LOCAL", 7, lambda it, _: _number(it["local_limit_bps"])),
        _Column("FORWARD", 7, lambda _, last: _number(last.forwarded)),
        _Column("DROPPED", 7, lambda _, last: _number(last.dropped)),
        _Column("PEERS", 5, lambda it, _: str(_peers(it))),
        _Column("LIMIT", 7, lambda it, _: human_number(it["limit_in_force_bps"])),
        _Column("MODE", 7, lambda it, _: it["mode"]),
    ]
    if any(it["excess"] == "mark" for it in limits):
        columns.insert(4, _Column("MARKED", 7, lambda _, last: _number(last.marked)))
    if any(it["waits"] for it in limits):
        columns[4:4] = [
            _Column("WAITING", 7, lambda it, _: _of_waits(it, "waiting", human_number)),
            _Column("P99", 8, lambda it, _: _of_waits(it, "p99_s", human_duration)),
        ]
    if any(it["unit"] != "bytes" for it in limits):
        columns.insert(1, _Column("UNIT", 7, lambda it, _: _unit(it)))
    name = max([_NAME_CELLS[0], *(cells(visible(it["name"])) for it in limits)])
    name = min(name, _NAME_CELLS[1], max(width // 5, _NAME_CELLS[0]))
    while columns and _taken(name, columns) + 1 + _SPARKLINE_CELLS[0] > width:
        columns.pop()
    spark = max(min(width - _taken(name, columns) - 1, _SPARKLINE_CELLS[1]), 0) if bars else 0
    heads = " ".join(fit(it.head, it.width, right=True) for it in columns)
    head = f"{fit('NAME', name)} {heads} {fit('LAST MINUTE', spark)}"
    lines = [[Span(head, Style.REVERSE)]]
    if not limits:
        lines.append([Span(NO_ROWS)])
    for row, it in enumerate(limits):
        last = _last(seen, it)
        values = " ".join(fit(col.text(it, last), col.width, right=True) for col in columns)
        drops = Style.ALARM if last.dropped else Style.PLAIN
        line = f"{fit(it['name'], name)} {values} "
        lines.append(
            [
                Span(line, Style.REVERSE if row == cursor else drops),
                Span(_demand(seen, it, spark, bars), drops),
            ]
        )
    return lines


def _alone(seen: Seen, width: int, bars: str) -> list[Line]:
    """One limit: its values, and three sparklines."""
    if not seen.limits:
        return []
    it = seen.limits[0]
    last, unit, fleet = _last(seen, it), it["unit"], it["fleet"]
    names = ", ".join(fleet["connected"])
    unnamed = f" and {fleet['unnamed']} more" if fleet["unnamed"] else ""
    in_force = human_rate(it["limit_in_force_bps"], unit)
    fields = [
        ("limit", f"{it['name']}, id {it['id']}, {it['allocator']}, {it['mode']}"),
        (
            "rate",
            f"{human_rate(it['rate_bps'], unit)}, in force {in_force}, "
            f"burst {human_amount(it['burst_bytes'], unit)}",
        ),
        ("local limit", _rate(it["local_limit_bps"], unit)),
        ("drop p", f"{it['drop_probability']:.3f}"),
        ("flows", str(it["flows"])),
        ("peers", f"{_peers(it)}: {names}{unnamed}" if _peers(it) else "none connected"),
        ("unsaved", ", ".join(it["unsaved"]) or "-"),
        *([("waiting", _waits(it["waits"]))] if it["waits"] else []),
    ]
    lines = [[Span(f"{name:<12}", Style.DIM), Span(value)] for name, value in fields]
    points = seen.minute.points(it["id"])
    for label, now, values in (
        ("demand", last.demand, [(point.at, point.demand) for point in points]),
        *(
            (label, getattr(last, label), [(p.at, getattr(p, label) or 0.0) for p in points])
            for label in ("forwarded", "dropped", *(["marked"] if it["excess"] == "mark" else []))
        ),
    ):
        top = max((value for _, value in values), default=0.0)
        drawn = sparkline(values, seen.at, max(min(width - 36, _SPARKLINE_CELLS[1]), 0), top, bars)
        text = f"{fit(_rate(now, unit), 20)}{drawn}"
        style = Style.ALARM if label == "dropped" and now else Style.PLAIN
        lines += [
            [Span(f"{label:<12}", Style.DIM), Span(text, style)],
            [
                Span(" " * 12),
                Span(f"largest in the last minute: {human_rate(top, unit)}", Style.DIM),
            ],
        ]
    return lines


def _of_waits(
    it: LimitReport, key: Literal["waiting", "p99_s"], shown: Callable[[float], str]
) -> str:
    return "-" if it["waits"] is None else shown(it["waits"][key])


def _waits(waits: WaitsReport) -> str:
    delays = " / ".join(human_duration(waits[key]) for key in ("p50_s", "p95_s", "p99_s"))
    return f"{waits['waiting']}, access delay p50 / p95 / p99 {delays}"


def _demand(seen: Seen, it: LimitReport, width: int, bars: str) -> str:
    """The demand of a limit: a full bar is its local limit, or more demand than that."""
    values = [(point.at, point.demand) for point in seen.minute.points(it["id"])]
    top = max([it["local_limit_bps"] or 0.0, *(value for _, value in values)])
    return sparkline(values, seen.at, width, top, bars)


def _last(seen: Seen, it: LimitReport) -> Point:
    points = seen.minute.points(it["id"])
    return points[-1] if points else Point(seen.at, it["demand_bps"])


def _taken(name: int, columns: Sequence[_Column]) -> int:
    return name + sum(column.width + 1 for column in columns)


def _peers(it: LimitReport) -> int:
    return len(it["fleet"]["connected"]) + it["fleet"]["unnamed"]


def _unit(it: LimitReport) -> str:
    return "bit/s" if it["unit"] == "bytes" else f"{it['unit']}/s"


def _number(value: float | None) -> str:
    return "-" if value is None else human_number(value)


def _rate(value: float | None, unit: str) -> str:
    return "-" if value is None else human_rate(value, unit)
