"""Limits on messages as operators see them: lists, explanations, remarks, metrics, profiles."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
import trio
from click.testing import Result
from prometheus_client.parser import text_string_to_metric_families

from drld import config
from drld.cli.view.live import Seen, View, draw
from drld.cli.view.minute import Minute
from drld.config.certificate import expiry
from drld.config.changes import Configuration
from drld.config.files import read
from drld.control.schema.limits import LimitReport, WaitsReport
from drld.daemon.limit_report import limit_reports
from drld.engine import Engine
from drld.errors import InputError
from drld.limit_values import limit_values
from drld.messages.datapath import MessageDatapath
from drld.messages.recording import Recording
from drld.messages.registered import explain, metrics
from drld.messages.spec import ByClient, Excess, MessageMatch
from drld.model import NS_PER_S
from drld.planes.plane import Plane
from drld.policy import Mode
from drld.spec import LimitSpec
from testbed.sim.mailbox import Datagram, Mailbox
from testbed.sim.network import Conditions, Network
from testbed.tcp.clock import Clock
from tests.certificates import authority, signed
from tests.control_fake import FPS_LIMIT, STATUS, FakeDaemon, client, served
from tests.factories import limiter_spec
from tests.unit.cli.drlctl import drlctl, invoke, output, refused

from .good import GOOD, changed
from .made import BROKERS, MS, attach, datapath, message_limit, offered, record

WAITS = WaitsReport(waiting=5000, waited=7000, p50_s=0.0, p95_s=0.0123, p99_s=1.5, clients=None)
LIMIT = LimitReport(
    **{
        **FPS_LIMIT,
        "id": 9,
        "name": "city",
        "unit": "messages",
        "items": "messages",
        "rate_bps": 11_000,
        "burst_bytes": 26,
        "match": {"broker": "mqtt", "topic": "city/#"},
        "waits": WAITS,
    }
)


@pytest.fixture
def control(tmp_path: Path) -> Path:
    return tmp_path / "control.sock"


async def test_lists_show_what_waits_and_for_how_long(control: Path) -> None:
    daemon = FakeDaemon()
    daemon.reports = [FPS_LIMIT, LIMIT]
    async with served(daemon, control):
        heads, packets, found = (await output(control, "limits")).splitlines()
        assert heads.split()[-4:] == ["WAITING", "P50", "P95", "P99"]
        assert found.split()[-7:] == ["5000", "0", "s", "12.3", "ms", "1.50", "s"]
        assert packets.split()[-4:] == ["-", "-", "-", "-"]
        shown = await output(control, "limit", "show", "city")
        assert (
            "waiting      5000, access delay p50 / p95 / p99 of the last minute 0 s / 12.3 ms "
            in shown
        )
        assert "waiting" not in await output(control, "limit", "show", "customer-a")
        daemon.reports = [FPS_LIMIT]
        assert "P99" not in await output(control, "limits")


@pytest.mark.parametrize("opened", [None, "city"])
def test_the_live_view_shows_them(opened: str | None) -> None:
    seen = Seen(STATUS, [LIMIT] if opened else [FPS_LIMIT, LIMIT], Minute(), 0.0)
    text = "\n".join(
        "".join(it.text for it in line) for line in draw(View(opened=opened), seen, 160, 30)
    )
    assert "1.50 s" in text
    assert ("5000, access delay p50 / p95 / p99" if opened else "5.00 k") in text


def started(*limits: LimitSpec, made: MessageDatapath) -> Engine:
    """The engine of a daemon with these limits."""
    clock = Clock()
    network: Network[Datagram] = Network(1, Conditions())
    spec = limiter_spec(*limits, peers=())
    engine = Engine(spec, [Plane(MessageMatch, made)], Mailbox("a", clock, network), Random(1))
    engine.start(0)
    return engine


def test_a_report_has_them() -> None:
    limits = (
        message_limit("a", id=1, rate=10, burst=1),
        message_limit("b", id=2, rate=10, burst=1, client=ByClient.ADDRESS),
        message_limit("c", id=3, rate=10, burst=1, mode=Mode.SHADOW),
    )
    made = datapath(*limits)
    lane = made.gate.lane("mqtt", "10.0.0.1")
    for topic in "cab":
        offered(made, lane, topic, "xxx", 0)
    assert list(made.gate.release(100 * MS)) != []
    made.read(1, 100 * MS)
    made.flush(100 * MS)
    reports = limit_reports(started(*limits, made=made), 0)
    found = {report["id"]: report["waits"] for report in reports}
    first, each, shadow = found[1], found[2], found[3]
    assert first is not None
    assert each is not None
    assert shadow is not None
    assert (first["waiting"], first["waited"], first["clients"]) == (1, 2, None)
    assert first["p99_s"] == pytest.approx(0.1, rel=0.04)
    assert (each["waiting"], each["clients"]) == (1, 1)
    assert (shadow["waiting"], shadow["waited"]) == (1, 2)


def test_a_list_goes_on_though_a_reload_removes_a_limit_meanwhile() -> None:
    """A long list is made in steps, with other tasks between them."""
    limits = [message_limit(topic, id=number) for number, topic in enumerate("abc", 1)]
    engine = started(*limits, made=datapath())
    reports = limit_reports(engine, 0)
    assert next(reports)["id"] == 1
    engine.reconfigure(limiter_spec(limits[0], limits[2], peers=()), MS)
    assert [report["id"] for report in reports] == [3]


# Explanations


def explained(text: str, *limits: LimitSpec, made: MessageDatapath, now_ns: int = 0) -> list[str]:
    made.flush(now_ns)
    rows = explain.Explainer(limits).explain(
        explain.read(text),
        lambda limit, lane: (made.snapshot(limit.id, lane), record(limit)),
        now_ns,
    )
    return [f"{it['verdict']}: {it['misses'] or it['reason']}" for it in rows]


def test_a_message_is_explained() -> None:
    limits = (
        message_limit("a/#", id=1, rate=10, burst=1),
        message_limit("b/#", id=2),
        message_limit("#", id=3, broker=("nats",)),
        message_limit("#", id=4, rate=10, burst=5, client=ByClient.ID),
        message_limit("#", id=5, rate=10, burst=1, mode=Mode.SHADOW),
        message_limit("#", id=6, rate=10, burst=1, mode=Mode.PAUSE),
        message_limit("a/+", id=7, rate=10, burst=1, excess=Excess.DROP),
        message_limit("#", id=8),
    )
    made = datapath(*limits)
    lane = made.gate.lane("mqtt")
    assert offered(made, lane, "a/b", "xyz", 0) == "x"
    assert explained("broker=mqtt topic=a/b client=me", *limits, made=made) == [
        "wait: it waits for 300 ms: the bucket holds -2 messages, and the message needs 1 message",
        "None: topic: a/b does not match b/#",
        "None: broker: mqtt is not nats",
        "forward: the bucket holds 5 messages, and the message needs 1 message",
        "forward: shadow mode; it would wait for 100 ms: the bucket holds 0 messages, and the "
        "message needs 1 message",
        "forward: the limit is paused: it counts, and drops nothing",
        "drop: the bucket holds 0 messages, and the message needs 1 message",
        "None: not checked: limit7 drops the message",
    ]
    assert len(lane) == 2


def test_filters_of_unknown_brokers_are_tried_in_both_notations() -> None:
    of_nats = message_limit("city.>", broker=("elsewhere",))
    of_mqtt = message_limit("city/#", id=2, broker=("elsewhere",))
    made = datapath(of_nats, of_mqtt)
    verdicts = explained("broker=elsewhere topic=city.a.b", of_nats, of_mqtt, made=made)
    assert [it.split(":")[0] for it in verdicts] == ["forward", "None"]
    verdicts = explained("broker=elsewhere topic=city/a/b", of_nats, of_mqtt, made=made)
    assert [it.split(":")[0] for it in verdicts] == ["None", "forward"]


@pytest.mark.parametrize(
    "text",
    ["", "topic=a", "broker=a", "broker=a topic=b size=3", "broker=a topic", "broker='a topic=b"],
)
def test_a_text_that_is_no_message_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="a message must be broker=NAME topic=TOPIC"):
        explain.read(text)


def test_a_message_is_written_as_it_is_read() -> None:
    asked = explain.read("broker=mqtt 'topic=a b/c' client=x user=y address=10.0.0.1")
    assert asked.topic == "a b/c"
    assert explain.read(str(asked)) == asked
    assert explain.remarks(asked) == []
    assert len(explain.remarks(explain.read("broker=a topic=b"))) == 1


def test_a_file_is_explained_without_a_daemon(tmp_path: Path) -> None:
    file = tmp_path / "drld.toml"
    file.write_text(GOOD)
    said = invoke("explain", "broker=mqtt", "topic=city/x", "--config", file)
    assert said.exit_code == 0
    assert said.stdout.startswith("broker=mqtt topic=city/x\nThe message names no client")
    assert said.stdout.endswith("now: forwarded\n")


# Remarks


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ([('"127.0.0.1:1883"', '"0.0.0.0:1883"')],
         "broker.listen: mqtt: 0.0.0.0:1883: nothing is encrypted, passwords neither: set "
         "broker.certificate, or let only a trusted network reach it"),
        ([('"127.0.0.1:1884"', '"10.0.0.1:1884"')],
         "broker.server: mqtt: clients that reach the broker itself are not limited: let only drld "
         "reach it"),
        ([], "broker: nats: no limit is about these: their messages pass and are counted"),
        ([('"11k/s"', '"30/h"')],
         "limit.rate: less than a message in 60s: city: clients give up before their messages "
         'leave: use excess = "drop"'),
    ],
)  # fmt: skip
def test_settings_that_surprise_draw_remarks(changes: list[tuple[str, str]], remark: str) -> None:
    assert remark in config.remarks(config.parse(changed(*changes), "f"))


def test_a_burst_too_small_for_a_fleet_draws_a_remark() -> None:
    peer = '\n[[peer]]\nname = "lim2"\naddress = "127.0.0.1:7947"\n'
    assert (
        "limit.burst: split over 2 limiters, the 99th percentile of the access delay is above 0 if "
        "the burst is just enough for one: city (2.36 ms) (docs/messages.md)"
    ) in config.remarks(config.parse(GOOD + peer, "f"))
    each = config.parse(changed(('"city/#"', '"city/#", client = "id"')) + peer, "f")
    assert (
        "limit.match.client: city: each limiter has buckets of its own: a client that publishes "
        "through all 2 has 2 times the rate (docs/messages-operations.md)"
    ) in config.remarks(each)
    assert not [it for it in config.remarks(each) if it.startswith("limit.burst")]


def test_a_limit_with_buckets_for_clients_is_written() -> None:
    spec = config.parse(changed(('"city/#"', '"city/#", client = "id"')), "f")
    values = limit_values(spec.limits[0])
    assert (values["match.client"], values["bucket"]) == ("id", "client")


# Metrics and profiles


async def test_metrics_show_what_waits(control: Path) -> None:
    daemon = FakeDaemon()
    limits = (
        message_limit("a", id=1, rate=10, burst=1),
        message_limit("b", id=2, client=ByClient.ADDRESS),
    )
    made = datapath(*limits)
    lane = made.gate.lane("mqtt")
    offered(made, lane, "b", "x", 0)
    offered(made, lane, "a", "xyz", 0)
    daemon.datapaths = [made]
    async with served(daemon, control), client(control) as api:
        text = (await api.get("/metrics")).text
    families = list(text_string_to_metric_families(text))
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }
    # promtool refuses the label in other kinds.
    for family in families:
        quantiles = ["quantile" in sample.labels for sample in family.samples]
        assert set(quantiles) == {family.type == "summary"}, family.name
    assert found["drld_limit_messages_waiting", "limit1"] == 2
    assert found["drld_limit_messages_waited_total", "limit1"] == 2
    assert found["drld_limit_access_delay_seconds", "limit1", "0.99"] == 0
    assert found["drld_limit_clients", "limit2"] == 1
    assert ("drld_limit_clients", "limit1") not in found
    assert found["drld_messages_held_bytes",] == made.gate.held_bytes > 0


async def test_metrics_show_when_certificates_expire(control: Path, tmp_path: Path) -> None:
    own = signed(tmp_path, "server", authority(tmp_path, "ca"), "serverAuth")
    tls = f'certificate = "{own.cert}"\nkey = "{own.key}"\nserver = "/run'
    (tmp_path / "drld.toml").write_text(changed(('server = "/run', tls)))
    daemon = FakeDaemon()
    daemon.configuration = Configuration.of(read(tmp_path / "drld.toml"))
    daemon.datapaths = [datapath()]
    async with served(daemon, control), client(control) as api:
        text = (await api.get("/metrics")).text
    line = 'drld_broker_certificate_expiry_timestamp_seconds{broker="nats"} '
    (shown,) = [it.removeprefix(line) for it in text.splitlines() if it.startswith(line)]
    assert float(shown) == expiry(own.cert.read_text())


def test_metrics_go_on_though_a_reload_removes_a_limit_meanwhile() -> None:
    limits = [message_limit(topic, id=number) for number, topic in enumerate("abc", 1)]
    made = datapath(*limits)
    daemon = FakeDaemon()
    daemon.datapaths = [made]
    samples = metrics.samples(daemon)
    held, first = next(samples), next(samples)
    attach(made, limits[0], limits[2], now_ns=MS)
    rest = {dict(sample.labels)["limit"] for sample in samples}
    assert (held.labels, dict(first.labels)["limit"], rest) == ((), "limit1", {"limit1", "limit3"})


def test_a_recording_is_bounded_and_in_order() -> None:
    recording = Recording(most=3)
    for now_ns in (5, 4, 6, 7):
        recording.add(now_ns)
    assert (recording.take(), recording.missed) == ([5, 5, 6], 1)
    recording.add(8)
    assert (recording.take(), recording.missed) == ([8], 1)


@pytest.mark.parametrize("excess", Excess)
@pytest.mark.parametrize("mode", Mode)
def test_arrivals_are_recorded_in_every_mode(excess: Excess, mode: Mode) -> None:
    made = datapath(message_limit(rate=10, burst=1, excess=excess, mode=mode))
    lane = made.gate.lane("mqtt")
    offered(made, lane, "a", "x", 0)
    recording = made.record(1)
    assert recording is not None
    assert made.record(1) is None
    for at_ms in (1, 2, 3):
        offered(made, lane, "a", "x", at_ms * MS)
    assert recording.take() == [1 * MS, 2 * MS, 3 * MS]
    made.stop_recording(1, recording)
    offered(made, lane, "a", "x", 4 * MS)
    assert recording.take() == []
    again = made.record(1)
    assert again is not None
    assert not made.records(1, recording)
    attach(made, now_ns=5 * MS)
    assert not made.records(1, again)


class Published(MessageDatapath):
    """Has 22 messages a second, 2 at a time, on a clock of its own, whenever they are taken."""

    def record(self, limit_id: int) -> Recording | None:
        recording = super().record(limit_id)
        if recording is not None:
            lane = self.gate.lane("mqtt")
            for number in range(2200):
                offered(self, lane, "a", "x", number // 2 * NS_PER_S // 1000)
        return recording


def publishing() -> MessageDatapath:
    made = Published(BROKERS, Random(1))
    attach(made, message_limit(rate=10**6, burst=10, mode=Mode.SHADOW), now_ns=0)
    return made


async def profiled(control: Path, *args: str) -> Result:
    daemon = FakeDaemon()
    daemon.reports = [LimitReport(**{**LIMIT, "id": 1}), LimitReport(**{**FPS_LIMIT, "id": 2})]
    daemon.datapaths = [publishing()]
    async with served(daemon, control):
        return await drlctl(control, "topic", "profile", *args)


async def test_a_profile_is_shown(control: Path) -> None:
    result = await profiled(control, "city", "--seconds", "1")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("recorded  2200 messages in 1.")
    shown = json.loads((await profiled(control, "city", "--seconds", "1", "--json")).stdout)
    assert (shown["messages"], shown["missed"]) == (2200, 0)
    # 2,200 messages in 1.1 s of their own clock, of whose load the bursts are at least 2.
    assert shown["burst"] >= 2
    assert shown["bursts_of_parts"]
    assert shown["rate"] == pytest.approx(1.1 * 2200 / shown["seconds"], rel=1e-6)


async def test_a_limit_that_cannot_be_profiled_is_refused(control: Path) -> None:
    said = refused(await profiled(control, "customer-a"))
    assert said.endswith("limit customer-a is not about messages\n")
    assert "no limit" in refused(await profiled(control, "none"))


async def test_buckets_of_clients_are_not_profiled_together(control: Path) -> None:
    daemon = FakeDaemon()
    daemon.reports = [LimitReport(**{**LIMIT, "id": 1})]
    made = datapath()
    attach(made, message_limit(client=ByClient.ID), now_ns=0)
    daemon.datapaths = [made]
    async with served(daemon, control):
        said = refused(await drlctl(control, "topic", "profile", "city"))
    assert said.endswith("has a bucket for each client: profile one without match.client\n")


async def test_a_limit_is_profiled_once_at_a_time(control: Path) -> None:
    daemon = FakeDaemon()
    daemon.reports = [LimitReport(**{**LIMIT, "id": 1})]
    made = publishing()
    daemon.datapaths = [made]
    url = "/v1/limits/city/arrivals"
    batches = []
    with trio.fail_after(20):
        async with (
            served(daemon, control),
            client(control) as api,
            api.stream("GET", url) as stream,
        ):
            assert stream.status_code == 200
            async for line in stream.aiter_lines():
                batches.append(len(json.loads(line)["arrivals_ns"]))
                if len(batches) == 1:
                    assert (await api.get(url)).status_code == 409
                    # The limit is removed, so the stream ends.
                    attach(made, now_ns=NS_PER_S)
    assert batches == [2200]
