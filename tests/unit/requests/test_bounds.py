"""Bounds on what strangers, peers and operators can make a daemon or a client remember."""

from __future__ import annotations

import threading
from ipaddress import ip_network
from pathlib import Path
from random import Random

import pytest

from drld import config
from drld.client import on_threads
from drld.client.on_threads import Client
from drld.client.protocol import check_codec
from drld.client.protocol.model import Question
from drld.errors import ConfigError, InputError
from drld.model import NS_PER_S
from drld.requests import busy_keys, caller, keyed_limit, question, shape
from drld.requests.buckets.delta_codec import KIND, DeltaCodec, Form, parts
from drld.requests.buckets.leading import ROUNDS
from drld.requests.buckets.replica import Message
from drld.requests.grpc import headers, http2
from drld.requests.grpc.call import Status
from drld.requests.keyed_limit import KeyedLimit, Terms
from drld.requests.registered import limit_table

from ..client.limiter import limiter
from .keyed_fleet import KEYED
from .made import bucket as record
from .made import limited, of_plan

TERMS = Terms(1, b"of a fleet", 50_000_000, 3, name="p0")


def keyed() -> KeyedLimit:
    return KeyedLimit(config.parse(KEYED, "f").limits[0], TERMS)


def test_max_pending_bounds_the_news_that_wait_for_a_silent_peer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keyed_limit, "MAX_PENDING", 8)
    replica, now_ns = keyed().replica, NS_PER_S
    replica.set_peers(["peer"])
    for key in range(100):
        replica.charge(key, now_ns, 1)
        now_ns += 10**9
        # Told, never acknowledged, and so pending again.
        replica.round(now_ns, Random(key))
    assert replica.pending["peer"].behind
    assert len(replica.pending["peer"].news) <= 8
    assert not replica.pending["peer"].entries


def test_copied_keys_bounds_what_a_round_tells_a_peer_that_knows_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keyed_limit, "COPIED_KEYS", 5)
    replica = keyed().replica
    for key in range(20):
        replica.charge(key, NS_PER_S, 1)
    replica.set_peers(["peer"])
    rounds = [replica.round(NS_PER_S, Random(1)) for _ in range(2)]
    assert [sum(len(it.deltas) for _, it in its) for its in rounds] == [5, 5]


def test_a_floor_is_told_once_a_turn_though_no_peer_acknowledges_it() -> None:
    """A fleet with losses would repeat the floors of all busy keys in each round."""
    now_ns, replica = NS_PER_S, keyed().replica
    replica.set_peers(["p1", "p2"])
    told: list[tuple[int, str]] = []
    for number in range(3 * ROUNDS):
        now_ns += TERMS.interval_ns
        if number % 5 == 0:
            replica.charge(7, now_ns, 100)
        for peer, message in replica.round(now_ns, Random(1)):
            if any(not cell.origin for cell in message.deltas.get(7, ())):
                told.append((number, peer))
        if number == 9:
            # The first cells are too old to be told without the floor.
            now_ns += 2000 * NS_PER_S
    first, second = (number for number, peer in told if peer == "p1")
    assert second - first == ROUNDS
    assert [peer for _, peer in told] == ["p1", "p2"] * 2


def test_most_acknowledged_bounds_the_acknowledgements_of_a_datagram() -> None:
    found = [*parts(Message(0, {}, tuple(range(1, 201))), Form.LEDGER, 1, 1)]
    assert [len(it.received) for it in found] == [63, 63, 63, 11]
    assert all(DeltaCodec(KIND).encode(it, 0, 0) for it in found)


