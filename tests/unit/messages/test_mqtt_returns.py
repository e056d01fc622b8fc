"""What the broker of MQTT sends, with answers of drld between its packets."""

from __future__ import annotations

import pytest

from drld.errors import FrameError
from drld.messages.mqtt_returns import MqttReturns
from tests.fuzz.targets.mqtt import packet, packets, text

PING = packet(0xC0)
CONNACK = b"\x20\x02\0\0"
PUBACK = b"\x40\x02\0\1"


def test_returns_pass_everything_and_greet_with_the_first_packet() -> None:
    returns = MqttReturns()
    assert returns.feed(CONNACK[:3]) == CONNACK[:3]
    before = returns.greeted
    assert returns.insert(PUBACK) == b""
    assert returns.held == len(PUBACK)
    assert returns.feed(CONNACK[3:] + PING[:1]) == CONNACK[3:] + PUBACK + PING[:1]
    assert (before, returns.greeted) == (False, True)
    assert returns.held == 0
    assert returns.feed(PING[1:]) == PING[1:]
    assert returns.insert(PUBACK) == PUBACK


@pytest.mark.parametrize("size", [0, 5, 127, 128, 300, 20_000])
def test_answers_stand_between_the_brokers_packets(size: int) -> None:
    message = packet(0x30, text(b"a"), b"x" * size)
    for cut in {*range(1, min(len(message), 9)), len(message) // 2, len(message) - 1}:
        returns = MqttReturns()
        out = returns.feed(CONNACK + message[:cut])
        assert returns.insert(PUBACK) == b""
        out += returns.feed(message[cut:] + PING)
        out += returns.insert(PUBACK)
        assert packets(out) == [CONNACK, message, PUBACK, PING, PUBACK, b""]


def test_a_broker_that_speaks_something_else_is_found_out() -> None:
    with pytest.raises(FrameError, match="must have at most 4 bytes"):
        MqttReturns().feed(b"\x20\xff\xff\xff\xff")


@pytest.mark.parametrize(
    ("data", "accepted", "keep_alive_s", "id_"),
    [
        (CONNACK, True, None, ""),
        (b"\x20\x02\0\5", False, None, ""),
        (packet(0x20, b"\0\0\0"), True, None, ""),
        (packet(0x20, b"\0\0\x09\x13\0\x0a\x22\0\x0a\x12\0\0"), True, 10, ""),
        (packet(0x20, b"\0\x87\x03\x13\0\0"), False, 0, ""),
        (packet(0x20, b"\0\0\x09\x12\0\3one\x13\0\1"), True, 1, "one"),
    ],
)
def test_connack_says_the_verdict_and_perhaps_a_keep_alive_and_an_identifier(
    data: bytes, accepted: bool, keep_alive_s: int | None, id_: str
) -> None:
    """MQTT 5, 3.2.2.3: the client uses the broker's in the place of its own."""
    for piece in (1, 3, len(data)):
        returns = MqttReturns()
        for start in range(0, len(data), piece):
            assert returns.accepted is False
            returns.feed(data[start : start + piece])
        assert (returns.accepted, returns.keep_alive_s) == (accepted, keep_alive_s)
        assert returns.assigned_id == id_


@pytest.mark.parametrize(
    ("data", "claim"),
    [
        (packet(0x20), "CONNACK.flags: must be within its packet"),
        (packet(0x20, b"\0"), "CONNACK.reason: must be within its packet"),
        (packet(0x20, b"\0\0\5\x13\0\x0a"), "CONNACK.properties: must be within its packet"),
        (packet(0x20, b"\0\0\6\x13\0\1\x13\0\2"), "CONNACK.server_keep_alive: must be there at"),
    ],
)
def test_a_malformed_connack_is_refused(data: bytes, claim: str) -> None:
    with pytest.raises(FrameError, match=claim):
        MqttReturns().feed(data)


PINGRESP = packet(0xD0)


@pytest.mark.parametrize("piece", [1, 2, 3, 1000])
def test_a_client_gets_the_answers_to_its_own_pings_alone(piece: int) -> None:
    """They come behind those to drld's pings, however the stream is cut."""
    inside = packet(0x30, text(b"a"), PINGRESP)
    returns = MqttReturns()
    returns.feed(CONNACK)
    returns.pings = 2
    stream = inside + PINGRESP + inside + PINGRESP + PINGRESP + inside
    out = [returns.feed(stream[start : start + piece]) for start in range(0, len(stream), piece)]
    assert b"".join(out) == inside + inside + PINGRESP + inside
    assert returns.pings == 0


def test_an_answer_that_has_begun_before_drld_pings_is_the_clients() -> None:
    returns = MqttReturns()
    assert returns.feed(CONNACK + PINGRESP[:1]) == CONNACK + PINGRESP[:1]
    returns.pings = 1
    assert returns.feed(PINGRESP[1:] + PINGRESP + PUBACK) == PINGRESP[1:] + PUBACK
    assert returns.pings == 0


def test_an_answer_to_a_ping_has_no_fields() -> None:
    returns = MqttReturns()
    returns.pings = 1
    with pytest.raises(FrameError, match=r"PINGRESP\.length: must be 0"):
        returns.feed(CONNACK + packet(0xD0, b"x"))
