"""The control API over a real unix socket: what is read, and reloading."""

from __future__ import annotations

import logging
import os

import httpx
import pytest
from trio.testing import wait_all_tasks_blocked

from drld.errors import ConfigError, DatapathError
from tests.control_fake import FPS_LIMIT, GRD_LIMIT, PEERS, STATUS, FakeDaemon, many_limits


async def test_the_status_is_an_object(api: httpx.AsyncClient) -> None:
    answer = await api.get("/v1/status")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == STATUS


async def test_limits_and_peers_are_lists(api: httpx.AsyncClient) -> None:
    assert (await api.get("/v1/limits")).json() == [FPS_LIMIT, GRD_LIMIT]
    answer = await api.get("/v1/peers")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == PEERS


@pytest.mark.parametrize("count", [0, 1, 99, 100, 101, 250])
async def test_a_listing_in_batches_is_one_array(
    api: httpx.AsyncClient, daemon: FakeDaemon, count: int
) -> None:
    daemon.reports = list(many_limits(count))
    assert (await api.get("/v1/limits")).json() == daemon.reports


async def test_one_limit_is_found_by_its_name(api: httpx.AsyncClient, daemon: FakeDaemon) -> None:
    assert (await api.get("/v1/limits/b")).json() == GRD_LIMIT
    daemon.reports = list(many_limits(250))
    assert (await api.get("/v1/limits/c249")).json() == daemon.reports[249]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("sort=demand&count=2", ["c6", "c13"]),
        ("sort=demand&count=2&skip=2", ["c20", "c0"]),
        ("name=C1&count=3", ["c1", "c10", "c11"]),
        ("sort=rate&name=9", ["c9", "c19"]),
        ("name=nix", []),
        ("count=0", []),
        ("skip=21", []),
    ],
)
async def test_a_query_selects_limits(
    api: httpx.AsyncClient, daemon: FakeDaemon, query: str, names: list[str]
) -> None:
    daemon.reports = list(many_limits(21))
    for number in (6, 13, 20):
        daemon.reports[number]["demand_bps"] *= 2
    answer = (await api.get(f"/v1/limits?{query}")).json()
    assert [report["name"] for report in answer] == names


@pytest.mark.parametrize(
    ("query", "key"),
    [("sort=age", "sort"), ("count=-1", "count"), ("skip=1e9", "skip"), ("limit=3", "limit")],
)
async def test_a_bad_query_is_refused(api: httpx.AsyncClient, query: str, key: str) -> None:
    answer = await api.get(f"/v1/limits?{query}")
    assert answer.status_code == 422
    assert answer.json()["error"].startswith(f"query: {key}: ")


@pytest.mark.parametrize("resource", ["/v1/limits/zzz", "/v1/limits/zzz/trace"])
async def test_an_unknown_limit_is_not_found(api: httpx.AsyncClient, resource: str) -> None:
    answer = await api.get(resource)
    assert answer.status_code == 404
    assert answer.json() == {"error": "no limit is named 'zzz'"}


@pytest.mark.parametrize("resource", ["/v1", "/v1/limits/", "/v1/status/", "/v1/limits/a%2Fb"])
async def test_an_unknown_resource_is_not_found(api: httpx.AsyncClient, resource: str) -> None:
    answer = await api.get(resource)
    assert answer.status_code == 404
    assert answer.json() == {"error": "Not Found"}


@pytest.mark.parametrize(
    ("method", "resource", "allowed"),
    [
        ("POST", "/v1/status", {"GET", "HEAD"}),
        ("DELETE", "/v1/limits", {"GET", "HEAD"}),
        ("PUT", "/v1/limits/b", {"GET", "HEAD"}),
        ("POST", "/v1/limits/b/trace", {"GET", "HEAD"}),
        ("POST", "/v1/peers", {"GET", "HEAD"}),
        ("GET", "/v1/reload", {"POST"}),
    ],
)
async def test_a_wrong_method_is_refused(
    api: httpx.AsyncClient, method: str, resource: str, allowed: set[str]
) -> None:
    answer = await api.request(method, resource)
    assert answer.status_code == 405
    assert answer.json() == {"error": "Method Not Allowed"}
    assert set(answer.headers["allow"].split(", ")) == allowed


