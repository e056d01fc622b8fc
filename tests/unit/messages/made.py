"""Limits on messages, datapaths and frames for tests, in virtual time."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from drld.limiter import static_share
from drld.messages.datapath import MessageDatapath
from drld.messages.frame import Client, Frame, Place
from drld.messages.gate import Fate, Lane
from drld.messages.spec import (
    ITEM,
    MESSAGES,
    BrokerSpec,
    ByClient,
    Excess,
    MessageMatch,
)
from drld.messages.topics import Topic
from drld.model import Enforcement
from drld.policy import Keyed, Mode
from drld.spec import LimitSpec
from tests.factories import limit_spec

MS = 1_000_000
BROKERS = (
    BrokerSpec("mqtt", "mqtt", (("127.0.0.1", 1883),), ("127.0.0.1", 1884)),
    BrokerSpec("nats", "nats", (("127.0.0.1", 4222),), ("127.0.0.1", 4223)),
)


def message_limit(
    topic: str = "#",
    *,
    id: int = 1,
    rate: float = 1000,
    burst: float = 3,
    broker: tuple[str, ...] = ("mqtt",),
    excess: Excess = Excess.WAIT,
    mode: Mode = Mode.ENFORCE,
    client: ByClient | None = None,
) -> LimitSpec:
    """A limit of messages/s and messages."""
    made = limit_spec("static", id=id, name=f"limit{id}", match=MessageMatch(broker, topic, client))
    policy = replace(
        made.policy,
        rate=int(rate * ITEM),
        burst=int(burst * ITEM),
        unit=MESSAGES,
        excess=excess,
        mode=mode,
        keyed=Keyed("client", 100) if client else None,
    )
    return replace(made, policy=policy)


def record(limit: LimitSpec) -> Enforcement:
    """The whole limit, as a limiter alone has it."""
    return static_share(limit.policy, 1.0)


def datapath(*limits: LimitSpec, now_ns: int = 0) -> MessageDatapath:
    """A datapath with these limits."""
    made = MessageDatapath(BROKERS, Random(1))
    attach(made, *limits, now_ns=now_ns)
    return made


def attach(made: MessageDatapath, *limits: LimitSpec, now_ns: int) -> None:
    """Have these limits from now on."""
    made.attach([(limit, record(limit)) for limit in limits], now_ns)


def frame(topic: str | None, text: str = "", place: Place = Place.KEEPS) -> Frame:
    """A frame; the text tells it from others."""
    return Frame(text.encode(), 0, None if topic is None else Topic(topic), place)


def client(name: str, user: str | None = None) -> Client:
    """A client that has connected by MQTT 5."""
    return Client(name, user, 5, 60)


def released(made: MessageDatapath, now_ns: int) -> list[tuple[str, Fate]]:
    """The messages that leave by now from a daemon that looks in time: texts and fates."""
    left = []
    while (due_ns := made.gate.due_ns) is not None and due_ns <= now_ns:
        left += [(it.data.decode(), fate) for _, it, fate in made.gate.release(due_ns)]
    return left + [(it.data.decode(), fate) for _, it, fate in made.gate.release(now_ns)]


def forwarded(made: MessageDatapath, now_ns: int) -> str:
    """The texts of what leaves by now; nothing else may come."""
    found = released(made, now_ns)
    assert {fate for _, fate in found} <= {Fate.FORWARD}
    return "".join(text for text, _ in found)


def offered(made: MessageDatapath, lane: Lane, topic: str, texts: str, at_ns: int) -> str:
    """Offer a message for each character; those that leave at once."""
    fates = [made.gate.offer(lane, frame(topic, text), at_ns) for text in texts]
    return "".join(text for text, fate in zip(texts, fates, strict=True) if fate is Fate.FORWARD)
