"""Frames of MQTT: cut, checked and dropped."""

from __future__ import annotations

import pytest

from drld.errors import FrameError
from drld.messages.frame import Client, Frame, Place
from drld.messages.mqtt import MAX_CONNECT, MAX_UNRELEASED, MqttReader
from drld.messages.topics import Topic
from drld.model import NS_PER_S
from tests.fuzz.targets.mqtt import connect, packet, text

BOUND = 1000
PING = packet(0xC0)


def connected(version: int = 4) -> MqttReader:
    reader = MqttReader(BOUND)
    (frame,) = reader.feed(connect(version))
    assert frame.topic is None
    return reader


def one(reader: MqttReader, data: bytes) -> Frame:
    (frame,) = reader.feed(data)
    return frame


def alias(number: int) -> bytes:
    return b"\x03\x23" + number.to_bytes(2, "big")


def refusal(reader: MqttReader, data: bytes) -> FrameError:
    with pytest.raises(FrameError) as caught:
        list(reader.feed(data))
    return caught.value


@pytest.mark.parametrize("version", [4, 5])
def test_a_client_says_what_it_is(version: int) -> None:
    reader = MqttReader()
    before = reader.client
    will = (b"\0" * (version == 5), text(b"will"), text(b"\xff"))
    fields = b"".join((*will, text("jürgen".encode()), text(b"\xff\0")))
    (frame,) = reader.feed(connect(version, 0xC6, fields))
    assert before is None
    assert reader.client is not None
    assert reader.client[:4] == ("client", "jürgen", version, 60)
    assert frame.place is Place.KEEPS


def said(data: bytes) -> Client:
    """The words of a client."""
    reader = MqttReader()
    list(reader.feed(data))
    assert reader.client is not None
    return reader.client


@pytest.mark.parametrize("version", [4, 5])
def test_clients_have_the_same_credentials_only_if_they_say_so(version: int) -> None:
    first = said(connect(version, 0xC2, text(b"a") + text(b"b")))
    assert first.same_credentials(said(connect(version, 0xC2, text(b"a") + text(b"b"))))
    for flags, fields in ((0xC2, (b"a", b"c")), (0xC2, (b"ab", b"")), (0x82, (b"a",)), (0x02, ())):
        assert not first.same_credentials(
            said(connect(version, flags, b"".join(map(text, fields))))
        )
    anonymous = said(connect(version, 0x02, b""))
    assert anonymous.same_credentials(said(connect(version, 0x02, b"")))


def test_a_client_that_authenticates_in_another_way_has_credentials_of_its_own() -> None:
    method = b"\x15" + text(b"SCRAM")
    fields = text(b"MQTT") + bytes([5, 2, 0, 60, len(method)]) + method + text(b"client")
    client = said(bytes([0x10, len(fields)]) + fields)
    assert client.id == "client"
    assert not client.same_credentials(client)


def test_a_bridge_of_mosquitto_is_a_client() -> None:
    data = connect(4).replace(b"MQTT\x04", b"MQTT\x84")
    reader = MqttReader()
    assert len(list(reader.feed(data))) == 1
    assert reader.client is not None
    assert reader.client.version == 4


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("size", [0, 200])
def test_a_message_has_its_topic_and_its_end(version: int, qos: int, size: int) -> None:
    reader, properties = connected(version), b"\0" * (version == 5)
    before = len(connect(version))
    fields = text("städte/ulm".encode()) + b"\0\7" * (qos > 0) + properties
    data = packet(0x31 | qos << 1, fields, b"x" * size)
    frame = one(reader, data)
    assert frame == Frame(data, before + len(data), Topic("städte/ulm"), Place.KEEPS)
    assert reader.forward(frame) == data


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (PING, Place.OVERTAKES),
        *((packet(first, b"\0\1"), Place.OVERTAKES) for first in (0x40, 0x50, 0x62, 0x70)),
        (packet(0x82, b"\0\1\0\1a\0"), Place.KEEPS),
        (packet(0xA2, b"\0\1\0\1a"), Place.KEEPS),
        (packet(0xE0), Place.KEEPS),
    ],
)
def test_answers_to_the_broker_overtake_messages(data: bytes, place: Place) -> None:
    frame = one(connected(), data)
    assert (frame.data, frame.topic, frame.place) == (data, None, place)