def test_max_idle_bounds_the_connections_that_a_client_keeps(tmp_path: Path) -> None:
    many = 3 * on_threads.MAX_IDLE
    with limiter(tmp_path / "socket") as (unix, _), Client(unix, timeout_s=60) as client:
        together = threading.Barrier(many)
        real = client._connected

        def connected(deadline_ns: int) -> on_threads._Connection:
            # All have a connection before any has an answer.
            made = real(deadline_ns)
            together.wait(60)
            return made

        client._connected = connected  # type: ignore[method-assign]  # it counts
        threads = [threading.Thread(target=client.check, args=("api",)) for _ in range(many)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert 1 <= len(client._idle) <= on_threads.MAX_IDLE


def test_max_text_bytes_bounds_the_text_of_a_question() -> None:
    most = check_codec.MAX_TEXT_BYTES
    room = most - len(check_codec.text_of(Question("", {"a": ""})))
    assert len(check_codec.text_of(Question("", {"a": "x" * room}))) == most
    with pytest.raises(InputError, match="2048 bytes of text at most"):
        check_codec.text_of(Question("", {"a": "x" * (room + 1)}))


def test_max_text_bounds_the_message_of_a_failed_call() -> None:
    trailers = dict(headers.failure(Status.INTERNAL, "x" * 5000))
    assert trailers[b"grpc-message"] == b"x" * 200


def test_max_table_bytes_bounds_what_is_remembered_for_compression() -> None:
    made = http2.Http2(100, 8192, ())
    made.encoder.header_table_size = 2**30
    made.bound_table()
    assert made.encoder.header_table_size == http2.MAX_TABLE_BYTES


def test_max_closed_streams_bounds_what_is_remembered_of_calls() -> None:
    streams = http2.Http2(100, 8192, ())._closed_streams
    for number in range(5000):
        streams[number] = None
    assert len(streams) == http2.Http2.MAX_CLOSED_STREAMS


def test_max_proxies_bounds_the_addresses_that_are_read() -> None:
    trusted = [ip_network("10.0.0.0/8")]
    row = ", ".join(["192.0.2.9", *["10.0.0.1"] * 16])
    assert caller.caller_of(caller.Client("10.0.0.1"), [row], trusted) == "10.0.0.1"
    shorter = ", ".join(["192.0.2.9", *["10.0.0.1"] * 15])
    assert caller.caller_of(caller.Client("10.0.0.1"), [shorter], trusted) == "192.0.2.9"


def test_max_caller_bytes_bounds_a_name_of_a_certificate() -> None:
    found = caller.certificate_name({"subjectAltName": (("DNS", "\u00e9" * 500),)})
    assert found == "\u00e9" * (caller.MAX_CALLER_BYTES // 2)


def test_max_choices_bounds_the_values_that_a_shape_remembers() -> None:
    plans = [f"plan-{number}" for number in range(1000)]
    made = shape.Shape[str](["plan"], {"plan": plans}, lambda pairs: [pairs["plan"]])
    for plan in plans:
        assert made.find([plan.encode()]) == [plan]
    assert len(made._found) <= shape._MAX_CHOICES


def test_max_digits_bounds_the_numbers_of_a_query() -> None:
    with pytest.raises(InputError, match="cost: must be a whole number"):
        question.of_query(b"namespace=a&cost=00000000001", "c")
    assert question.of_query(b"namespace=a&cost=0000000001", "c")[0].cost == 1


def test_max_overrides_bounds_the_keys_of_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit_table, "MAX_OVERRIDES", 2)
    own = ", ".join(f'{{ user = "u{number}", burst = 1 }}' for number in range(3))
    text = KEYED.replace("burst = 20\n", f"burst = 20\noverrides = [{own}]\n")
    with pytest.raises(ConfigError, match=r"limit\[0\].overrides: must be an array of at most 2"):
        config.parse(text, "f")


def test_most_looked_at_bounds_the_keys_that_a_report_examines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(busy_keys, "MOST_LOOKED_AT", 5)
    made = keyed()
    for key in range(10):
        made.replica.charge(key, NS_PER_S, 1)
    made.replica.charge(made.key(b"recent"), NS_PER_S, 1)
    found = busy_keys.busy_report(made, 10, 0, NS_PER_S)
    assert (found["keys"], [it["text"] for it in found["busiest"]]) == (11, ["recent"])


def test_max_flows_bounds_the_callers_that_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drld.requests.datapath._MAX_FLOWS", 8)
    path = limited((of_plan(1), record(1)))
    for number in range(100):
        path._flow(f"caller-{number}")
        assert len(path._flows) <= 8
