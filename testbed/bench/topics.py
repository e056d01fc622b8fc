"""The cost of a message under many limits, each on a topic of its own.

`testbed.bench.hop.many_topics` measures the whole cost in a daemon, which the goal is about. Here
is the part beside system calls and ticks: a client's PUBLISH packets are cut out of its stream,
pass the gate, and are joined for the broker. Each message has a random topic. The numbers of limits
take turns, so a busy host disturbs all of them alike.

With many topics almost each object that is read costs a cache miss. The floor is a bare lookup. The
bytes of a topic, cut out of the same stream, are the key of a dict, and its value gets a new time.
"""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

from drld.config import load
from drld.limiter import static_share
from drld.messages.datapath import MessageDatapath
from drld.messages.gate import Fate, Lane
from drld.messages.mqtt import MqttReader
from drld.messages.spec import MessagesSpec
from testbed.bench.hop import many_topics
from testbed.bench.hop.measure import PACED
from testbed.bench.lanes import Setting
from testbed.bench.summary import Outcome, Row

FEW, MANY = 10, 10_000
MESSAGES = 20_000
_READ_BYTES = 32_768
"""Bytes of one read, as drld reads a client."""
_COST, _FLOOR, _RATIO = "cost of a message", "bare lookup", f"ratio to {FEW} topics"
_GOAL = 1.2
_CONNECT = b"\x10\x0d\0\4MQTT\4\2\0\0\0\1c"
_HEAD = """
[limiter]
name = "bench"
listen = "127.0.0.1:7946"
[[broker]]
name = "mqtt"
protocol = "mqtt"
listen = "127.0.0.1:1883"
server = "127.0.0.1:1884"
"""
_LIMIT = """
[[limit]]
id = {id}
name = "limit{id}"
rate = "10M/s"
burst = "1Mmsg"
match = {{ broker = "mqtt", topic = "city/{id}/traffic" }}
"""


@dataclass
class _Field:
    """A datapath, one client, and the messages of a round."""

    datapath: MessageDatapath
    lane: Lane
    reader: MqttReader
    stream: bytes
    topics: list[slice]
    """The places of the topics in the stream."""
    entries: dict[bytes, list[int]]
    """A time for each topic."""
    now_ns: int = 0

    def look_up(self) -> float:
        """Look up the topic of each message once; return the processor time of one, ns."""
        stream, entries, now_ns = self.stream, self.entries, self.now_ns
        began_ns = time.process_time_ns()
        for topic in self.topics:
            now_ns += 1000
            entries[stream[topic]][0] = now_ns
        return (time.process_time_ns() - began_ns) / MESSAGES

    def round(self) -> float:
        """Pass all messages once; return the processor time of one, ns."""
        offer, lane, now_ns = self.datapath.gate.offer, self.lane, self.now_ns
        stream = self.stream
        pieces = [stream[at : at + _READ_BYTES] for at in range(0, len(stream), _READ_BYTES)]
        passed = 0
        began_ns = time.process_time_ns()
        for piece in pieces:
            out = []
            for frame in self.reader.feed(piece):
                now_ns += 1000
                if offer(lane, frame, now_ns) is Fate.FORWARD:
                    out.append(frame.data)
            passed += len(out)
            b"".join(out)
        took_ns = time.process_time_ns() - began_ns
        self.now_ns = now_ns
        assert passed == MESSAGES, "no message waits"
        return took_ns / MESSAGES


async def measure(setting: Setting) -> Outcome:
    """Rounds under few and many limits, by turns."""
    fields = {number: _field(setting.state, number) for number in (FEW, MANY)}
    gc.collect()
    gc.freeze()
    costs: dict[int, list[float]] = {number: [] for number in fields}
    floors: dict[int, list[float]] = {number: [] for number in fields}
    for _ in range(setting.choose(41, 5)):
        for number, field in fields.items():
            costs[number].append(field.round())
            floors[number].append(field.look_up())
    gc.unfreeze()
    group = "a PUBLISH of 64 bytes, beside system calls"
    return Outcome(
        [
            Row(group, f"{number:,} topics", metric, "ns", found[number])
            for metric, found in ((_COST, costs), (_FLOOR, floors))
            for number in fields
        ]
        + [
            Row(group, f"{MANY:,} topics", _RATIO, "", _ratios(costs)),
            Row(group, f"{MANY:,} topics", f"{_RATIO}, {_FLOOR}", "", _ratios(floors)),
        ]
        + many_topics.rows(setting, (FEW, MANY), _RATIO, _GOAL),
        _COST,
        [
            "the goal is about the daemon's whole cost, with system calls and ticks",
            f"each of {MANY:,} topics has four objects in no near cache: two are read to find the "
            "topic, and two to charge its limit; the bare lookup shows what the first two cost any "
            "program",
            f"at {PACED:,}/s a daemon wakes for almost each message, which costs far more; only "
            "where it always has work do the objects show",
        ],
    )


def _ratios(found: dict[int, list[float]]) -> list[float]:
    return [many / few for few, many in zip(found[FEW], found[MANY], strict=True)]


def _field(directory: Path, number: int) -> _Field:
    file = directory / f"topics{number}.toml"
    file.write_text(_HEAD + "".join(_LIMIT.format(id=it) for it in range(1, number + 1)))
    spec = load(file)
    datapath = MessageDatapath(spec.plane(MessagesSpec).brokers, Random(1))
    datapath.attach([(limit, static_share(limit.policy, 1.0)) for limit in spec.limits], 0)
    reader, lane = MqttReader(), datapath.gate.lane("mqtt")
    assert len(list(reader.feed(_CONNECT))) == 1
    lane.client = reader.client
    stream, topics = _stream(number)
    entries = {stream[topic]: [0] for topic in topics}
    return _Field(datapath, lane, reader, stream, topics, entries)


def _stream(number: int) -> tuple[bytes, list[slice]]:
    """The bytes of a round, and the places of the topics in them."""
    rng, stream, topics = Random(number), bytearray(), []
    for _ in range(MESSAGES):
        topic = f"city/{rng.randint(1, number)}/traffic".encode()
        body = len(topic).to_bytes(2, "big") + topic + bytes(64)
        stream += bytes((0x30, len(body)))
        topics.append(slice(len(stream) + 2, len(stream) + 2 + len(topic)))
        stream += body
    return bytes(stream), topics
