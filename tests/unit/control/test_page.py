"""The page's files and figures, and what a browser may ask of the socket that they come from."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import get_type_hints

import httpx
import pytest
import trio

from drld.control import page, ranking
from drld.control.schema.limits import WaitsReport
from drld.control.tcp import serve_http
from drld.control.turns import Turns
from drld.daemon.event_log import MOST_CHARACTERS, MOST_EVENTS, EventLog
from drld.planes import registered
from drld.planes.panels import Panels
from tests.control_fake import FPS_LIMIT, STATUS, FakeDaemon, client, many_limits, served
from tests.page_fleet import Flow, PageDaemon, limit

FOLDER = Path(page.__file__).with_name("page")
TEXTS = {path.name: path.read_text() for path in FOLDER.iterdir()}


async def test_the_page_loads_nothing_but_its_own_files(api: httpx.AsyncClient) -> None:
    index = await api.get("/")
    assert index.text == TEXTS["index.html"]
    assert index.headers["content-type"] == "text/html; charset=utf-8"
    policy = index.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy
    for name, text in TEXTS.items():
        answer = await api.get(f"/page/{name}")
        assert answer.text == text
        assert answer.headers["content-security-policy"] == policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        urls = re.findall(r"(?:src|href|url)[=(]\s*[\"']?([^\"')\s>]+)|from \"([^\"]+)\"", text)
        for url in filter(None, (part for found in urls for part in found)):
            assert url.startswith(("/page/", "./", "#")), (name, url)
            assert url.startswith("#") or url.rpartition("/")[2] in TEXTS, (name, url)


@pytest.mark.parametrize("name", ["page.py", "..%2Fpage.py", "%2Fetc%2Fpasswd", ".", "x.js"])
async def test_no_other_file_is_served(api: httpx.AsyncClient, name: str) -> None:
    assert (await api.get(f"/page/{name}")).status_code == 404


def test_no_name_becomes_markup() -> None:
    """Names come from other hosts; browsers read what these functions are given as HTML."""
    for name, text in TEXTS.items():
        if name.endswith(".js"):
            assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", text)


async def test_the_page_gets_the_limits_under_most_pressure(
    api: httpx.AsyncClient, daemon: FakeDaemon
) -> None:
    daemon.reports = list(many_limits(250))
    for place in (200, 7, 100):
        daemon.reports[place]["demand_bps"] = 9e6 + place
    found = (await api.get("/v1/live", params={"most": 2})).json()
    assert [it["name"] for it in found["limits"]] == ["c100", "c200"]
    assert (found["matching"], found["status"]) == (250, STATUS)
    assert found["limits"][0]["told"] == [{"peer": "lim2", "value": 7.1, "limiters": 3}]
    # Of limits that are alike, the first; and the one that is looked at.
    found = (await api.get("/v1/live", params={"most": 4, "show": "c249"})).json()
    assert [it["name"] for it in found["limits"]] == ["c0", "c7", "c100", "c200", "c249"]
    found = (await api.get("/v1/live", params={"find": "C20", "most": 3})).json()
    assert [it["name"] for it in found["limits"]] == ["c20", "c200", "c201"]
    assert found["matching"] == 11
    assert len((await api.get("/v1/live?most=1000")).json()["limits"]) == page.MOST_LIMITS
    assert len((await api.get("/v1/live?most=0")).json()["limits"]) == 1
    assert (await api.get("/v1/live?show=gone&find=nothing")).json()["limits"] == []
    refused = await api.get("/v1/live?most=-1")
    assert (refused.status_code, refused.json()) == (422, {"error": "'-1': must be a number"})


async def test_ten_thousand_limits_are_compared_between_other_tasks(
    api: httpx.AsyncClient, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranking, "_BATCH", 1)
    turns = 0
    wait = Turns.wait

    async def counted(self: Turns) -> None:
        nonlocal turns
        turns += 1
        await wait(self)

    monkeypatch.setattr(Turns, "wait", counted)
    daemon.reports = list(many_limits(300))
    assert (await api.get("/v1/live")).json()["matching"] == 300
    assert turns >= 300


async def test_events_are_asked_for_once(api: httpx.AsyncClient, daemon: FakeDaemon) -> None:
    daemon.event_log.add("daemon", "ready")
    daemon.event_log.add("peer", "peer lim2 is back")
    events = (await api.get("/v1/live")).json()["events"]
    assert [(it["number"], it["kind"], it["text"]) for it in events] == [
        (1, "daemon", "ready"),
        (2, "peer", "peer lim2 is back"),
    ]
    assert (await api.get("/v1/live?after=1")).json()["events"] == events[1:]


def test_the_events_are_bounded() -> None:
    log = EventLog()
    for _ in range(MOST_EVENTS + 5):
        log.add("fault", "x" * 10_000)
    kept = list(log.after(0))
    assert [it["number"] for it in kept] == list(range(6, MOST_EVENTS + 6))
    assert {len(it["text"]) for it in kept} == {MOST_CHARACTERS + len(" ...")}


async def test_panels_are_data_of_the_planes(api: httpx.AsyncClient) -> None:
    packets, requests, messages = (await api.get("/v1/panels")).json()
    found = [it["items"] for it in (packets, requests, messages)]
    assert found == ["packets", "requests", "messages"]
    first = packets["panels"][0]["series"][0]
    assert first == {"key": "dropped_bytes", "label": "dropped", "tone": "dropped"}
    counters = FPS_LIMIT.keys()
    for plane in registered("panels"):
        assert isinstance(plane.PANELS, Panels)
        for panel in plane.PANELS.panels:
            levels = get_type_hints(WaitsReport).keys()
            known = levels if panel.counts == "level" else counters
            assert {series.key for series in panel.series} <= known


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("drld", 200), ("localhost:9617", 200), ("127.0.0.1:9617", 200), ("[::1]:9617", 200),
        ("127.1.2.3", 200), ("stranger.example:9617", 421), ("drld.stranger.example", 421),
        ("10.0.0.1", 421), ("localhost.stranger.example", 421), ("", 421), ("a b", 421),
    ],
)  # fmt: skip
async def test_a_stranger_whose_name_leads_here_reads_nothing(
    api: httpx.AsyncClient, host: str, status: int
) -> None:
    for path in ("/", "/v1/live", "/v1/status", "/metrics"):
        assert (await api.get(path, headers={"Host": host})).status_code == status


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [("http://stranger.example/", "localhost", 421), ("http://drld/", "stranger.example", 200)],
)
async def test_the_host_of_an_absolute_target_counts(
    api: httpx.AsyncClient, target: str, host: str, status: int
) -> None:
    """RFC 9112, 3.2.2: a server ignores `Host` then."""
    sent = {"target": target.encode()}
    answer = await api.get("/", headers={"Host": host}, extensions=sent)
    assert answer.status_code == status


async def test_other_hosts_see_the_page_if_asked_and_nothing_more(daemon: FakeDaemon) -> None:
    for shown in (False, True):
        async with trio.open_nursery() as nursery:
            serving = partial(serve_http, page=shown)
            listen = [("127.0.0.1", 0)]
            ((host, port),) = await nursery.start(serving, daemon, listen, lambda: None, Turns())
            async with httpx.AsyncClient(base_url=f"http://{host}:{port}", verify=False) as other:
                for url in ("/", "/page/main.js", "/v1/live", "/v1/panels"):
                    assert (await other.get(url)).status_code == (200 if shown else 404)
                assert (await other.get("/v1/status")).status_code == 404
                assert (await other.post("/v1/live")).status_code == (405 if shown else 404)
                stranger = {"Host": "stranger.example"}
                assert (await other.get("/", headers=stranger)).status_code == 421
            nursery.cancel_scope.cancel()


async def test_a_browser_changes_nothing(api: httpx.AsyncClient, daemon: FakeDaemon) -> None:
    origins = [{"Origin": it} for it in ("http://stranger.example", "http://drld", "null")]
    for headers in (*origins, {"Sec-Fetch-Site": "cross-site"}):
        answer = await api.post("/v1/reload", headers=headers)
        assert answer.status_code == 403
    assert daemon.reloads == 0
    answer = await api.get("/v1/status", headers={"Origin": "http://stranger.example"})
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert (await api.post("/v1/reload")).status_code == 200


@pytest.mark.parametrize("fabric", ["mesh", "tree", "pushsum"])
async def test_the_sums_of_neighbours_add_up_to_the_remote_demand(path: Path, fabric: str) -> None:
    """Four limiters, of which in a tree the first is a leaf or a parent, and hears of sums."""
    sites = ["a", "b", "c", "d"]
    flows = [Flow(site, "web", number) for number, site in enumerate(sites)]
    daemon = PageDaemon(sites, [limit(1, "web", 4)], flows, fabric)
    daemon.advance(8.0)
    async with served(daemon, path), client(path) as api:
        report = (await api.get("/v1/live")).json()
    (web,) = report["limits"]
    told = web["told"]
    assert web["fleet"]["remote"] > 0
    if fabric == "pushsum":
        assert told == []
    else:
        assert sum(it["value"] for it in told) == pytest.approx(web["fleet"]["remote"], rel=0.3)
        assert sum(it["limiters"] for it in told) == 3
    assert {it["verdict"] for it in report["peers"]} == {"alive"}
    assert 0 <= web["counted_age_s"] <= web["interval_s"]
