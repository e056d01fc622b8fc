"""GET /metrics, read by Prometheus' own client."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from drld.control import metrics
from tests.control_fake import FakeDaemon, client, many_limits, served
from tests.unit.cli.drlctl import output

DOCUMENT = (Path(__file__).resolve().parents[3] / "docs" / "metrics.md").read_text()


async def scraped(api: httpx.AsyncClient) -> dict[str, Metric]:
    answer = await api.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = list(text_string_to_metric_families(answer.text))
    found = {family.name: family for family in families}
    assert len(found) == len(families)
    return found


def value(families: dict[str, Metric], name: str, **labels: str) -> float:
    (sample,) = (one for one in families[name].samples if one.labels == labels)
    return float(sample.value)


async def test_the_daemon_its_limits_and_its_peers(api: httpx.AsyncClient) -> None:
    found = await scraped(api)
    (info,) = found["drld_info"].samples
    assert info.labels == {
        "limiter": "lim1", "version": "0.1.0", "datapath": "nfqueue", "fabric": "pushsum",
    }  # fmt: skip
    assert value(found, "drld_ready") == 1
    assert value(found, "drld_peers_by_verdict", verdict="dead") == 1
    assert value(found, "drld_datapath_events", event="overflow") == 2
    assert value(found, "drld_gossip_rejected", reason="tag") == 2
    # Bits become bytes.
    assert value(found, "drld_limit_rate_bytes_per_second", limit="customer-a") == 1_250_000
    assert value(found, "drld_limit_dropped_bytes", limit="customer-a") == 1_200_000
    assert value(found, "drld_limit_drop_probability", limit="b") == 0.1253
    assert value(found, "drld_peer_connected", peer="lim3") == 0
    assert value(found, "drld_peer_updates_lost", peer="lim2") == 12


async def test_what_is_not_known_is_left_out(api: httpx.AsyncClient, daemon: FakeDaemon) -> None:
    daemon.report["probes"] = None
    found = await scraped(api)
    local = found["drld_limit_local_bytes_per_second"].samples
    assert [sample.labels["limit"] for sample in local] == ["customer-a"]
    assert "drld_isolated" not in found
    (heard,) = found["drld_peer_last_update_age_seconds"].samples
    assert heard.labels == {"peer": "lim2"}


async def test_kinds_and_names_keep_the_conventions(api: httpx.AsyncClient) -> None:
    for family in (await scraped(api)).values():
        assert family.type in {"counter", "gauge"}
        assert family.documentation.endswith(".")
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter")
            assert not set(re.findall("bits?|bps|_ms|_ns", sample.name))


@pytest.mark.parametrize("name", ['a"b', "back\\slash", "größe", "{}"])
async def test_labels_are_escaped(api: httpx.AsyncClient, daemon: FakeDaemon, name: str) -> None:
    daemon.reports[0]["name"] = name
    found = await scraped(api)
    assert value(found, "drld_limit_flows_sampled", limit=name) == 3


async def test_many_limits_are_made_a_few_at_a_time(
    daemon: FakeDaemon, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However little time a batch has, the answer is whole."""
    monkeypatch.setattr(metrics, "_BATCH_S", 0.0)
    daemon.reports = list(many_limits(30))
    async with served(daemon, path), client(path) as api:
        found = await scraped(api)
    assert len(found["drld_limit_info"].samples) == 30


async def test_drlctl_prints_them(api: httpx.AsyncClient, path: Path) -> None:
    printed = await output(path, "metrics")
    assert printed == (await api.get("/metrics")).text


async def test_every_family_is_documented(api: httpx.AsyncClient, daemon: FakeDaemon) -> None:
    daemon.report["gossip"]["errors"] = {"EPERM": 1}
    found = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in (await scraped(api)).values()
    }
    assert found == set(re.findall(r"^\| `(drld_\w+)` \|", DOCUMENT, re.MULTILINE))
