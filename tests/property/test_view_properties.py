"""The live view, for any names, rates and screens: it fits, and commands no terminal."""

from __future__ import annotations

import copy

import pyte
from hypothesis import example, given
from hypothesis import strategies as st
from wcwidth import wcwidth

from drld.cli.view.cells import cells, fit, visible
from drld.cli.view.frame import Line, bounded, painted, plain
from drld.cli.view.keys import keys, pressed_escape
from drld.cli.view.live import Seen, View, draw, pressed, rows_of
from drld.cli.view.minute import ASCII_BARS, BARS, Minute, sparkline
from drld.control.schema.limits import LimitReport
from tests.control_fake import FPS_LIMIT, STATUS

HOSTILE = [
    "\x1b[2J\x1b[31mred",
    "a\nb\tc\r",
    "\x9b31m",
    "\uff57\uff49\uff44\uff45",  # wide
    "e\u0301",  # combining
    "\u202egnp.exe",  # from right to left
    "\u1100\u1161\u11a8",  # old Hangul
    "\U0001f469\u200d\U0001f467",  # joined
]
names = st.text(max_size=30) | st.sampled_from(HOSTILE)
rates = st.floats(0, 1e15)
reports = st.builds(
    lambda name, number, demand, forwarded, excess, unit, peers: LimitReport(
        **{
            **FPS_LIMIT,
            "name": name,
            "id": number,
            "demand_bps": demand,
            "forwarded_bytes": forwarded,
            "excess": excess,
            "unit": unit,
            "fleet": {**FPS_LIMIT["fleet"], "connected": peers},
        }
    ),
    *(names, st.integers(1, 9), rates, rates, st.sampled_from(["drop", "mark", "refuse"])),
    *(st.sampled_from(["bytes", "calls", "\x1b]0;title\x07"]), st.lists(names, max_size=3)),
)
typed = st.sampled_from([*"qp sjk/x", "up", "down", "page-up", "page-down", "home", "enter"])
presses = st.lists(typed | st.sampled_from(["escape", "backspace"]), max_size=12)
screens = st.tuples(st.integers(1, 130), st.integers(1, 40))


def seen_of(samples: list[list[LimitReport]], trouble: str) -> Seen:
    minute = Minute()
    for at, sample in enumerate(samples):
        minute.add(at, at, sample)
    status = copy.deepcopy(STATUS)
    status["name"] = trouble
    return Seen(status, samples[-1], minute, len(samples) - 1, "12:00:00 UTC", trouble)


def shown_as_drawn(frame: list[Line], width: int, height: int) -> None:
    """Nothing wraps, scrolls, or is left of what was on the screen before."""
    terminal = pyte.Screen(width, height)
    stream = pyte.Stream(terminal)
    stream.feed("\x1b#8")  # full of letters
    stream.feed(painted(frame, height))
    assert [line.rstrip() for line in terminal.display] == [
        *map(plain, frame),
        *[""] * (height - len(frame)),
    ]


@given(st.lists(st.lists(reports, max_size=8), min_size=1, max_size=3), names, presses, screens)
@example([[LimitReport(**{**FPS_LIMIT, "name": name}) for name in HOSTILE]], "", [], (80, 24))
def test_a_frame_fits_the_screen_and_has_no_control_character(
    samples: list[list[LimitReport]], trouble: str, typed: list[str], screen: tuple[int, int]
) -> None:
    width, height = screen
    view, seen = View(), seen_of(samples, trouble)
    for key in typed:
        view = pressed(view, key, seen.limits, rows_of(height))
        assert view.skip >= 0
        assert 0 <= view.cursor < max(len(seen.limits), 1)
    frame = bounded(draw(view, seen, width, height), width, height)
    assert len(frame) <= height
    for line in frame:
        text = "".join(span.text for span in line)
        assert all(char.isprintable() for char in text)
        assert sum(map(wcwidth, text)) <= width
    if width * height <= 400 or screen == (80, 24):
        shown_as_drawn(frame, width, height)


@given(st.text(max_size=40), st.integers(0, 50), st.booleans())
def test_a_text_is_cut_or_padded_to_its_cells(text: str, width: int, right: bool) -> None:
    fitted = fit(text, width, right=right)
    assert cells(fitted) == sum(map(wcwidth, fitted)) == width
    if cells(visible(text)) <= width:
        assert visible(text) in fitted


@given(st.characters())
def test_no_character_is_wider_than_counted(char: str) -> None:
    shown = visible(char)
    assert all(wcwidth(it) >= 0 for it in shown)
    assert sum(map(wcwidth, shown)) == cells(shown)


@given(
    st.lists(st.tuples(st.floats(0, 100), rates), max_size=20),
    *(st.floats(60, 100), st.integers(0, 80), rates, st.sampled_from([BARS, ASCII_BARS])),
)
def test_a_sparkline_has_its_width_and_only_bars(
    points: list[tuple[float, float]], now: float, width: int, top: float, bars: str
) -> None:
    drawn = sparkline(points, now, width, top, bars)
    assert len(drawn) == width
    assert set(drawn) <= {" ", *bars}
    busy = [value for at, value in points if 0 <= now - at < 59 and value > 0]
    assert not width or not busy or set(drawn) & set(bars[1:])


@given(st.text(max_size=20), st.integers(0, 20))
def test_keys_are_the_same_however_their_bytes_arrive(text: str, cut: int) -> None:
    whole, rest = keys(text)
    first, kept = keys(text[:cut])
    second, end = keys(kept + text[cut:])
    assert (first + second, end) == (whole, rest)
    assert all(key.isprintable() for key in [*whole, *pressed_escape(rest)])
