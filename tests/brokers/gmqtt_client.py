"""A client by gmqtt."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import Any

from gmqtt import Client
from gmqtt.mqtt.constants import MQTTv50, MQTTv311

from tests.brokers.clients import Heard, Job, play

PATIENCE_S = 120.0


async def publish(asked: Job) -> Heard:
    received: list[str] = []
    subscribed, complete = asyncio.Event(), asyncio.Event()

    def on_message(client: Any, topic: str, payload: bytes, qos: int, properties: Any) -> int:
        received.append(payload.decode())
        if len(received) == asked.count:
            complete.set()
        return 0

    client = Client(None)
    client.on_message = on_message
    client.on_subscribe = lambda *_: subscribed.set()
    await client.connect(
        "127.0.0.1",
        asked.port,
        ssl=asked.context or False,
        keepalive=asked.keep_alive_s,
        version=MQTTv50 if asked.version == 5 else MQTTv311,
    )
    client.subscribe(asked.topic, qos=asked.qos)
    await asyncio.wait_for(subscribed.wait(), PATIENCE_S)
    for number in range(asked.count):
        extra = {"topic_alias": 1} if asked.alias else {}
        topic = "" if asked.alias and number else asked.topic
        client.publish(topic, asked.payload(number), qos=asked.qos, **extra)
    await asyncio.wait_for(complete.wait(), PATIENCE_S)
    # Acknowledgements that are on their way when the client ends TLS come after its end, which
    # OpenSSL reports as an error.
    with suppress(ssl.SSLError):
        await client.disconnect()
    return received, []


if __name__ == "__main__":
    play(publish)
