"""GET /metrics, read by Prometheus' own client."""

from __future__ import annotations

import itertools
import re
import ssl
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

import httpx
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from trio.testing import MockClock

from drld.control import exposition
from drld.control.schema.limits import LimitReport
from drld.control.schema.status import RegistryReport
from drld.control.turns import Turns
from drld.requests.spec import RequestsSpec
from drld.spec import ServerTls
from tests.control_fake import FakeDaemon, client, many_limits, served
from tests.examples import examples
from tests.unit.cli.drlctl import output
from tests.unit.control.test_crowds import Passes, crowd

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


async def test_the_daemon_its_limits_and_its_peers_have_metrics(api: httpx.AsyncClient) -> None:
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


async def test_unknown_figures_are_left_out(api: httpx.AsyncClient, daemon: FakeDaemon) -> None:
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
    monkeypatch.setattr(exposition, "_BATCH_S", 0.0)
    daemon.reports = list(many_limits(30))
    async with served(daemon, path), client(path) as api:
        found = await scraped(api)
    assert len(found["drld_limit_info"].samples) == 30


@settings(max_examples=examples(25))
@given(
    labels=st.dictionaries(st.sampled_from(["limit", "peer"]), st.text(max_size=20)),
    value=st.floats(allow_nan=False) | st.integers(-(2**63), 2**63),
    kind=st.sampled_from([exposition.gauge, exposition.counter]),
)
def test_any_sample_is_read_back(
    labels: dict[str, str],
    value: float,
    kind: Callable[[str, str], exposition.Family],
) -> None:
    sample = exposition.Sample(kind("x", "Help."), value, tuple(labels.items()))
    text = exposition.headed(sample.family) + exposition.line(sample)
    (family,) = text_string_to_metric_families(text)
    (found,) = family.samples
    assert (found.name, found.labels) == (f"drld_{sample.family.name}", labels)
    # Prometheus has floats; its parser keeps whole numbers as they are written.
    assert float(found.value) == float(value)
    assert (family.type, family.documentation) == (sample.family.kind, "Help.")


async def test_labels_are_those_that_the_page_has(api: httpx.AsyncClient) -> None:
    """No label can hold contents of traffic, or grow with it."""
    for family in (await scraped(api)).values():
        for sample in family.samples:
            assert f"| `{sample.name}` | {', '.join(sample.labels)} |" in DOCUMENT


async def test_a_limit_costs_less_than_a_kilobyte(
    daemon: FakeDaemon, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []
    async with served(daemon, path), client(path) as api:
        for count in (100, 200):
            daemon.reports = list(many_limits(count))
            sizes.append(len((await api.get("/metrics")).content))
    assert 0 < (sizes[1] - sizes[0]) / 100 < 1000


class Counted(FakeDaemon):
    """Counts how often its limits are asked for; there are many."""

    def __init__(self, passes: Passes, clock: MockClock) -> None:
        super().__init__()
        self.runs = 0
        self._passes = passes
        self._clock = clock

    def limits(self, ids: Sequence[int] | None = None) -> Iterator[LimitReport]:
        self.runs += 1
        for limit in many_limits(20):
            self._clock.jump(0.003)
            self._passes.happened()
            yield limit


async def test_a_crowd_shares_what_is_made_a_step_in_a_pass(
    path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exposition, "_REST", 0.0)  # The clock stands while nothing jumps.
    passes = Passes()
    daemon = Counted(passes, mock_clock)
    request = b"GET /metrics HTTP/1.1\r\nHost: drld\r\n\r\n"
    await crowd(path, passes, request, b"0\r\n\r\n", daemon)
    assert 1 <= daemon.runs <= 3
    assert sum(passes.events.values()) == 20 * daemon.runs
    assert passes.worst() <= 2


async def test_the_pause_between_runs_is_four_times_a_run(
    daemon: FakeDaemon, autojump_clock: object
) -> None:
    made: list[float] = []

    def samples() -> Iterator[exposition.Sample]:
        made.append(trio.current_time())
        autojump_clock.jump(0.1)  # type: ignore[attr-defined]  # a MockClock
        yield exposition.Sample(exposition.gauge("x", "Help."), 1)

    application = exposition.Exposition(samples, Turns())

    async def send(_: object) -> None:
        await trio.lowlevel.checkpoint()

    for _ in range(3):
        await application({}, trio.sleep_forever, send)
    pauses = [after - before for before, after in itertools.pairwise(made)]
    assert pauses == pytest.approx([0.5, 0.5])
    assert application._pieces == []


async def test_a_slow_scrape_ends(daemon: FakeDaemon, path: Path, autojump_clock: object) -> None:
    """A scrape without an end would hold its text in memory."""
    daemon.reports = list(many_limits(2000))
    async with served(daemon, path), await trio.open_unix_socket(str(path)) as stream:
        await stream.send_all(b"GET /metrics HTTP/1.1\r\nHost: drld\r\n\r\n")
        began = trio.current_time()
        answer = b""
        with trio.fail_after(10 * exposition.ANSWER_S):
            while received := await stream.receive_some(50_000):
                answer += received
                await trio.sleep(2.0)
    assert not answer.endswith(b"0\r\n\r\n")
    # The kernel holds some pieces when the connection ends.
    assert trio.current_time() - began < 2 * exposition.ANSWER_S


async def test_drlctl_prints_metrics(api: httpx.AsyncClient, path: Path) -> None:
    printed = await output(path, "metrics")
    assert printed == (await api.get("/metrics")).text


async def test_every_family_is_documented(
    api: httpx.AsyncClient, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.report["gossip"]["errors"] = {"EPERM": 1}
    daemon.report["config"]["certificate_expires_at"] = 1.9e9
    own = RequestsSpec(tls=ServerTls(ssl.create_default_context(), 1.8e9))
    monkeypatch.setattr(daemon, "plane_spec", lambda _: own)
    daemon.report["registry"] = cast(RegistryReport, {"state": "connected", "problem_count": 2})
    found = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in (await scraped(api)).values()
    }
    assert found == set(re.findall(r"^\| `(drld_\w+)` \|", DOCUMENT, re.MULTILINE))
