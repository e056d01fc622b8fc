"""The paths that change limits: what they do, and one clear error for anything else."""

from __future__ import annotations

import logging
from typing import Any

import httpx
import pytest

from drld.errors import DatapathError
from tests.control_fake import FakeDaemon

NEW = {"id": 7, "name": "b", "rate": "1mbit", "match": {"in": "eth1"}}


async def changed(api: httpx.AsyncClient, path: str, body: object) -> Any:
    answer = await api.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_each_verb_changes_its_keys(api: httpx.AsyncClient, daemon: FakeDaemon) -> None:
    assert await changed(api, "/v1/limits/customer-a/set", {"set": {"rate": "2mbit"}}) == {
        "changes": [
            {
                "table": "limit customer-a",
                "change": "changed",
                "keys": {"rate": ["10mbit", "2mbit"]},
            }
        ],
        "saved": None,
        "needed_at": ["lim2"],
    }
    report = await changed(api, "/v1/limits", {"limits": [NEW], "save": True})
    assert report["saved"] == "/etc/drld/drld.toml.d/99-drlctl.toml"
    (change,) = report["changes"]
    assert (change["table"], change["change"]) == ("limit b", "added")
    assert change["keys"]["match.in"] == [None, "eth1"]
    (change,) = (await changed(api, "/v1/limits/1/remove", {}))["changes"]
    assert (change["table"], change["change"]) == ("limit customer-a", "removed")
    assert change["keys"]["rate"] == ["2mbit", None]
    assert [limit.name for limit in daemon.configuration.in_force.limits] == ["b"]


async def test_the_tables_in_force_include_changes(api: httpx.AsyncClient) -> None:
    await changed(api, "/v1/limits/customer-a/set", {"set": {"rate": "2mbit"}})
    tables = (await api.get("/v1/config")).json()
    assert [table["kind"] for table in tables] == ["limiter", "peer", "limit"]
    assert tables[2]["values"]["rate"] == "2mbit"


ADD, SET, REMOVE = "/v1/limits", "/v1/limits/customer-a/set", "/v1/limits/customer-a/remove"
FORMS = {
    ADD: 'the body must be {"limits": [{...}], "save": false}; save may be left out',
    SET: 'the body must be {"set": {...}, "save": false}; save may be left out',
    REMOVE: 'the body must be {"save": false}; save may be left out',
}


@pytest.mark.parametrize("resource", FORMS)
@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b"3", b'"x"', b"[" * 5000, b"\xff", b'{"save": 1}',
        b'{"limits": {}}', b'{"limits": []}', b'{"limits": [{}], "save": null}',
        b'{"set": []}', b'{"set": {}}', b'{"set": {"rate": "1mbit"}, "other": 1}',
        b'{"limits": [{}], "set": {"rate": "1mbit"}}', b'{"set": ' + b"9" * 5000 + b"}",
    ],
)  # fmt: skip
async def test_a_body_of_another_form_is_refused(
    api: httpx.AsyncClient, daemon: FakeDaemon, resource: str, body: bytes
) -> None:
    before = daemon.configuration
    answer = await api.post(resource, content=body)
    assert answer.status_code == 422
    assert answer.json() == {"error": FORMS[resource]}
    assert daemon.configuration is before


async def test_a_mistake_is_a_problem_with_its_key(
    api: httpx.AsyncClient, daemon: FakeDaemon
) -> None:
    before = daemon.configuration
    for path, body, line in (
        (SET, {"set": {"ewma": 3}}, "limit[0].ewma: must be at most 0.999 (got 3)"),
        (SET, {"set": {"id": 3}}, "limit[0].id: cannot be set: add or remove the limit"),
        (ADD, {"limits": [NEW, 3]}, "limit[1]: must be a table (got 3)"),
    ):
        answer = await api.post(path, json=body)
        assert answer.status_code == 422
        assert answer.json() == {"problems": [line]}
    assert daemon.configuration is before


@pytest.mark.parametrize("verb", ["set", "remove"])
async def test_a_missing_limit_is_an_error(api: httpx.AsyncClient, verb: str) -> None:
    body = {"set": {"rate": "1mbit"}} if verb == "set" else {}
    answer = await api.post(f"/v1/limits/nix/{verb}", json=body)
    assert answer.status_code == 404
    assert answer.json() == {"error": "no limit is named 'nix'"}


async def test_a_refusal_of_the_host_is_one_error(
    api: httpx.AsyncClient, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_: object, by: object) -> None:
        raise DatapathError("interface eth9: does not exist")

    monkeypatch.setattr(daemon, "change_limits", refuse)
    answer = await api.post(REMOVE, json={})
    assert answer.status_code == 500
    assert answer.json() == {"error": "interface eth9: does not exist"}


async def test_a_path_cannot_forge_a_line_of_the_log(
    api: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "drld.control")
    await api.post("/v1/limits/%1b[31m%0adrld:%20ready/remove", json={})
    (line,) = caplog.messages
    assert line.startswith("POST /v1/limits/%1b[31m%0adrld:%20ready/remove by uid ")


async def test_the_log_names_the_user(
    api: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "drld.control")
    await api.post(REMOVE, json={})
    await api.post(REMOVE, json={})
    first, second = caplog.messages
    assert first.startswith(f"POST {REMOVE} by uid ")
    assert first.endswith(": 200")
    assert second.startswith(f"POST {REMOVE} by uid ")