def test_authentication_overtakes() -> None:
    assert one(connected(5), packet(0xF0, b"\x18\0")).place is Place.OVERTAKES


def test_aliases_stand_for_their_topics() -> None:
    reader = connected(5)
    stream = b"".join((
        packet(0x30, text(b"a"), alias(1)),
        packet(0x32, text(b"b"), b"\0\1", alias(2)),
        packet(0x30, text(b""), alias(1)),
        packet(0x30, text(b"c"), alias(1)),
        packet(0x30, text(b""), alias(1)),
        packet(0x30, text(b""), alias(2)),
    ))  # fmt: skip
    frames = list(reader.feed(stream))
    assert [frame.topic_text for frame in frames] == ["a", "b", "a", "c", "c", "b"]
    assert [frame.alias for frame in frames] == [1, 2, 1, 1, 1, 2]
    assert b"".join(reader.forward(frame) for frame in frames) == stream


def test_an_alias_whose_definition_was_dropped_gets_its_topic_back_once() -> None:
    reader = connected(5)
    first = one(reader, packet(0x30, text(b"a"), alias(1)))
    reader.forward(first)
    redefined = one(reader, packet(0x32, text(b"b"), b"\0\1", alias(1)))
    reader.drop(redefined)
    used = packet(0x34, text(b""), b"\0\2", alias(1), b"x")
    second, third = reader.feed(used + used)
    assert reader.forward(second) == packet(0x34, text(b"b"), b"\0\2", alias(1), b"x")
    assert reader.forward(third) == used


def test_a_topic_that_is_put_back_may_need_a_longer_length() -> None:
    reader, topic = connected(5), b"t" * 126
    reader.drop(one(reader, packet(0x30, text(topic), alias(1))))
    frame = one(reader, packet(0x30, text(b""), alias(1), b"x"))
    assert reader.forward(frame) == packet(0x30, text(topic), alias(1), b"x")


@pytest.mark.parametrize(
    ("version", "qos", "answer"),
    [
        *((4, 0, b""), (4, 1, b"\x40\x02\x12\x34"), (4, 2, b"\x50\x02\x12\x34")),
        *((5, 0, b""), (5, 1, b"\x40\x03\x12\x34\x97"), (5, 2, b"\x50\x03\x12\x34\x97")),
    ],
)
def test_a_dropped_message_is_acknowledged(version: int, qos: int, answer: bytes) -> None:
    reader = connected(version)
    fields = (text(b"topic"), b"\x12\x34" * (qos > 0), b"\0" * (version == 5), b"x")
    assert reader.drop(one(reader, packet(0x30 | qos << 1, *fields))) == answer


def test_the_exchange_of_a_dropped_message_of_qos_2_ends_here() -> None:
    reader = connected(4)
    message = packet(0x34, text(b"t"), b"\0\7")
    reader.drop(one(reader, message))
    repeated = one(reader, packet(0x3C, text(b"t"), b"\0\7"))
    assert (repeated.data, repeated.topic, repeated.answer) == (b"", None, b"\x50\x02\0\7")
    other = one(reader, packet(0x62, b"\0\x08"))
    assert (other.data, other.answer) == (packet(0x62, b"\0\x08"), b"")
    released = one(reader, packet(0x62, b"\0\7"))
    assert (released.data, released.answer) == (b"", b"\x70\x02\0\7")
    assert released.place is Place.OVERTAKES
    again = one(reader, message)
    assert again.topic_text == "t"
    assert one(reader, packet(0x62, b"\0\7")).data


def test_the_broker_releases_a_dropped_message_that_it_may_have_from_an_earlier_connection() -> (
    None
):
    reader = connected(4)
    repeated = packet(0x3C, text(b"t"), b"\0\7")
    assert reader.drop(one(reader, repeated)) == b"\x50\x02\0\7"
    assert not one(reader, repeated).data
    released = one(reader, packet(0x62, b"\0\7"))
    assert (released.data, released.answer) == (packet(0x62, b"\0\7"), b"")


