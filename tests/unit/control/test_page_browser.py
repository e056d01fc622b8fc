"""The page in a browser: live figures of a fleet in virtual time, by mouse, keyboard and voice."""

from __future__ import annotations

from pathlib import Path

import pytest

from drld.control import connection
from tests.chromium import PATIENCE_S, Browser, chromium, tunnel
from tests.control_fake import served
from tests.page_fleet import Flow, PageDaemon, limit

HOSTILE = "<img src=x onerror=alert(1)>\"'&amp;"
ROWS = "[...document.querySelectorAll('#limits-table tbody tr')]"
NAMES = f"{ROWS}.map((it) => it.querySelector('button').textContent)"
LIVE = "document.querySelector('#state').textContent === 'live'"


def made() -> PageDaemon:
    limits = [limit(1, "web", 4), limit(2, HOSTILE, 2), limit(3, "idle", 1)]
    flows = [Flow("paris", "web", 1), Flow("tokyo", "web", 2), Flow("paris", HOSTILE, 3)]
    return PageDaemon(["paris", "tokyo", "lima"], limits, flows, "mesh")


async def focused(browser: Browser) -> str:
    return str(await browser.value("document.activeElement.id || document.activeElement.innerText"))


async def contrasts(browser: Browser) -> list[float]:
    """Contrasts of texts with what is behind them (WCAG 2.2, 1.4.3)."""
    found = await browser.value(
        "(() => {"
        "  const light = (name) => {"
        "    const hex = getComputedStyle(document.documentElement).getPropertyValue(name).trim();"
        "    const parts = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255);"
        "    const linear = parts.map((it) => it <= 0.04045 ? it / 12.92 :"
        "      ((it + 0.055) / 1.055) ** 2.4);"
        "    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];"
        "  };"
        "  return ['--ink', '--faint', '--dropped', '--marked'].flatMap((ink) =>"
        "    ['--card', '--page'].map((back) => {"
        "      const [low, high] = [light(ink), light(back)].sort((a, b) => a - b);"
        "      return (high + 0.05) / (low + 0.05);"
        "    }));"
        "})()"
    )
    return [float(it) for it in found]


async def test_the_page_lives_and_can_be_used_without_a_mouse_or_eyes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A starved browser may take longer.
    monkeypatch.setattr(connection, "REQUEST_S", PATIENCE_S)
    daemon, socket = made(), tmp_path / "lim.sock"
    async with (
        served(daemon, socket),
        tunnel(socket) as url,
        chromium(tmp_path / "profile") as browser,
    ):
        await browser.call("Page.navigate", url=f"{url}#limit=web")
        await it_shows_what_the_engine_knows(browser, daemon)
        await it_shows_names_as_text(browser)
        await its_parts_have_names_for_a_screen_reader(browser)
        await it_is_used_by_keyboard(browser)
        await it_is_light_or_dark(browser)
        await it_follows_a_clock_that_is_set_back(browser)
        await a_death_and_a_return_are_on_the_time_line(browser, daemon)
        assert browser.complaints == []
        await no_script_of_others_runs(browser)


async def it_shows_what_the_engine_knows(browser: Browser, daemon: PageDaemon) -> None:
    await browser.until(f"{NAMES}.length === 3 && {LIVE}")
    assert await browser.value(NAMES) == ["web", HOSTILE, "idle"]
    cell = f"{ROWS}[0].cells[2].textContent"
    # It changes as the flows grow, and the page redraws all.
    await browser.until(f"{cell}.endsWith('bit/s')")
    path = "document.querySelector('#stack path.layer.here').getAttribute('d')"
    before = await browser.value(path)
    await browser.until(f"{path} !== {before!r}")
    # What is shown is what the engine counted: the flows of the site fill its local limit.
    await browser.until(f"Math.abs(parseFloat({cell}) - 2) < 0.2 && {cell}.includes('Mbit/s')")
    # The others answer what they forward, as soon as they have been asked twice.
    await browser.until("document.querySelector('#legend').innerText.includes('tokyo, forwarded')")
    tokyo = "[...document.querySelectorAll('#legend tbody tr')].at(-3).lastChild.textContent"
    await browser.until(f"Math.abs(parseFloat({tokyo}) - 2) < 0.2 && {tokyo}.includes('Mbit/s')")
    parts = "[...document.querySelectorAll('#legend tbody th')].map((it) => it.textContent)"
    names = await browser.value(parts)
    assert names == [
        "global limit", "limit in force", "tokyo, forwarded", "lima, forwarded",
        "paris, forwarded",
    ]  # fmt: skip
    assert await browser.value(f"{ROWS}[2].cells[2].textContent") == "0 bit/s"