async def test_a_head_request_has_no_body(api: httpx.AsyncClient) -> None:
    for resource in ("/v1/status", "/v1/limits", "/v1/limits/b/trace"):
        answer = await api.head(resource)
        assert (answer.status_code, answer.content) == (200, b"")


async def test_a_bug_in_the_daemon_is_an_error_and_no_end(
    api: httpx.AsyncClient, daemon: FakeDaemon, caplog: pytest.LogCaptureFixture
) -> None:
    daemon.report["uptime_s"] = float("nan")
    with caplog.at_level(logging.ERROR, logger="drld.control"):
        answer = await api.get("/v1/status")
        await wait_all_tasks_blocked()  # It is logged after the answer went out.
    assert answer.status_code == 500
    assert answer.json() == {"error": "internal error"}
    assert "Out of range float values" in caplog.text
    assert (await api.get("/v1/peers")).status_code == 200


async def test_a_reload_answers_with_the_configuration_in_force(
    api: httpx.AsyncClient, daemon: FakeDaemon
) -> None:
    answer = await api.post("/v1/reload")
    assert answer.status_code == 200
    assert answer.json() == STATUS["config"]
    assert daemon.reloads == 1


async def test_a_refused_configuration_is_reported_line_by_line(
    api: httpx.AsyncClient, daemon: FakeDaemon
) -> None:
    daemon.reload_error = ConfigError(["drld.toml: a: missing", "drld.toml: b: missing"])
    answer = await api.post("/v1/reload")
    assert answer.status_code == 422
    assert answer.json() == {"problems": ["drld.toml: a: missing", "drld.toml: b: missing"]}


async def test_a_host_that_refuses_is_reported(api: httpx.AsyncClient, daemon: FakeDaemon) -> None:
    daemon.reload_error = DatapathError("iptables: no such chain")
    answer = await api.post("/v1/reload")
    assert answer.status_code == 500
    assert answer.json() == {"error": "iptables: no such chain"}


async def test_a_list_of_thousands_of_mistakes_is_cut(
    api: httpx.AsyncClient, daemon: FakeDaemon
) -> None:
    daemon.reload_error = ConfigError([f"drld.toml: limit[{n}].id: missing" for n in range(5000)])
    problems = (await api.post("/v1/reload")).json()["problems"]
    assert problems[:100] == daemon.reload_error.problems[:100]
    assert problems[100:] == ["and 4900 more"]


async def test_the_log_names_the_user_and_the_change(
    api: httpx.AsyncClient, daemon: FakeDaemon, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="drld.control")
    who = f"uid {os.getuid()}, gid {os.getgid()}, pid {os.getpid()}"
    await api.get("/v1/status")
    await api.post("/v1/reload")
    daemon.reload_error = ConfigError(["drld.toml: a: missing"])
    await api.post("/v1/reload")
    await api.post("/v1/keys/1/remove")
    assert [entry.getMessage() for entry in caplog.records] == [
        f"POST /v1/reload by {who}: 200",
        f"POST /v1/reload by {who}: 422",
        f"POST /v1/keys/1/remove by {who}: 409",
    ]


@pytest.mark.parametrize("host", ["drld/v1/keys/1/use?", "drld#", "[", "a b"])
async def test_an_invalid_host_does_not_reach_the_log(
    api: httpx.AsyncClient, daemon: FakeDaemon, caplog: pytest.LogCaptureFixture, host: str
) -> None:
    """Some versions of Starlette make the URL's path of it."""
    caplog.set_level(logging.INFO, logger="drld.control")
    assert (await api.post("/v1/reload?x=1", headers={"host": host})).status_code == 421
    assert (daemon.reloads, caplog.records) == (0, [])
    assert (await api.post("/v1/reload?x=1", headers={"host": "localhost:9617"})).is_success
    assert [entry.getMessage().split(" by ")[0] for entry in caplog.records] == ["POST /v1/reload"]