@pytest.mark.parametrize("around", [b"", text(b"a") + text(b"b")])
def test_a_message_that_has_waited_keeps_the_rest_of_its_expiry_interval(around: bytes) -> None:
    user = b"\x26" + around if around else b""

    def message(interval_s: int) -> bytes:
        properties = user + b"\x02" + interval_s.to_bytes(4, "big") + user + alias(7)[1:]
        fields = bytes([len(properties)]) + properties
        return packet(0x32, text(b"t"), b"\0\7", fields, b"\x02\0\0\0\1")

    reader = connected(5)
    frame = one(reader, message(3))
    assert frame.alias == 7
    for waited_ns, left_s in ((0, 3), (NS_PER_S - 1, 3), (NS_PER_S, 2), (3 * NS_PER_S - 1, 1)):
        assert frame.aged(waited_ns) == frame._replace(data=message(left_s))
    assert frame.aged(3 * NS_PER_S) is None
    assert not one(reader, packet(0x32, text(b"t"), b"\0\7", alias(7))).expiry_at


@pytest.mark.parametrize("flag", [0, 8])
@pytest.mark.parametrize(("version", "qos"), [(4, 1), (4, 2), (5, 2)])
def test_a_message_of_qos_2_that_a_client_repeats_before_pubrel_is_left_out(
    version: int, qos: int, flag: int
) -> None:
    """Once it has waited, it would come to the broker behind PUBREL, as a new message."""
    reader = connected(version)
    rest = text(b"a") + b"\0\7" + b"\0" * (version == 5)
    first, repeated = packet(0x30 | qos << 1, rest), packet(0x30 | flag | qos << 1, rest)
    release = packet(0x62, b"\0\7")
    left_out = (version, qos) == (4, 2)
    frames = [*reader.feed(first + repeated + repeated + release + repeated)]
    whole = [first, *[b"" if left_out else repeated] * 2, release, repeated]
    assert [frame.data for frame in frames] == whole
    assert [frame.answer for frame in frames] == [b""] * 5


def test_another_message_with_a_used_identifier_is_left_to_the_broker() -> None:
    reader = connected(4)
    one(reader, packet(0x34, text(b"t"), b"\0\7", b"a"))
    other = packet(0x34, text(b"t"), b"\0\7", b"b")
    assert [one(reader, other).data for _ in range(2)] == [other, b""]


def test_pubrel_of_mqtt_5_stays_behind_a_repetition_of_its_message() -> None:
    reader = connected(5)
    message, release = packet(0x34, text(b"a") + b"\0\7\0"), packet(0x62, b"\0\7")
    places = [frame.place for frame in reader.feed(message * 2 + release + message + release)]
    assert places[2::2] == [Place.KEEPS, Place.OVERTAKES]
    (dropped, again, released) = reader.feed(message * 2 + release)
    assert released.place is Place.KEEPS
    for frame in (dropped, again):
        reader.drop(frame)
    (*_, released) = reader.feed(message + release)
    assert released.place is Place.OVERTAKES


@pytest.mark.parametrize("version", [4, 5])
def test_a_client_that_never_releases_its_messages_takes_bounded_memory(version: int) -> None:
    reader = connected(version)
    for identifier in range(1, 65_536):
        fields = text(b"t"), identifier.to_bytes(2, "big"), b"\0" * (version == 5)
        for _ in range(2):
            one(reader, packet(0x34, *fields))
    assert len(reader._unreleased) == MAX_UNRELEASED
    assert len(reader._repeated) <= MAX_UNRELEASED


def test_half_an_identifier_repeats_no_dropped_message() -> None:
    reader = connected(4)
    reader.drop(one(reader, packet(0x34, text(b"t"), b"\0\7")))
    with pytest.raises(FrameError, match="must be within its packet"):
        one(reader, packet(0x3C, text(b"t"), b"\7"))


