"""Frames of brokers' protocols, against the packet builders of unmodified clients."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from gmqtt.client import Message
from gmqtt.mqtt.package import LoginPackageFactor, PublishPacket
from hypothesis import given
from hypothesis import strategies as st
from nats.protocol import command
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from drld.messages.frame import MAX_FRAME, Frame, Reader
from drld.messages.protocols import PROTOCOLS
from tests.fuzz.targets.mqtt import packet

texts = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=20)
topics = texts.filter(lambda text: text and not {*text} & {*"+#\0"})
subjects = texts.map(lambda text: "".join(text.split())).filter(bool)
payloads = st.binary(max_size=40) | st.just(b"x" * 300) | st.just(b"y" * 20_000)
properties = st.fixed_dictionaries(
    {},
    optional={
        "payload_format_id": st.integers(0, 1),
        "message_expiry_interval": st.integers(0, 2**32 - 1),
        "content_type": texts,
        "response_topic": topics,
        "correlation_data": st.binary(max_size=9),
        "user_property": st.lists(st.tuples(texts, texts), min_size=1, max_size=3),
        "topic_alias": st.integers(1, 3),
    },
)
messages = st.lists(
    st.tuples(topics | st.none(), payloads, st.integers(0, 2), st.booleans(), properties),
    max_size=6,
)
cuts = st.lists(st.integers(0, 1 << 20), max_size=20)
"""Places where the stream is cut, modulo its length."""


def protocol_of(version: int) -> SimpleNamespace:
    """The fields that gmqtt's builders read."""
    numbers = SimpleNamespace(next_id=iter(range(1, 100)).__next__)
    return SimpleNamespace(proto_name=b"MQTT", proto_ver=version, id_generator=numbers)


def split(reader: Reader, stream: bytes, at: list[int]) -> list[Frame]:
    edges = [0, *sorted(place % (len(stream) + 1) for place in at), len(stream)]
    return [frame for start, end in pairwise(edges) for frame in reader.feed(stream[start:end])]


def checked(name: str, packets: list[bytes], expected: list[str | None], at: list[int]) -> Reader:
    """Each packet is a frame, with its end, wherever the stream is cut."""
    reader, stream = PROTOCOLS[name].reader(MAX_FRAME), b"".join(packets)
    frames = split(reader, stream, at)
    assert [frame.data for frame in frames] == packets
    assert [frame.topic_text for frame in frames] == expected
    assert [frame.end for frame in frames] == [
        sum(map(len, packets[: number + 1])) for number in range(len(packets))
    ]
    assert b"".join(map(reader.forward, frames)) == stream
    return reader


@given(version=st.sampled_from([4, 5]), found=messages, at=cuts, keep_alive=st.integers(0, 65535))
def test_frames_that_gmqtt_writes_are_read(
    version: int, found: list[tuple[Any, ...]], at: list[int], keep_alive: int
) -> None:
    protocol = protocol_of(version)
    will = Message("will", "gone", 1, **({"will_delay_interval": 3} if version == 5 else {}))
    packets = [
        bytes(
            LoginPackageFactor.build_package(
                *("client", "user", "secret", True, keep_alive, protocol, will)
            )
        )
    ]
    aliases: dict[int, str] = {}
    expected: list[str | None] = [None]
    for topic, payload, qos, retain, extra in found:
        alias = extra.get("topic_alias") if version == 5 else None
        if topic is None and alias not in aliases:
            continue
        if topic is not None and alias is not None:
            aliases[alias] = topic
        _, packet = PublishPacket.build_package(
            Message(topic or "", payload, qos, retain, **extra), protocol
        )
        packets.append(bytes(packet))
        expected.append(aliases[alias] if alias is not None else topic)
    reader = checked("mqtt", packets, expected, at)
    assert reader.client is not None
    assert reader.client[:4] == ("client", "user", version, keep_alive)


@given(
    found=st.lists(st.tuples(subjects, st.none() | subjects, payloads, st.booleans()), max_size=6),
    at=cuts,
)
def test_frames_that_nats_py_writes_are_read(
    found: list[tuple[str, str | None, bytes, bool]], at: list[int]
) -> None:
    packets, expected = [b"PING\r\n", command.sub_cmd("a.*", "", 1)], [None, None]
    topics: list[str | None] = [*expected]
    for subject, reply, payload, headers in found:
        if headers:
            block = b"NATS/1.0\r\nname: value\r\n\r\n"
            packets.append(command.hpub_cmd(subject, reply or "", block, payload))
        else:
            packets.append(command.pub_cmd(subject, reply or "", payload))
        topics.append(subject)
    checked("nats", packets, topics, at)


@given(
    found=st.lists(
        st.tuples(st.none() | topics, st.integers(1, 3), st.integers(0, 2), st.booleans()),
        max_size=12,
    ),
    at=cuts,
)
def test_the_broker_knows_aliases_of_dropped_messages(
    found: list[tuple[str | None, int, int, bool]], at: list[int]
) -> None:
    """A reader in the broker's place sees the topics that the client meant."""
    protocol = protocol_of(5)
    stream = bytearray(LoginPackageFactor.build_package("c", None, None, True, 0, protocol))
    aliases: dict[int, str] = {}
    kept: list[str | None] = [None]
    drops = []
    for topic, alias, qos, drop in found:
        if topic is None and alias not in aliases:
            continue
        aliases[alias] = topic or aliases[alias]
        message = Message(topic or "", "x", qos, topic_alias=alias)
        stream += PublishPacket.build_package(message, protocol)[1]
        drops.append(drop)
        if not drop:
            kept.append(aliases[alias])
    client, broker = (PROTOCOLS["mqtt"].reader(MAX_FRAME) for _ in range(2))
    sent = bytearray()
    for number, frame in enumerate(split(client, bytes(stream), at)):
        if number and drops[number - 1]:
            client.drop(frame)
        else:
            sent += client.forward(frame)
    assert [frame.topic_text for frame in broker.feed(bytes(sent))] == kept


@given(extra=properties)
def test_properties_as_paho_writes_them(extra: dict[str, Any]) -> None:
    names = {
        "payload_format_id": "PayloadFormatIndicator",
        "message_expiry_interval": "MessageExpiryInterval",
        "content_type": "ContentType",
        "response_topic": "ResponseTopic",
        "correlation_data": "CorrelationData",
        "user_property": "UserProperty",
        "topic_alias": "TopicAlias",
    }
    made = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]  # paho has no types here
    for name, value in extra.items():
        setattr(made, names[name], value)
    block = made.pack()  # type: ignore[no-untyped-call]  # paho has no types here
    data = packet(0x30, b"\0\1t", block, b"payload")
    reader = PROTOCOLS["mqtt"].reader(MAX_FRAME)
    login = LoginPackageFactor.build_package("c", None, None, True, 0, protocol_of(5))
    _, frame = reader.feed(bytes(login) + data)
    assert (frame.topic_text, frame.alias) == ("t", extra.get("topic_alias", 0))