async def it_shows_names_as_text(browser: Browser) -> None:
    assert await browser.value("document.querySelectorAll('img, iframe').length") == 0
    await browser.value(f"{ROWS}[1].querySelector('button').click()")
    assert await browser.value("document.querySelector('#shown-name').textContent") == HOSTILE
    assert await browser.value("new URLSearchParams(location.hash.slice(1)).get('limit')") == (
        HOSTILE
    )


async def its_parts_have_names_for_a_screen_reader(browser: Browser) -> None:
    found = await browser.accessible()
    for role in ("button", "image", "searchbox", "heading", "region", "table", "log"):
        names = [name for kind, name in found if kind == role]
        assert names, role
        assert all(names), (role, names)
    assert ("button", "web") in found
    assert ("searchbox", "Find") in found
    (stack,) = (name for kind, name in found if kind == "image" and "global limit" in name)
    assert stack.startswith(f"{HOSTILE} in the last 5 minutes. Now paris forwards ")
    assert {name for kind, name in found if kind == "columnheader"} >= {"limit", "dropped"}


async def it_is_used_by_keyboard(browser: Browser) -> None:
    order = []
    for _ in range(6):
        await browser.press("Tab", 9)
        order.append(await focused(browser))
    assert order == ["Skip to the limits", "pause", "find", "web", HOSTILE, "idle"]
    await browser.press("Enter", 13, "\r")
    await browser.until("document.querySelector('#shown-name').textContent === 'idle'")
    # The focus stays where it is while rows come and go with a search.
    await browser.value("document.querySelector('#find').focus()")
    for letter in "WEB":
        await browser.press(letter, ord(letter), letter)
    await browser.until(f"{NAMES}.join() === 'web'")
    assert await browser.value("document.querySelector('#limits-facts').textContent") == (
        "1 of 3 found"
    )
    assert await focused(browser) == "find"
    await browser.value("document.querySelector('#find').value = ''")
    await browser.until(f"{NAMES}.length === 3")
    await browser.value("document.querySelector('#pause').focus()")
    await browser.press(" ", 32, " ")
    await browser.until("document.querySelector('#state').textContent === 'paused'")
    await browser.press(" ", 32, " ")
    await browser.until(LIVE)


async def it_is_light_or_dark(browser: Browser) -> None:
    backgrounds = set()
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        await browser.call("Emulation.setEmulatedMedia", features=[feature])
        backgrounds.add(await browser.value("getComputedStyle(document.body).backgroundColor"))
        assert min(await contrasts(browser)) >= 4.5, scheme
    assert len(backgrounds) == 2


async def it_follows_a_clock_that_is_set_back(browser: Browser) -> None:
    hour = 3600
    found = await browser.value(
        "(async () => {"
        "  const { History } = await import('/page/history.js');"
        "  const { Faults, lastNumber, mergeEvents } = await import('/page/events.js');"
        "  const answer = await (await fetch('/v1/live')).json();"
        "  const history = new History(), faults = new Faults();"
        "  const counted = [];"
        f"  for (const [n, t] of [[1, {hour} + 1], [2, {hour} + 2], [3, 3], [4, 4]]) {{"
        "    const gossip = { ...answer.status.gossip, floods: n };"
        "    const status = { ...answer.status, uptime_s: n, gossip };"
        "    history.take({ ...answer, t, status });"
        "    counted.push(faults.since({ t, status }).length);"
        "  }"
        "  const times = history.limits.get('web').samples.map((it) => it.t);"
        f"  const events = mergeEvents([{{ number: 1, t: {hour} }}], [{{ number: 2, t: 3 }}]);"
        "  return { times, counted, last: lastNumber(events) };"
        "})()"
    )
    # The first answer is what later ones are compared with; a counter's events are 10 s apart.
    assert found == {"times": [3, 4], "counted": [0, 1, 1, 0], "last": 2}


async def a_death_and_a_return_are_on_the_time_line(browser: Browser, daemon: PageDaemon) -> None:
    tokyo = daemon.sites["tokyo"]
    daemon.step_s = 5.0
    tokyo.kill()
    await browser.until("document.querySelector('#peers .dead .name')?.textContent === 'tokyo'")
    await browser.until("document.querySelector('#events .peer')")
    assert "peer tokyo is dead" in await browser.value(
        "document.querySelector('#events').innerText"
    )
    assert await browser.value("document.querySelectorAll('#stack .event.peer').length") == 1
    assert await browser.value("document.title") == "(1 dead) paris · drld"
    tokyo.revive()
    await browser.until("document.querySelector('#events').innerText.includes('tokyo is back')")


async def no_script_of_others_runs(browser: Browser) -> None:
    await browser.value(
        "(() => {"
        "  const script = document.createElement('script');"
        "  script.textContent = 'window.stranger = true';"
        "  document.body.append(script);"
        "})()"
    )
    assert await browser.value("window.stranger ?? null") is None
    assert "Content Security Policy" in "".join(browser.complaints)