def test_long_identifiers_are_kept_as_digests() -> None:
    clients = []
    for name in (b"x" * 256, b"x" * 257, b"x" * 60_000):
        (frame,) = (reader := MqttReader()).feed(
            packet(0x10, text(b"MQTT"), b"\4\x82\0\0", text(name), text(name))
        )
        assert frame.data.count(name), "the broker gets all of it"
        assert reader.client is not None
        assert reader.client.id == reader.client.user
        clients.append(reader.client.id)
    assert clients[0] == "x" * 256
    assert len({*clients}) == 3
    assert max(map(len, clients)) == 256


def test_mqtt_5_ends_it_with_the_reason() -> None:
    reader = connected(5)
    message = packet(0x34, text(b"t"), b"\0\7\0")
    reader.drop(one(reader, message))
    assert one(reader, message).topic_text == "t"


MALFORMED = [
    (4, packet(0x30), "PUBLISH.topic: must be within its packet"),
    (4, packet(0x30, b"\0\x09abc"), "PUBLISH.topic: must be within its packet"),
    (4, packet(0x32, text(b"a")), "PUBLISH.packet_id: must be at least 1"),
    (4, packet(0x32, text(b"a"), b"\1"), "must be within its packet"),
    (4, packet(0x32, text(b"a"), b"\0\0"), "PUBLISH.packet_id: must be at least 1"),
    (4, packet(0x36, text(b"a"), b"\0\1"), "PUBLISH.qos: must be 0, 1 or 2"),
    (4, packet(0x38, text(b"a")), "PUBLISH.dup: must be 0 with QoS 0"),
    (4, packet(0x30, text(b"")), "PUBLISH.topic: must not be empty"),
    (4, packet(0x30, text(b"a/+/b")), "PUBLISH.topic: must not contain wildcards"),
    (4, packet(0x30, text(b"#")), "PUBLISH.topic: must not contain wildcards"),
    (4, packet(0x30, text(b"\xc3\x28")), "PUBLISH.topic: must be UTF-8"),
    (4, packet(0x30, text(b"\xed\xa0\x80")), "PUBLISH.topic: must be UTF-8"),
    (4, packet(0x30, text(b"a\0")), "PUBLISH.topic: must not contain U+0000"),
    (4, b"\x30\xff\xff\xff\xff", "packet.length: must have at most 4 bytes"),
    (4, packet(0x80, b"\0\1"), "SUBSCRIBE.flags: must be 2"),
    (4, packet(0x60, b"\0\1"), "PUBREL.flags: must be 2"),
    (4, packet(0xC0, b"x"), "PINGREQ.length: must be 0"),
    (4, packet(0xE0, b"\0"), "DISCONNECT.length: must be 0"),
    (4, packet(0x40, b"\0\1\0"), "PUBACK.length: must be 2 "),
    (5, packet(0x40, b"\0"), "PUBACK.length: must be 2 or more"),
    (4, packet(0xF0), "AUTH: must be of MQTT 5"),
    (4, packet(0x20, b"\0\0"), "packet.type: must be one that clients send"),
    (4, packet(0x00), "packet.type: must be one that clients send"),
    (4, connect(4), "CONNECT: must be the first packet"),
    (5, packet(0x30, text(b"a")), "PUBLISH.properties: must be within its packet"),
    (5, packet(0x30, text(b"a"), b"\x03\x23\0"), "PUBLISH.properties: must be within its packet"),
    (5, packet(0x30, text(b"a"), b"\x02\x23\0\1"), "must end where their length says"),
    (5, packet(0x30, text(b"a"), b"\x01\x7f"), "PUBLISH.properties: must be known"),
    (5, packet(0x30, text(b"a"), alias(0)), "PUBLISH.topic_alias: must be at least 1"),
    (5, packet(0x30, text(b"a"), b"\x06\x23\0\1\x23\0\1"), "topic_alias: must be there at most"),
    (5, packet(0x30, text(b""), alias(9)), "PUBLISH.topic_alias: must be one that has a topic"),
    (5, packet(0x30, text(b""), b"\0"), "PUBLISH.topic: must not be empty"),
]


@pytest.mark.parametrize(("version", "data", "claim"), MALFORMED)
def test_malformed_packets_are_refused(version: int, data: bytes, claim: str) -> None:
    reader = connected(version)
    error = refusal(reader, data)
    assert claim in str(error)
    assert error.answer == (b"\xe0\x01\x81" if version == 5 else b"")


def test_frames_before_a_malformed_one_are_whole() -> None:
    frames = connected().feed(PING + packet(0x30, text(b"a")) + packet(0))
    assert next(frames).data == PING
    assert next(frames).topic_text == "a"
    with pytest.raises(FrameError):
        next(frames)


def altered(old: bytes, new: bytes) -> bytes:
    """A CONNECT of MQTT 3.1.1 in which something else stands."""
    data = connect(4)
    assert old in data
    data = data.replace(old, new)
    return data[:1] + bytes((len(data) - 2,)) + data[2:]


@pytest.mark.parametrize(
    ("data", "claim"),
    [
        (PING, "client: must begin with CONNECT"),
        (b"GET /mqtt HTTP/1.1\r\n", "MQTT over WebSocket is not supported"),
        (b"\x16\x03\x01\x02\0", "must speak MQTT without TLS here"),
        (b"\x10\x00", "CONNECT.protocol_name: must be within its packet"),
        (altered(b"MQTT", b"MQTX"), "CONNECT.protocol_name: must be MQTT"),
        (altered(b"\x04\x02\0", b"\x04\x03\0"), "CONNECT.flags: must be as the standard says"),
        (altered(b"\x04\x02\0", b"\x04\x1e\0"), "CONNECT.flags: must be as the standard says"),
        (altered(b"\x04\x02\0", b"\x04\x22\0"), "CONNECT.flags: must be as the standard says"),
        (altered(b"client", b"clien\0"), "CONNECT.client_id: must not contain U+0000"),
        (altered(b"client", b"client12"), "CONNECT.payload: must end with its packet"),
        (altered(b"client", b"cl"), "CONNECT.client_id: must be within its packet"),
    ],
)
def test_a_first_packet_other_than_connect_is_refused(data: bytes, claim: str) -> None:
    error = refusal(MqttReader(), data)
    assert claim in str(error)
    assert error.answer == b""


@pytest.mark.parametrize(
    "data", [altered(b"MQTT\x04", b"MQTT\x06"), altered(b"\0\x04MQTT\x04", b"\0\x06MQIsdp\x03")]
)
def test_other_versions_are_told_so(data: bytes) -> None:
    error = refusal(MqttReader(), data)
    assert "CONNECT.protocol_version: must be 4 (MQTT 3.1.1) or 5 (MQTT 5)" in str(error)
    assert error.answer == b"\x20\x02\0\x01"


def test_sizes_are_bounded_before_the_bytes_are_there() -> None:
    fits = packet(0x30, text(b"a"), b"x" * (BOUND - 6))
    assert len(fits) == BOUND
    assert one(connected(), fits).data == fits
    head = packet(0x30, text(b"a"), b"x" * (BOUND - 5))[:3]
    assert refusal(connected(4), head).answer == b""
    error = refusal(connected(5), head)
    claim = f"PUBLISH: must have at most {BOUND} bytes, the broker's max_frame"
    assert str(error) == f"{claim} (got {BOUND + 1})"
    assert error.answer == b"\xe0\x01\x95"
    error = refusal(MqttReader(), packet(0x10, b"x" * MAX_CONNECT)[:4])
    assert f"CONNECT: must have at most {MAX_CONNECT} bytes" in str(error)


def test_aliases_are_bounded() -> None:
    reader = MqttReader()
    list(reader.feed(connect(5)))
    topic = text(b"t" * 60_000)
    for number in range(1, 18):
        assert one(reader, packet(0x30, topic, alias(number))).alias == number
        assert one(reader, packet(0x30, topic, alias(1))).alias == 1
    error = refusal(reader, packet(0x30, topic, alias(18)))
    assert "PUBLISH.topic_alias: must stand for" in str(error)
